//! The demo's report: steps for the reader, checks for the exit code.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::answer::answer;
use crate::cli::{Exit, Output, trace};

#[derive(Debug, Serialize)]
struct DemoStep {
    title: String,
    lines: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Check {
    what: String,
    ok: bool,
    expected: Value,
    found: Value,
}

/// The report in progress.
pub(super) struct DemoReport {
    output: Output,
    steps: Vec<DemoStep>,
    checks: Vec<Check>,
    kept: Option<String>,
}

impl DemoReport {
    pub(super) fn new(output: Output, title: &str) -> Self {
        if output == Output::Text {
            print(&format!("handoffd demo: {title}"));
        }
        Self { output, steps: Vec::new(), checks: Vec::new(), kept: None }
    }

    pub(super) fn step(&mut self, title: impl Into<String>) {
        let title = title.into();
        if self.output == Output::Text {
            print(&format!("\n{:>2}  {title}", self.steps.len() + 1));
        }
        self.steps.push(DemoStep { title, lines: Vec::new() });
    }

    /// Adds a line to the step.
    pub(super) fn say(&mut self, line: impl Into<String>) {
        let line = line.into();
        if self.output == Output::Text {
            print(&format!("    {line}"));
        }
        if let Some(step) = self.steps.last_mut() {
            step.lines.push(line);
        }
    }

    /// Compares a value with the expected one; only a difference is printed.
    pub(super) fn check(
        &mut self,
        what: impl Into<String>,
        expected: impl Into<Value>,
        found: impl Into<Value>,
    ) {
        let (what, expected, found) = (what.into(), expected.into(), found.into());
        let ok = expected == found;
        if !ok && self.output == Output::Text {
            print(&format!("    OFF: {what}: expected {expected}, found {found}"));
        }
        self.checks.push(Check { what, ok, expected, found });
    }

    /// Shows a trace as `handoffd trace` does.
    pub(super) fn trace(&self, trace: &Value) {
        if self.output == Output::Text {
            for line in trace::render(trace).lines() {
                print(&format!("{}\n", format!("    {line}").trim_end()));
            }
        }
    }

    /// Prints the folder of the store.
    pub(super) fn kept(&mut self, folder: &Path) {
        let folder = folder.display();
        self.step("The store is kept");
        self.say(format!("handoffd verify --database-url sqlite:{folder}/handoffd.db"));
        self.say(format!("HANDOFFD_DATA_DIR={folder} handoffd serve"));
        self.kept = Some(folder.to_string());
    }

    /// Prints the result; true if every check held.
    pub(super) fn finish(&self, trace: &Value, verification: &Value, took: Duration) -> bool {
        let off: Vec<&Check> = self.checks.iter().filter(|check| !check.ok).collect();
        let well = off.is_empty();
        let seconds = took.as_secs_f64();
        let text = match self.output {
            Output::Json => json!({
                "ok": well,
                "seconds": seconds,
                "steps": self.steps,
                "checks": self.checks,
                "trace": trace,
                "verification": verification,
                "kept": self.kept,
            })
            .to_string(),
            Output::Text if well => format!(
                "\nEverything came out as told: {} checks held, in {seconds:.1} s.",
                self.checks.len()
            ),
            Output::Text => {
                let lines = off.iter().map(|check| {
                    let Check { what, expected, found, .. } = check;
                    format!("\n  {what}: expected {expected}, found {found}")
                });
                let lines = lines.collect::<Vec<_>>().concat();
                format!("\nNot everything came out as told:{lines}")
            }
        };
        print(&text);
        well
    }
}

/// Prints a part of the story. If it cannot be written, the story goes on, and the exit code tells how it ends.
fn print(text: &str) {
    answer(text, Exit::Success);
}
