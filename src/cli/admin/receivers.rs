use super::resource::{Action, Arg, CURSOR, Column, Resource, Shape};

const RECEIVER: Arg = Arg::path("AGENT", "The receiver's agent id");

pub(super) const RESOURCE: Resource = Resource {
    name: "receivers",
    about: "Receivers: breakers, failures, latency, polls and what waits for them",
    actions: &[
        Action {
            name: "list",
            about: "List receivers with the figures of the last 24 hours, by id",
            path: "/receivers",
            args: &[],
            shape: Shape::Rows {
                at: "/items",
                columns: &[
                    Column("RECEIVER", "/agentId"),
                    Column("DELIVERY", "/delivery"),
                    Column("BREAKER", "/breaker"),
                    Column("ATTEMPTS", "/attempts"),
                    Column("FAILURES", "/failures"),
                    Column("TIMEOUTS", "/timeouts"),
                    Column("P50 MS", "/p50Ms"),
                    Column("P95 MS", "/p95Ms"),
                    Column("OPEN", "/open"),
                    Column("WAITING", "/waiting"),
                    Column("LAST POLL", "/lastPollAt"),
                    Column("LAST SUCCESS", "/lastSuccessAt"),
                    Column("LAST FAILURE", "/lastFailure"),
                ],
                foot: &[],
            },
            pages: CURSOR,
            watch: true,
            ..Action::READ
        },
        Action {
            name: "show",
            about: "Show one receiver, with windows of five minutes",
            path: "/receivers/{AGENT}",
            args: &[RECEIVER],
            watch: true,
            ..Action::READ
        },
    ],
};
