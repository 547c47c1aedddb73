//! `handoffd why TASK`: why a task does not go on.

use std::fmt::Write;

use serde_json::Value;

use super::answer::answer;
use super::client::{Client, Request};
use super::plain::{self, plain};
use super::trace::Args;
use super::{Exit, Output};
use handoffd_broker::config::Config;

/// Fetches the reasons and prints them.
pub(super) async fn run(args: Args, config: Config, output: Output) -> Exit {
    let request = Request::get(&["tasks", &args.task.to_string(), "why"]);
    let fetched = async { Client::new(&args.reach, args.key, &config)?.call(&request).await }.await;
    match fetched {
        Ok(why) => {
            let text = match output {
                Output::Json => plain::json(&why, false),
                Output::Text => render(&why),
            };
            answer(&text, Exit::Success)
        }
        Err(err) => {
            eprintln!("{}", err.shown(output));
            err.exit()
        }
    }
}

/// The reasons as text, the most urgent one first.
fn render(why: &Value) -> String {
    let text = |value: &Value, pointer: &str| {
        value.pointer(pointer).and_then(Value::as_str).map(|text| plain(text).into_owned())
    };
    let list = |value: &Value, pointer: &str| {
        value.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let mut out = String::new();
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let _ =
        writeln!(out, "Task {}  {}", or_none(text(why, "/taskId")), or_none(text(why, "/status")));
    for wait in list(why, "/waits") {
        let _ = writeln!(out, "\n{}", or_none(text(&wait, "/sentence")));
        let mut line = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                let _ = writeln!(out, "  {name:<11} {value}");
            }
        };
        line("cause", text(&wait, "/cause"));
        line("since", text(&wait, "/since"));
        line("handoff", text(&wait, "/handoffId"));
        let attempts = wait.pointer("/attempts").and_then(Value::as_i64).filter(|count| *count > 0);
        line("attempts", attempts.map(|count| count.to_string()));
        line("last error", text(&wait, "/lastError"));
        line(
            "next",
            text(&wait, "/next/at")
                .zip(text(&wait, "/next/event"))
                .map(|(at, event)| format!("{at}  {event}")),
        );
        for remedy in list(&wait, "/remedies") {
            let both = text(&remedy, "/command").zip(text(&remedy, "/effect"));
            line("remedy", both.map(|(command, effect)| format!("{command}\n{:14}{effect}", "")));
        }
    }
    out
}
