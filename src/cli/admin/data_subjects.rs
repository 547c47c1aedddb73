use super::resource::{Action, Arg, Kind, Resource, Verb};

const SUBJECT: Arg = Arg::path("SUBJECT", "The person's id, as senders wrote it");

pub(super) const RESOURCE: Resource = Resource {
    name: "data-subjects",
    about: "Data subjects: what is held on a person, and its erasure",
    actions: &[
        Action {
            name: "report",
            about: "Show everything that is held on a person",
            path: "/data-subjects/{SUBJECT}",
            args: &[SUBJECT],
            ..Action::READ
        },
        Action {
            name: "erase",
            about: "Erase a person's data; the answer is the certificate, once it is done",
            verb: Verb::Delete,
            path: "/data-subjects/{SUBJECT}",
            args: &[
                SUBJECT,
                Arg::query(
                    "scope",
                    "scope",
                    Kind::Choice(&["personal-data", "messages"]),
                    "The data to erase; personal-data by default",
                ),
                Arg::body(
                    "reason",
                    "/reason",
                    Kind::Text,
                    "A code; DATA_SUBJECT_REQUEST unless said",
                ),
                Arg::body(
                    "requested-by",
                    "/requestedBy",
                    Kind::Text,
                    "Your own reference to the request, such as a ticket",
                ),
                Arg::body("note", "/note", Kind::Text, "Words for people, without a person's name"),
            ],
            asks: Some("Erase this person's data, for good?"),
            ..Action::READ
        },
        Action {
            name: "erasure",
            about: "Show an erasure: how far it is, or its certificate",
            path: "/data-subjects/{SUBJECT}/erasures/{ERASURE}",
            args: &[SUBJECT, Arg::path("ERASURE", "The erasure's UUID")],
            watch: true,
            ..Action::READ
        },
        Action {
            name: "ref",
            about: "Find the reference to a user, by which tasks, handoffs and costs are listed",
            verb: Verb::Post,
            path: "/users/search",
            args: &[Arg::body("user", "/userId", Kind::Text, "The user's id, as senders wrote it")
                .needed()],
            ..Action::READ
        },
    ],
};
