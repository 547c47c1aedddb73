//! `handoffd trace TASK`: the history of a task as text.

use std::borrow::Cow;

use clap::Args as ClapArgs;
use serde_json::Value;

use super::answer::answer;
use super::client::{Client, Reach, Request};
use super::plain::{self, plain};
use super::{Exit, Output};
use handoffd_broker::config::Config;
use handoffd_domain::ids::TaskId;
use handoffd_gate::completeness::INITIAL;

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The task's UUID
    pub(super) task: TaskId,
    #[command(flatten)]
    pub(super) reach: Reach,
    /// The key; the admin key in auth.keys_dir or the data directory unless said
    #[arg(long, env = "HANDOFFD_API_KEY", hide_env_values = true)]
    pub(super) key: Option<String>,
}

/// Fetches a trace and prints it.
pub(super) async fn run(args: Args, config: Config, output: Output) -> Exit {
    let asked = Request::get(&["tasks", &args.task.to_string(), "trace"]);
    let fetched = async { Client::new(&args.reach, args.key, &config)?.call(&asked).await }.await;
    match fetched {
        Ok(trace) => {
            let text = match output {
                Output::Json => plain::json(&trace, false),
                Output::Text => render(&trace),
            };
            answer(&text, Exit::Success)
        }
        Err(err) => {
            eprintln!("{}", err.shown(output));
            err.exit()
        }
    }
}

/// The description of the task; for a handoff before any work, the task in short.
fn task(handoff: &Value) -> Cow<'_, str> {
    let initial = handoff.get("taskDescription").is_some_and(|told| told == INITIAL);
    let summary = initial && handoff.get("taskSummary").is_some();
    text(handoff, if summary { "/taskSummary" } else { "/taskDescription" })
}

fn text<'a>(value: &'a Value, pointer: &str) -> Cow<'a, str> {
    plain(value.pointer(pointer).and_then(Value::as_str).unwrap_or("-"))
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The end of a record's line: the reason, the verdict and label of a second opinion, and the handoff of a dead letter, which the
/// list of handoffs does not have.
fn details(record: &Value) -> String {
    let named = |pointer: &str| {
        record.pointer(pointer).and_then(Value::as_str).map(|text| plain(text).into_owned())
    };
    let dead = record.get("kind").is_some_and(|kind| kind == "DEAD_LETTERED");
    let handoff = if dead { named("/handoffId") } else { None };
    let parts = [
        named("/reason"),
        named("/opinion/verdict"),
        named("/opinion/label"),
        handoff.map(|id| format!("handoff {id}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("  ")
}

/// A trace as text.
pub(super) fn render(trace: &Value) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    let _ = writeln!(out, "Task {}  {}", text(trace, "/taskId"), text(trace, "/status"));
    let _ = writeln!(out, "\nHandoffs, in the order they were committed");
    for (place, handoff) in list(trace, "/handoffs").iter().enumerate() {
        let _ = writeln!(
            out,
            "  {}. {} -> {}  {}{}",
            place + 1,
            text(handoff, "/fromAgent/agentId"),
            text(handoff, "/toAgent/agentId"),
            text(handoff, "/status"),
            match handoff.get("reason").and_then(Value::as_str) {
                Some(reason) => format!(" ({})", plain(reason)),
                None => String::new(),
            },
        );
        let _ = writeln!(out, "     {}", task(handoff));
        let _ = writeln!(
            out,
            "     record {}, ${} on this hop, handoff {}",
            handoff.get("leafIndex").and_then(Value::as_i64).unwrap_or(-1),
            handoff.pointer("/cost/usd").and_then(Value::as_f64).unwrap_or(0.0),
            text(handoff, "/handoffId"),
        );
    }
    let _ = writeln!(out, "\nEverything that was recorded");
    for record in list(trace, "/records") {
        let who = match record.pointer("/actor/agentId").and_then(Value::as_str) {
            Some(agent) => plain(agent),
            None => text(record, "/actor/role"),
        };
        let _ = writeln!(
            out,
            "  {:>4}  {}  {:<14} {:<22} {}",
            record.get("leafIndex").and_then(Value::as_i64).unwrap_or(-1),
            text(record, "/time").get(11..23).unwrap_or("-"),
            text(record, "/kind"),
            who,
            details(record),
        );
    }
    let _ = writeln!(out, "\nCost");
    for agent in list(trace, "/cost/perAgent") {
        let _ = writeln!(
            out,
            "  {:<26} ${}",
            text(agent, "/agentId"),
            agent.get("usd").and_then(Value::as_f64).unwrap_or(0.0),
        );
    }
    let _ = writeln!(
        out,
        "  {:<26} ${}",
        "total",
        trace.pointer("/cost/totalUSD").and_then(Value::as_f64).unwrap_or(0.0),
    );
    let well = trace.pointer("/verification/ok").and_then(Value::as_bool).unwrap_or(false);
    let _ = writeln!(
        out,
        "\nVerification: {}",
        if well {
            format!(
                "{} records and {} contents recomputed: ok",
                trace.pointer("/verification/records").and_then(Value::as_u64).unwrap_or(0),
                trace.pointer("/verification/contents").and_then(Value::as_u64).unwrap_or(0),
            )
        } else {
            format!("FAILED: {}", trace.pointer("/verification/firstBad").unwrap_or(&Value::Null))
        }
    );
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_records_line_ends_in_what_an_operator_asks_for() {
        let opinion = json!({ "by": "handoffd", "verdict": "UNSAFE", "label": "persuasion" });
        for (record, said) in [
            (json!({ "kind": "HANDOFF", "handoffId": "h" }), ""),
            (json!({ "kind": "REJECTED", "reason": "LATER\n" }), "LATER\\n"),
            (
                json!({ "kind": "DEAD_LETTERED", "reason": "SAFETY_VIOLATION", "handoffId": "h" }),
                "SAFETY_VIOLATION  handoff h",
            ),
            (json!({ "kind": "SECOND_OPINION", "opinion": opinion }), "UNSAFE  persuasion"),
            (
                json!({ "kind": "SECOND_OPINION", "reason": "ERASED", "opinion": { "verdict": "NONE" } }),
                "ERASED  NONE",
            ),
        ] {
            assert_eq!(details(&record), said, "{record}");
        }
    }
}
