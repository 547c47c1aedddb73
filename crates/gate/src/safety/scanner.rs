//! Reads the texts of a message, scores them against the rules, and reports where: what refuses it, and what is marked.

use std::sync::Arc;

use memchr::memmem;
use serde_json::Value;

use super::cache::{ScanCache, TenantScanCache};
use super::fields::{TextLocation, each_inner_text, each_text};
use super::finding::SafetyFinding;
use super::rules::{FieldClass, Rule, Rules, Tier};
use super::sequence::ScanMemory;
use super::sweep::{Hit, Standing, Sweep, plain_words};
use super::views::look;
use handoffd_domain::ids::TenantId;
use handoffd_domain::json;
use handoffd_domain::unseen;

pub use super::sweep::THRESHOLD;

/// At most this many findings are reported for one message, and as many marks.
pub const MAX_FINDINGS: usize = 100;

/// Layers of JSON in a text that are read.
const NESTED: usize = 4;

/// Members whose values are names between the texts that people and tools write.
const NAMING: [&str; 8] = ["role", "type", "kind", "id", "name", "status", "mimeType", "tool"];

/// Length of an excerpt in characters, and how many of them stand before the match.
const EXCERPT: (usize, usize) = (80, 16);

/// The result of a scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanReport {
    /// Attacks by their wording or form, in the order of the fields.
    pub findings: Vec<SafetyFinding>,
    /// Orders to an assistant inside tools' outputs and data, in the order of the fields; none where a rule of
    /// `findings` covers the place.
    pub marks: Vec<SafetyFinding>,
    /// Whether some text would be reported if it repeated the output of a tool, and no tool of the messages at hand
    /// said it.
    pub open: bool,
}

/// Compiled rules, ready to scan. Cloning shares them.
#[derive(Debug, Clone)]
pub struct Scanner {
    rules: Arc<Rules>,
    cache: Option<ScanCache>,
}

impl Scanner {
    /// A scanner with the rules that are compiled in.
    #[must_use]
    pub fn builtin() -> Self {
        Self { rules: Rules::builtin(), cache: None }
    }

    /// A scanner with other rules.
    #[must_use]
    pub fn with_rules(rules: Rules) -> Self {
        Self { rules: Arc::new(rules), cache: None }
    }

    /// The same scanner, which keeps the results of long texts ([`Self::report_of`]). `secret` is random, so that no sender
    /// knows which texts share a key.
    #[must_use]
    pub fn remembering(self, secret: [u8; 16]) -> Self {
        Self { cache: Some(ScanCache::new(secret)), ..self }
    }

    /// The rules in use.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        self.rules.all()
    }

    /// The version of the rules in use.
    #[must_use]
    pub fn version(&self) -> &str {
        self.rules.version()
    }

    /// Scans every string of a message, keys included, for what refuses it. Empty when no place scored [`THRESHOLD`];
    /// at most [`MAX_FINDINGS`], in the order of the fields.
    #[must_use]
    pub fn scan(&self, message: &Value) -> Vec<SafetyFinding> {
        self.report(message, &[], &mut |_, _| {}).findings
    }

    /// Scans every string of a message in both tiers. `earlier` are messages of the same task before it: what repeats a
    /// tool's output in one of them, or in the message itself, is judged as one. `beside` sees each text on the way.
    #[must_use]
    pub fn report(
        &self,
        message: &Value,
        earlier: &[Value],
        beside: &mut dyn FnMut(&TextLocation<'_, '_>, &str),
    ) -> ScanReport {
        self.report_with(None, message, earlier, beside)
    }

    /// The same for a message of a tenant. A scanner that [remembers](Self::remembering) does not scan the tenant's long texts
    /// again, in whatever message they were.
    #[must_use]
    pub fn report_of(
        &self,
        tenant: &TenantId,
        message: &Value,
        earlier: &[Value],
        beside: &mut dyn FnMut(&TextLocation<'_, '_>, &str),
    ) -> ScanReport {
        self.report_with(
            self.cache.as_ref().map(|cache| cache.of(tenant)),
            message,
            earlier,
            beside,
        )
    }

    fn report_with(
        &self,
        cache: Option<TenantScanCache<'_>>,
        message: &Value,
        earlier: &[Value],
        beside: &mut dyn FnMut(&TextLocation<'_, '_>, &str),
    ) -> ScanReport {
        let mut seen = |visit: &mut dyn FnMut(&ScannedText<'_, '_, '_>)| {
            let mut number = 0;
            each_text(message, &mut |place, text, class| {
                beside(place, text);
                each_read(place, text, class, &mut number, visit);
            });
        };
        self.sweep(cache, &mut seen, earlier)
    }

    /// Scans one text as a field of `class` for what refuses it; the findings have an empty pointer.
    #[must_use]
    pub fn scan_text(&self, text: &str, class: FieldClass) -> Vec<SafetyFinding> {
        self.report_text(text, class).findings
    }

    /// The same in both tiers.
    #[must_use]
    pub fn report_text(&self, text: &str, class: FieldClass) -> ScanReport {
        let mut seen = |visit: &mut dyn FnMut(&ScannedText<'_, '_, '_>)| {
            each_read(&TextLocation::TOP, text, class, &mut 0, visit);
        };
        self.sweep(None, &mut seen, &[])
    }

    /// Reads the texts that `texts` shows, and once more where something is to be reported.
    fn sweep(
        &self,
        cache: Option<TenantScanCache<'_>>,
        texts: &mut EachText<'_>,
        earlier: &[Value],
    ) -> ScanReport {
        let (hits, open) = self.hits(cache, texts, earlier);
        let mut report = ScanReport { open, ..ScanReport::default() };
        if !hits.is_empty() {
            self.name(&hits, texts, &mut report);
        }
        report
    }

    /// The hits of the rules, in the order of the texts, and whether some text waits for the output that it repeats.
    fn hits(
        &self,
        cache: Option<TenantScanCache<'_>>,
        texts: &mut EachText<'_>,
        earlier: &[Value],
    ) -> (Vec<Hit>, bool) {
        let mut memory = ScanMemory::default();
        let mut sweep = Sweep::new(&self.rules, &mut memory, cache);
        texts(&mut |one| sweep.take(one.number, one.text, one.class, one.standing));
        sweep.finish();
        let (mut hits, mut repeats) = (sweep.hits, sweep.repeats);
        if !repeats.is_empty() {
            let mut keep = |output: &str| {
                repeats.retain(|repeat| {
                    let said = memmem::find(output.as_bytes(), repeat.words.as_bytes()).is_some();
                    if said {
                        hits.extend(&repeat.hits);
                    }
                    !said
                });
            };
            texts(&mut |one| one.output(&mut keep));
            for message in earlier {
                let mut number = 0;
                each_text(message, &mut |place, text, class| {
                    each_read(place, text, class, &mut number, &mut |one| one.output(&mut keep));
                });
            }
        }
        hits.sort_unstable();
        (hits, !repeats.is_empty())
    }

    /// Names the hits, by the texts that contain them.
    fn name(&self, hits: &[Hit], texts: &mut EachText<'_>, report: &mut ScanReport) {
        each_hit(hits, texts, &mut |one, here| {
            for hit in counted(here) {
                let list = match hit.tier {
                    Tier::Refuse => &mut report.findings,
                    Tier::Mark => &mut report.marks,
                };
                if list.len() < MAX_FINDINGS {
                    list.push(self.finding(one, hit));
                }
            }
        });
    }

    fn finding(&self, one: &ScannedText<'_, '_, '_>, hit: &Hit) -> SafetyFinding {
        let rule = &self.rules()[hit.rule];
        let (offset, end) = one.within(hit);
        SafetyFinding {
            rule: rule.id.clone(),
            family: rule.family.clone(),
            pointer: one.place.pointer(),
            offset,
            end,
            excerpt: excerpt(one.text, hit.start),
        }
    }

    /// The ids of all rules that match a text in any of its views, whatever the score.
    #[must_use]
    pub fn matching_rules(&self, text: &str) -> Vec<&str> {
        let mut ids: Vec<&str> = Vec::new();
        for fire in look(&self.rules, text, &mut ScanMemory::default(), 0..usize::MAX).fires {
            let id = self.rules()[usize::from(fire.rule)].id.as_str();
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids
    }

    /// How much work a text makes: steps of the rules tried and bytes read in all views. It grows with
    /// the text's length only, whatever is in it.
    #[must_use]
    pub fn work(&self, text: &str) -> u64 {
        look(&self.rules, text, &mut ScanMemory::default(), 0..usize::MAX).work
    }
}

/// Shows each text that was hit with its hits.
fn each_hit(
    hits: &[Hit],
    texts: &mut EachText<'_>,
    visit: &mut dyn FnMut(&ScannedText<'_, '_, '_>, &[Hit]),
) {
    let mut left = hits;
    texts(&mut |one| {
        let skipped = left.partition_point(|hit| hit.text < one.number);
        left = &left[skipped..];
        let (here, rest) = left.split_at(left.partition_point(|hit| hit.text == one.number));
        left = rest;
        if !here.is_empty() {
            visit(one, here);
        }
    });
}

/// The hits in a text that are told: a mark is not, where a rule that refuses covers the place.
fn counted(here: &[Hit]) -> impl Iterator<Item = &Hit> {
    here.iter().filter(|hit| {
        let refused = |other: &Hit| {
            other.tier == Tier::Refuse
                && other.start < hit.end
                && hit.start < other.end.max(other.start + 1)
        };
        hit.tier == Tier::Refuse || !here.iter().any(refused)
    })
}

/// Shows texts; the same ones each time it is called.
type EachText<'a> = dyn FnMut(&mut dyn FnMut(&ScannedText<'_, '_, '_>)) + 'a;

/// A text as the scan takes it.
struct ScannedText<'t, 'p, 'm> {
    number: u32,
    /// The field's place, also for a text within a text.
    place: &'t TextLocation<'p, 'm>,
    outer: &'t str,
    text: &'t str,
    class: FieldClass,
    standing: Standing,
}

impl ScannedText<'_, '_, '_> {
    /// Shows the text in plain words if a tool put it out.
    fn output(&self, keep: &mut dyn FnMut(&str)) {
        if self.class == FieldClass::ToolOutput {
            keep(&plain_words(self.text));
        }
    }

    /// The place of a hit in the field's text; all of that text if an inner text is written differently there.
    fn within(&self, hit: &Hit) -> (usize, usize) {
        if std::ptr::eq(self.outer, self.text) {
            return (hit.start, hit.end);
        }
        let start = self.text.floor_char_boundary(hit.start);
        let end = self.text.ceil_char_boundary(hit.end.min(self.text.len()));
        let stretch = self.text.get(start..end).unwrap_or_default();
        match memmem::find(self.outer.as_bytes(), stretch.as_bytes()) {
            Some(at) if !stretch.is_empty() => (at, at + stretch.len()),
            _ => (0, self.outer.len()),
        }
    }
}

/// Shows a field's text, or, where that is JSON, the texts of that.
fn each_read<'m>(
    place: &TextLocation<'_, 'm>,
    text: &'m str,
    class: FieldClass,
    number: &mut u32,
    visit: &mut dyn FnMut(&ScannedText<'_, '_, '_>),
) {
    let standing = standing(place, text);
    inner_texts(text, class, standing, NESTED, &mut |inner, class, standing| {
        visit(&ScannedText { number: *number, place, outer: text, text: inner, class, standing });
        *number += 1;
    });
}

fn inner_texts(
    text: &str,
    class: FieldClass,
    standing: Standing,
    layers: usize,
    visit: &mut dyn FnMut(&str, FieldClass, Standing),
) {
    let documents = if layers == 0 { Vec::new() } else { json::documents(text) };
    if documents.is_empty() {
        return visit(text, class, standing);
    }
    for document in &documents {
        each_inner_text(document, class, &mut |place, inner, class| {
            inner_texts(inner, class, self::standing(place, inner), layers - 1, visit);
        });
    }
}

/// Names and codes stand between the texts that people and tools write.
fn standing(place: &TextLocation<'_, '_>, text: &str) -> Standing {
    let naming = match place.member(text) {
        Some(name) => NAMING.contains(&name),
        None => place.is_name(text),
    };
    let code = naming && memchr::memchr3(b' ', b'\n', b'\t', text.as_bytes()).is_none();
    if code { Standing::Apart } else { Standing::Running }
}

fn excerpt(text: &str, offset: usize) -> String {
    let (length, before) = EXCERPT;
    let offset = text.floor_char_boundary(offset);
    let start =
        text[..offset].char_indices().rev().take(before).last().map_or(offset, |(at, _)| at);
    unseen::each(&text[start..])
        .take(length)
        .map(|(character, hidden)| if hidden || character.is_control() { ' ' } else { character })
        .collect()
}

mod explain;

pub use explain::{Certainty, Explanation};

#[cfg(test)]
mod tests;

#[cfg(test)]
mod doors;

#[cfg(test)]
mod ruled_out;

#[cfg(test)]
mod everyday;

#[cfg(test)]
mod splits;

#[cfg(test)]
mod tiers;
