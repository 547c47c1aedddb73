//! Hops against time: where each bar lies, with idle times folded.

use super::super::text;

/// Width of the drawing, in its own units.
const WIDTH: f64 = 1_000.0;
/// Width of a folded idle time.
const FOLDED: f64 = 28.0;
/// An idle time is folded if it is longer than this share of the busy time.
const SHARE: f64 = 0.25;

/// Time in microseconds to a place in the drawing.
pub(super) struct Scale {
    /// Busy stretches: begin, end, and the place of the begin.
    stretches: Vec<(i64, i64, f64)>,
    /// Units a microsecond.
    rate: f64,
    /// Folded idle times: place and microseconds.
    folds: Vec<(f64, i64)>,
}

impl Scale {
    /// A scale over these spans, each a begin and an end in microseconds.
    pub(super) fn of(spans: &[(i64, i64)]) -> Self {
        let mut busy = joined(spans);
        let total: i64 = busy.iter().map(|(begin, end)| end - begin).sum();
        busy = fold_short(busy, (total as f64 * SHARE) as i64);
        let total: i64 = busy.iter().map(|(begin, end)| end - begin).sum();
        let gaps = busy.len().saturating_sub(1);
        let room = (WIDTH - FOLDED * gaps as f64).max(WIDTH / 4.0);
        let rate = if total > 0 { room / total as f64 } else { 0.0 };
        let (mut stretches, mut folds, mut place) = (Vec::new(), Vec::new(), 0.0);
        let mut before: Option<i64> = None;
        for (begin, end) in busy {
            if let Some(before) = before {
                folds.push((place, begin - before));
                place += FOLDED;
            }
            stretches.push((begin, end, place));
            place += (end - begin) as f64 * rate;
            before = Some(end);
        }
        Self { stretches, rate, folds }
    }

    /// The place of a time.
    pub(super) fn place(&self, at: i64) -> i64 {
        let stretch = self.stretches.iter().rev().find(|(begin, ..)| *begin <= at);
        let Some((begin, end, place)) = stretch.or(self.stretches.first()) else { return 0 };
        (place + (at.clamp(*begin, *end) - begin) as f64 * self.rate).min(WIDTH) as i64
    }

    /// The middles of folded idle times, each with its length in words.
    pub(super) fn folds(&self) -> Vec<(i64, String)> {
        let drawn = |(place, idle): &(f64, i64)| {
            ((place + FOLDED / 2.0) as i64, format!("{} idle", text::duration(*idle)))
        };
        self.folds.iter().map(drawn).collect()
    }

    /// Places with the time since the first, at the begin of each stretch.
    pub(super) fn ticks(&self) -> Vec<(i64, String)> {
        let Some((first, ..)) = self.stretches.first() else { return vec![] };
        let (_, last, _) = self.stretches[self.stretches.len() - 1];
        let mut ticks = vec![(0, "0".to_owned())];
        ticks.push((WIDTH as i64, text::duration(last - first)));
        ticks
    }
}

/// Spans that touch or overlap as one, in order.
fn joined(spans: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut sorted: Vec<(i64, i64)> = spans.iter().map(|(a, b)| (*a, (*b).max(*a))).collect();
    sorted.sort_unstable();
    fold_short(sorted, 0)
}

/// Stretches with gaps of at most `most` filled.
fn fold_short(stretches: Vec<(i64, i64)>, most: i64) -> Vec<(i64, i64)> {
    let mut out: Vec<(i64, i64)> = Vec::new();
    for (begin, end) in stretches {
        match out.last_mut() {
            Some(last) if begin - last.1 <= most => last.1 = last.1.max(end),
            _ => out.push((begin, end)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_folded_and_busy_time_is_to_scale() {
        let hour = 3_600_000_000;
        let scale = Scale::of(&[(0, 10), (10, 30), (hour, hour + 30)]);
        assert_eq!(scale.folds(), [(500, "59 min idle".to_owned())]);
        assert_eq!((scale.place(0), scale.place(30), scale.place(hour)), (0, 486, 514));
        assert_eq!(scale.place(hour + 30), 1_000);
        assert_eq!(scale.place(hour / 2), 486, "within the fold");
    }

    #[test]
    fn nothing_and_a_single_moment_have_places_too() {
        assert_eq!(Scale::of(&[]).place(5), 0);
        assert_eq!(Scale::of(&[(7, 7)]).place(7), 0);
        assert!(Scale::of(&[(7, 3)]).folds().is_empty());
    }
}
