//! The chain of agents as a diagram: a column for each agent, an arrow for each handoff, in order.

use std::collections::BTreeMap;

/// Most agents and handoffs drawn: a larger diagram would not fit a page, and the list of handoffs has the same
/// facts.
const MOST_AGENTS: usize = 8;
const MOST_ARROWS: usize = 60;

/// Pixels between two columns, and between two arrows.
const COLUMN: usize = 180;
const ROW: usize = 46;

/// Pixels above the first arrow.
const HEAD: usize = 64;

/// Characters of an agent's name that fit above its column.
const NAME: usize = 22;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arrow {
    /// Number of the handoff in the report, from 1.
    pub(super) number: usize,
    /// Start, in pixels from the left.
    pub(super) from: usize,
    /// End, in pixels from the left.
    pub(super) to: usize,
    /// Pixels from the top.
    pub(super) y: usize,
    /// Centre of the label, in pixels from the left.
    pub(super) middle: usize,
    pub(super) label: String,
    /// Colour class: `good`, `bad` or `open`.
    pub(super) tone: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiagramColumn {
    /// Pixels from the left.
    pub(super) x: usize,
    /// The name, shortened if long.
    pub(super) name: String,
    pub(super) full: String,
}

/// The diagram's size and elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Diagram {
    /// Width in pixels.
    pub(super) width: usize,
    /// Height in pixels.
    pub(super) height: usize,
    /// Agents in order of appearance.
    pub(super) columns: Vec<DiagramColumn>,
    /// Handoffs in log order.
    pub(super) arrows: Vec<Arrow>,
}

/// A handoff to be drawn.
#[derive(Debug, Clone)]
pub(super) struct DiagramStep {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) label: String,
    /// Colour class of the arrow.
    pub(super) tone: &'static str,
}

/// Lays out the steps; `None` for no steps or too many.
pub(super) fn draw(steps: &[DiagramStep]) -> Option<Diagram> {
    let mut columns: Vec<DiagramColumn> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for name in steps.iter().flat_map(|step| [&step.from, &step.to]) {
        if !places.contains_key(name.as_str()) {
            let x = COLUMN / 2 + columns.len() * COLUMN;
            places.insert(name, x);
            columns.push(DiagramColumn { x, name: short(name), full: name.clone() });
        }
    }
    if steps.is_empty() || columns.len() > MOST_AGENTS || steps.len() > MOST_ARROWS {
        return None;
    }
    let place = |name: &str| places.get(name).copied().unwrap_or(COLUMN / 2);
    let arrows = steps
        .iter()
        .enumerate()
        .map(|(at, step)| {
            let (from, to) = (place(&step.from), place(&step.to));
            Arrow {
                number: at + 1,
                from,
                to,
                y: HEAD + ROW / 2 + at * ROW,
                middle: usize::midpoint(from, to),
                label: step.label.clone(),
                tone: step.tone,
            }
        })
        .collect();
    Some(Diagram {
        width: columns.len() * COLUMN,
        height: HEAD + steps.len() * ROW + ROW / 2,
        columns,
        arrows,
    })
}

fn short(name: &str) -> String {
    if name.chars().count() <= NAME {
        return name.to_owned();
    }
    name.chars().take(NAME - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(from: &str, to: &str) -> DiagramStep {
        DiagramStep { from: from.to_owned(), to: to.to_owned(), label: String::new(), tone: "good" }
    }

    #[test]
    fn each_agent_has_one_column_and_each_handoff_an_arrow() {
        let drawn = draw(&[step("a", "b"), step("b", "c"), step("c", "a")]).unwrap();
        let names: Vec<&str> = drawn.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let ends: Vec<_> = drawn.arrows.iter().map(|arrow| (arrow.from, arrow.to)).collect();
        assert_eq!(ends, [(90, 270), (270, 450), (450, 90)]);
        assert!(drawn.arrows.iter().all(|arrow| arrow.y < drawn.height && arrow.to < drawn.width));
    }

    #[test]
    fn what_does_not_fit_is_not_drawn() {
        assert_eq!(draw(&[]), None);
        assert_eq!(draw(&vec![step("a", "b"); MOST_ARROWS + 1]), None);
        let many: Vec<DiagramStep> = (0..MOST_AGENTS).map(|n| step(&n.to_string(), "z")).collect();
        assert_eq!(draw(&many), None);
        let long = "x".repeat(100);
        let drawn = draw(&[step(&long, "b")]).unwrap();
        assert_eq!(drawn.columns[0].name.chars().count(), NAME);
        assert_eq!(drawn.columns[0].full, long);
    }
}
