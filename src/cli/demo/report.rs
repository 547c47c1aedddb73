//! The demo's report: steps for the reader, checks for the exit code.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{Output, trace};

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
            println!("handoffd demo: {title}");
        }
        Self { output, steps: Vec::new(), checks: Vec::new(), kept: None }
    }

    pub(super) fn step(&mut self, title: impl Into<String>) {
        let title = title.into();
        if self.output == Output::Text {
            println!("\n{:>2}  {title}", self.steps.len() + 1);
        }
        self.steps.push(DemoStep { title, lines: Vec::new() });
    }

    /// Adds a line to the step.
    pub(super) fn say(&mut self, line: impl Into<String>) {
        let line = line.into();
        if self.output == Output::Text {
            println!("    {line}");
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
            println!("    OFF: {what}: expected {expected}, found {found}");
        }
        self.checks.push(Check { what, ok, expected, found });
    }

    /// Shows a trace as `handoffd trace` does.
    pub(super) fn trace(&self, trace: &Value) {
        if self.output == Output::Text {
            for line in trace::render(trace).lines() {
                println!("{}", format!("    {line}").trim_end());
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
        match self.output {
            Output::Json => println!(
                "{}",
                json!({
                    "ok": well,
                    "seconds": seconds,
                    "steps": self.steps,
                    "checks": self.checks,
                    "trace": trace,
                    "verification": verification,
                    "kept": self.kept,
                })
            ),
            Output::Text if well => println!(
                "\nEverything came out as told: {} checks held, in {seconds:.1} s.",
                self.checks.len()
            ),
            Output::Text => {
                println!("\nNot everything came out as told:");
                for check in off {
                    println!(
                        "  {}: expected {}, found {}",
                        check.what, check.expected, check.found
                    );
                }
            }
        }
        well
    }
}
