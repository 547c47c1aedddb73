//! Figures: a line while it runs, a table and JSON at the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::Args;
use crate::drive::{Outcome, Plan};

/// p50, p99 and max in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Quantiles(pub f64, pub f64, pub f64);

impl Quantiles {
    pub fn of(took: &[Duration]) -> Self {
        // Microseconds, three figures.
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        for one in took {
            histogram.record(u64::try_from(one.as_micros()).unwrap_or(u64::MAX)).unwrap();
        }
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1_000.0;
        Self(at(0.5), at(0.99), histogram.max() as f64 / 1_000.0)
    }

    fn text(self) -> String {
        format!("{:.1} / {:.1} / {:.0}", self.0, self.1, self.2)
    }
}

/// One measurement.
#[derive(Debug, Clone)]
pub struct Row {
    /// The name of the measurement.
    pub what: String,
    /// Handoffs a second.
    pub rate: f64,
    /// To the answer: 202, or the verdict where it was waited for.
    pub answered: Option<Quantiles>,
    /// To the receiver.
    pub arrived: Option<Quantiles>,
    /// Anything else, by name.
    pub more: BTreeMap<&'static str, f64>,
}

impl Row {
    pub fn of(
        store: &str,
        args: &Args,
        plan: &Plan,
        outcome: &Outcome,
        ready: Duration,
        records: u64,
    ) -> Self {
        let side = if store.starts_with("sqlite") { "SQLite" } else { "Postgres" };
        let load = match plan.rate {
            Some(rate) => format!("open, {rate}/s"),
            None => format!("closed, {} senders", plan.senders),
        };
        let task = match plan.hops {
            1 => String::new(),
            0 => ", long tasks".to_owned(),
            hops => format!(", {hops} hops a task"),
        };
        let brokers =
            if args.brokers > 1 { format!(", {} brokers", args.brokers) } else { String::new() };
        let size = match plan.size {
            4_096 => String::new(),
            size => format!(", {}", kilobytes(size)),
        };
        let tenants =
            if plan.tenants > 1 { format!(", {} tenants", plan.tenants) } else { String::new() };
        let past = match plan.past {
            0 => String::new(),
            past => format!(", {past} in the store"),
        };
        let wait = if plan.wait { ", to verdict" } else { "" };
        let per = |seconds: f64| seconds * 1e3 / outcome.acknowledged.max(1) as f64;
        let mut more = BTreeMap::from([
            ("acknowledged", outcome.acknowledged as f64),
            ("refused", outcome.refused as f64),
            ("delivered twice", outcome.again as f64),
            ("drain s", outcome.drained_in.as_secs_f64()),
            ("broker cpu ms/handoff", per(outcome.broker_cpu)),
            ("batch", outcome.batch),
            ("commit ms", outcome.commit_s * 1e3),
            ("ready s", ready.as_secs_f64()),
            ("resident MiB idle", outcome.resident[0]),
            ("resident MiB at most", outcome.resident[1]),
            ("records verified", records as f64),
        ]);
        let [first, last] = &outcome.first_and_last;
        if !first.is_empty() && !last.is_empty() {
            more.insert("p50 ms in the first tenth of a task", Quantiles::of(first).0);
            more.insert("p99 ms in the first tenth of a task", Quantiles::of(first).1);
            more.insert("p50 ms in the last tenth", Quantiles::of(last).0);
            more.insert("p99 ms in the last tenth", Quantiles::of(last).1);
        }
        if side == "Postgres" {
            more.insert("postgres cpu ms/handoff", per(outcome.postgres_cpu));
        }
        Self {
            what: format!("{side}, {load}{size}{tenants}{task}{brokers}{past}{wait}"),
            rate: outcome.answered.len() as f64 / outcome.measured.as_secs_f64(),
            answered: Some(Quantiles::of(&outcome.answered)),
            arrived: Some(Quantiles::of(&outcome.arrived)),
            more,
        }
    }

    /// For a person who waits.
    pub fn line(&self) -> String {
        let text = |quantiles: Option<Quantiles>| {
            quantiles.map_or_else(|| "-".to_owned(), Quantiles::text)
        };
        let more: Vec<_> =
            self.more.iter().map(|(name, value)| format!("{name} {value:.2}")).collect();
        format!(
            "{}: {:.0}/s, answer {}, receiver {} ms ({})",
            self.what,
            self.rate,
            text(self.answered),
            text(self.arrived),
            more.join(", ")
        )
    }

    pub fn json(&self) -> Value {
        let quantiles = |of: Option<Quantiles>| {
            of.map(|Quantiles(p50, p99, max)| json!({ "p50": p50, "p99": p99, "max": max }))
        };
        json!({
            "perSecond": self.rate,
            "answerMs": quantiles(self.answered),
            "receiverMs": quantiles(self.arrived),
            "more": self.more,
        })
    }
}

/// A size as a row of the table names it.
pub fn kilobytes(bytes: usize) -> String {
    format!("{:.1} KB", bytes as f64 / 1_024.0)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn medians(quantiles: &[Quantiles]) -> String {
    if quantiles.is_empty() {
        return "-".to_owned();
    }
    let of = |pick: fn(&Quantiles) -> f64| median(quantiles.iter().map(pick).collect());
    Quantiles(of(|q| q.0), of(|q| q.1), of(|q| q.2)).text()
}

/// Medians over the runs, as Markdown.
pub fn table(figures: &[(usize, Row)]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (_, row) in figures {
        if !names.contains(&row.what.as_str()) {
            names.push(&row.what);
        }
    }
    let mut text = "| what | runs | handoffs/s (least to most) | to answer: p50 / p99 / max ms | \
                    to receiver: p50 / p99 / max ms | broker CPU ms each |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for name in names {
        let rows: Vec<&Row> =
            figures.iter().filter(|(_, row)| row.what == name).map(|(_, row)| row).collect();
        let rates: Vec<f64> = rows.iter().map(|row| row.rate).collect();
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let most = rates.iter().copied().fold(0.0, f64::max);
        let answered: Vec<_> = rows.iter().filter_map(|row| row.answered).collect();
        let arrived: Vec<_> = rows.iter().filter_map(|row| row.arrived).collect();
        let cpu: Vec<f64> =
            rows.iter().filter_map(|row| row.more.get("broker cpu ms/handoff").copied()).collect();
        let cpu = if cpu.is_empty() { "-".to_owned() } else { format!("{:.2}", median(cpu)) };
        // Writing into a string cannot fail.
        let _ = writeln!(
            text,
            "| {name} | {} | {:.0} ({least:.0} to {most:.0}) | {} | {} | {cpu} |",
            rows.len(),
            median(rates),
            medians(&answered),
            medians(&arrived),
        );
    }
    text
}
