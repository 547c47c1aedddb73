//! The chain of agents as a picture: a column for each agent, an arrow for each handoff, in order.

use std::collections::BTreeMap;

/// Above these the picture would not fit a page; the list of handoffs says the same.
const MOST_AGENTS: usize = 8;
const MOST_ARROWS: usize = 60;

/// Pixels between two columns, and between two arrows.
const COLUMN: usize = 180;
const ROW: usize = 46;

/// Pixels above the first arrow.
const HEAD: usize = 64;

/// Letters of an agent's name that fit above its column.
const NAME: usize = 22;

/// A handoff as drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arrow {
    /// Its number in the report, from 1.
    pub(super) number: usize,
    /// Where it begins, in pixels from the left.
    pub(super) from: usize,
    /// Where it ends.
    pub(super) to: usize,
    /// How far down it is.
    pub(super) y: usize,
    /// Where its words are centred.
    pub(super) middle: usize,
    /// What stands on it.
    pub(super) label: String,
    /// How it is coloured: `good`, `bad` or `open`.
    pub(super) tone: &'static str,
}

/// An agent as drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    /// Pixels from the left.
    pub(super) x: usize,
    /// The name, shortened where it is long.
    pub(super) name: String,
    /// The whole name.
    pub(super) full: String,
}

/// The picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Diagram {
    /// Pixels.
    pub(super) width: usize,
    /// Pixels.
    pub(super) height: usize,
    /// In order of appearance.
    pub(super) columns: Vec<Column>,
    /// In log order.
    pub(super) arrows: Vec<Arrow>,
}

/// A handoff to be drawn.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// Who sent.
    pub(super) from: String,
    /// Who received.
    pub(super) to: String,
    /// A word on it.
    pub(super) label: String,
    /// How it is coloured.
    pub(super) tone: &'static str,
}

/// Lays the steps out; none where there is nothing to draw or too much.
pub(super) fn draw(steps: &[Step]) -> Option<Diagram> {
    let mut columns: Vec<Column> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for name in steps.iter().flat_map(|step| [&step.from, &step.to]) {
        if !places.contains_key(name.as_str()) {
            let x = COLUMN / 2 + columns.len() * COLUMN;
            places.insert(name, x);
            columns.push(Column { x, name: short(name), full: name.clone() });
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

    fn step(from: &str, to: &str) -> Step {
        Step { from: from.to_owned(), to: to.to_owned(), label: String::new(), tone: "good" }
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
        let many: Vec<Step> = (0..MOST_AGENTS).map(|n| step(&n.to_string(), "z")).collect();
        assert_eq!(draw(&many), None);
        let long = "x".repeat(100);
        let drawn = draw(&[step(&long, "b")]).unwrap();
        assert_eq!(drawn.columns[0].name.chars().count(), NAME);
        assert_eq!(drawn.columns[0].full, long);
    }
}
