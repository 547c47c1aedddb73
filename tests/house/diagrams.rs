//! The state diagrams in docs/states.md have each transition of the code, and no other.

use std::collections::BTreeSet;

use handoffd_domain::handoff::{HandoffEvent, HandoffStatus};
use handoffd_domain::task::{TaskEvent, TaskStatus};

const PAGE: &str = include_str!("../../docs/states.md");

/// One arrow: from, to, and what happened.
type Arrow = (String, String, String);

/// Transitions that lead somewhere else, which a diagram shows, and those that leave everything as it
/// is, which the table under it names.
#[derive(Debug, Default, PartialEq, Eq)]
struct Machine {
    moves: BTreeSet<Arrow>,
    stays: BTreeSet<Arrow>,
}

impl Machine {
    fn add(&mut self, from: &str, to: &str, event: String) {
        let arrow = (from.to_owned(), to.to_owned(), event);
        let set = if from == to { &mut self.stays } else { &mut self.moves };
        set.insert(arrow);
    }
}

fn handoffs() -> Machine {
    let mut machine = Machine::default();
    for from in HandoffStatus::ALL {
        for event in HandoffEvent::ALL {
            if let Ok(to) = from.next(event) {
                machine.add(from.as_str(), to.as_str(), format!("{event:?}"));
            }
        }
    }
    machine
}

fn tasks() -> Machine {
    let mut machine = Machine::default();
    for from in TaskStatus::ALL {
        for event in TaskEvent::ALL {
            if let Ok(to) = from.next(event) {
                machine.add(from.as_str(), to.as_str(), format!("{event:?}"));
            }
        }
    }
    machine
}

/// The part of the document under a heading.
fn section(heading: &str) -> &'static str {
    let start = PAGE.find(heading).unwrap_or_else(|| panic!("no heading {heading}"));
    let rest = &PAGE[start + heading.len()..];
    let end = rest.find("\n### ").into_iter().chain(rest.find("\n## ")).min();
    &rest[..end.unwrap_or(rest.len())]
}

/// Reads `A --> B: Event, Event` lines; `[*]` marks beginnings and ends and is not a state.
fn drawn(heading: &str) -> Machine {
    let mut machine = Machine::default();
    for line in section(heading).lines() {
        let Some((from, rest)) = line.trim().split_once(" --> ") else { continue };
        let Some((to, events)) = rest.split_once(": ") else {
            assert!(from == "[*]" || rest == "[*]", "an arrow without an event: {line}");
            continue;
        };
        if from == "[*]" {
            continue;
        }
        for event in events.split(", ") {
            machine.add(from, to, event.to_owned());
        }
    }
    machine
}

#[test]
fn the_handoffs_diagram_is_the_codes() {
    assert_eq!(drawn("### A handoff's life"), handoffs());
}

#[test]
fn the_tasks_diagram_is_the_codes() {
    assert_eq!(drawn("### A task's life"), tasks());
}

#[test]
fn every_state_is_drawn() {
    for (heading, names) in [
        ("### A handoff's life", HandoffStatus::ALL.map(HandoffStatus::as_str).to_vec()),
        ("### A task's life", TaskStatus::ALL.map(TaskStatus::as_str).to_vec()),
    ] {
        for name in names {
            assert!(section(heading).contains(name), "{heading}: {name} is missing");
        }
    }
}
