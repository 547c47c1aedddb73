//! One way through the texts of a message. A long text is read by itself; short ones of one class are read together,
//! with a seam between any two, and with the ends of the long texts beside them: so an attack that is split over
//! neighbouring fields, parts, keys or turns is read as one text, and short texts cost one reading.

use std::sync::Arc;

use super::cache::{TenantScanCache, TextScan};
use super::lexicon::WordMatch;
use super::mention::{without_mentions, without_spared};
use super::normalize;
use super::rules::{FieldClass, Rules, Tier};
use super::sequence::{ScanMemory, SequenceMatch};
use super::views::{ViewScan, look};

mod borders;
mod glue;
mod identifier;
mod page;

use borders::{Part, Side};
use identifier::is_identifier;
pub(super) use page::{Page, Piece};

/// The score at which the rules that matched a text are reported.
pub const THRESHOLD: f32 = 1.0;

/// The error that adding and subtracting weights may have made.
const SLACK: f32 = 1e-3;

/// Rules that refuse, and those that mark a user's turn, add up within so many bytes of a text: weak signs far apart mean
/// nothing.
const WINDOW: usize = 1_200;

/// Rules that mark other fields add up within so many bytes, about two sentences: each sentence of ordinary mail has a sign or two.
const REACH: usize = 160;

/// Rules that refuse add up within so many bytes of several texts.
const ACROSS: usize = 300;

/// Longest text that is read together with its neighbours, in bytes.
const SHORT: usize = 256;

/// How much of each end of a longer text is.
const END: usize = 160;

/// Longest page of short texts, in bytes.
const PAGE: usize = 32_768;

/// At most so many rules of texts are kept while a message is read.
const MAX_HITS: usize = 1_000;

/// At most so many texts are looked for in the outputs of tools.
const MAX_REPEATS: usize = 32;

/// A rule that counts in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hit {
    /// Number of the text, in the order of the message.
    pub text: u32,
    /// First byte, and the one behind the last.
    pub start: usize,
    pub end: usize,
    pub rule: usize,
    pub tier: Tier,
}

/// A text that would be reported if it were the output of a tool.
#[derive(Debug)]
pub(super) struct Repeat {
    pub hits: Vec<Hit>,
    /// The stretch that the rules cover, in plain words.
    pub words: String,
}

/// The relation of a text to its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its neighbours may continue its text.
    Running,
    /// A name or a code between them.
    Apart,
}

/// The way through the texts of one message.
#[derive(Debug)]
pub(super) struct Sweep<'a> {
    rules: &'a Rules,
    memory: &'a mut ScanMemory,
    /// The results of long texts that were scanned before.
    cache: Option<TenantScanCache<'a>>,
    /// By class, those that run on and those apart.
    pages: [[Page; 2]; 4],
    /// Texts that run on and hold words of the lexicon.
    parts: Vec<Part>,
    /// Texts that ran on so far.
    ordinal: u32,
    pub hits: Vec<Hit>,
    pub repeats: Vec<Repeat>,
    /// Bytes read and steps tried.
    pub work: u64,
}

const fn place(class: FieldClass) -> usize {
    match class {
        FieldClass::UserTurn => 0,
        FieldClass::ToolOutput => 1,
        FieldClass::Task => 2,
        FieldClass::Data | FieldClass::Any => 3,
    }
}

const CLASSES: [FieldClass; 4] =
    [FieldClass::UserTurn, FieldClass::ToolOutput, FieldClass::Task, FieldClass::Data];

impl<'a> Sweep<'a> {
    pub(super) fn new(
        rules: &'a Rules,
        memory: &'a mut ScanMemory,
        cache: Option<TenantScanCache<'a>>,
    ) -> Self {
        Self {
            rules,
            memory,
            cache,
            pages: Default::default(),
            parts: Vec::new(),
            ordinal: 0,
            hits: Vec::new(),
            repeats: Vec::new(),
            work: 0,
        }
    }

    pub(super) fn take(&mut self, number: u32, text: &str, class: FieldClass, standing: Standing) {
        let (at, beside) = (place(class), standing as usize);
        self.ordinal += u32::from(standing == Standing::Running);
        let ordinal = self.ordinal;
        if is_identifier(text) {
            return;
        }
        if text.len() <= SHORT {
            let page = &mut self.pages[at][beside];
            page.push(Piece { start: 0, text: number, ordinal, offset: 0, whole: true }, text);
            if page.text.len() > PAGE {
                self.turn(class, beside);
                // The beginning of the next page may continue this text.
                let piece = Piece { start: 0, text: number, ordinal, offset: 0, whole: false };
                self.pages[at][beside].push(piece, text);
            }
            return;
        }
        let (head, tail) = ends(text);
        let mut scan = || TextScan::of(look(self.rules, text, self.memory, head..tail));
        let scanned = match self.cache {
            Some(cache) => cache.result(text, scan),
            None => Arc::new(scan()),
        };
        let seen = &scanned.seen;
        self.work += seen.work;
        let piece = |offset| Piece { start: 0, text: number, ordinal, offset, whole: false };
        let page = &mut self.pages[at][beside];
        page.push(piece(0), &text[..head]);
        page.keep(&seen.fires, 0..head);
        if page.pieces.len() > 1 {
            self.turn(class, beside);
        }
        let page = &mut self.pages[at][beside];
        *page = Page::default();
        page.push(piece(tail), &text[tail..]);
        page.keep(&seen.fires, tail..text.len());
        if standing == Standing::Running {
            for (side, stretch) in [(Side::Head, 0..head), (Side::Tail, tail..text.len())] {
                let words = &text[stretch.clone()];
                self.part(&piece(stretch.start), (side, class), words, stretch.start, seen);
            }
        }
        self.judge(number, text, &seen.fires, class);
    }

    /// Keeps a stretch of the words seen, which begins there at `start`, for neighbours of other classes.
    fn part(
        &mut self,
        piece: &Piece,
        (side, class): (Side, FieldClass),
        words: &str,
        start: usize,
        seen: &ViewScan,
    ) {
        let first = seen.heard.partition_point(|hit| hit.end <= start);
        let heard = seen.heard[first..].iter();
        let heard = heard
            .take_while(|hit| hit.end <= start + words.len())
            .filter(|hit| hit.start >= start)
            .map(|hit| WordMatch { start: hit.start - start, end: hit.end - start, ..*hit });
        let heard: Vec<WordMatch> = heard.collect();
        if !heard.is_empty() {
            let Piece { ordinal, text, offset, .. } = *piece;
            let words = words.to_owned();
            self.parts.push(Part { ordinal, side, class, text, offset, words, heard });
        }
    }

    /// Reads what still waits for neighbours.
    pub(super) fn finish(&mut self) {
        for class in CLASSES {
            for beside in 0..2 {
                self.turn(class, beside);
            }
        }
        let parts = std::mem::take(&mut self.parts);
        let across = borders::across(self.rules, self.memory, parts, &mut self.work);
        for hit in across {
            self.hit(hit);
        }
    }

    /// Reads a page, and begins the next.
    fn turn(&mut self, class: FieldClass, beside: usize) {
        let page = std::mem::take(&mut self.pages[place(class)][beside]);
        if page.pieces.iter().all(|piece| !piece.whole) && page.pieces.len() < 2 {
            return;
        }
        let mut scan = || page.scan(self.rules, self.memory);
        let scanned = match self.cache {
            Some(cache) => cache.page_result(&page, scan),
            None => Arc::new(scan()),
        };
        let TextScan { seen, glued } = &*scanned;
        self.work += seen.work;
        if beside == Standing::Running as usize && !seen.heard.is_empty() {
            for (index, piece) in page.pieces.iter().enumerate().filter(|(_, piece)| piece.whole) {
                let words = page.piece(index);
                self.part(piece, (Side::Whole, class), words, piece.start, seen);
            }
        }
        if seen.fires.is_empty() && glued.is_empty() && page.fires.is_empty() {
            return;
        }
        let mut across = [&page.fires[..], glued].concat();
        let mut alone: Vec<Vec<SequenceMatch>> = vec![Vec::new(); page.pieces.len()];
        for fire in seen.fires.iter().copied() {
            let index = page.index(fire.start);
            let (piece, end) = (page.pieces[index], page.end(index));
            let within = fire.end <= end;
            if piece.whole && within {
                let (start, end) = (fire.start - piece.start, fire.end - piece.start);
                alone[index].push(SequenceMatch { start, end, ..fire });
            }
            if piece.whole || !within {
                across.push(fire);
            }
        }
        for (index, fires) in alone.into_iter().enumerate() {
            let piece = page.pieces[index];
            if !fires.is_empty() {
                self.judge(piece.text, &page.text[piece.start..page.end(index)], &fires, class);
            }
        }
        if page.pieces.len() < 2 {
            return;
        }
        // Names and codes in a row give no orders.
        let running = beside == Standing::Running as usize;
        for (tier, window) in [(Tier::Refuse, ACROSS), (Tier::Mark, REACH)] {
            if tier == Tier::Mark && !running {
                continue;
            }
            let mut fires = across.clone();
            if tier == Tier::Refuse {
                if !may_refuse(self.rules, &fires, class, window) {
                    continue;
                }
                without_mentions(self.rules, &page.text, class, &mut fires);
            } else {
                without_spared(self.rules, &page.text, &mut fires);
                // A name or a value of one word orders nothing.
                fires.retain(|fire| !page.is_word(page.index(fire.start), fire.end));
            }
            let weights = self.rules.weights(tier, class);
            for fire in enough(self.rules, &mut fires, (tier, &weights), window) {
                let index = page.index(fire.start);
                let piece = page.pieces[index];
                let start = fire.start - piece.start + piece.offset;
                let end =
                    fire.end.min(page.end(index)).max(fire.start) - piece.start + piece.offset;
                let rule = usize::from(fire.rule);
                self.hit(Hit { text: piece.text, start, end, rule, tier });
            }
        }
    }

    /// Judges one text by what fired in it.
    fn judge(&mut self, number: u32, text: &str, all: &[SequenceMatch], class: FieldClass) {
        for tier in [Tier::Refuse, Tier::Mark] {
            // A user's turn that talks a model out of its bounds does so all along.
            let wide = tier == Tier::Refuse || class == FieldClass::UserTurn;
            let window = if wide { WINDOW } else { REACH };
            let mut fires = all.to_vec();
            match tier {
                Tier::Refuse if may_refuse(self.rules, &fires, class, window) => {
                    without_mentions(self.rules, text, class, &mut fires);
                }
                Tier::Refuse => fires.clear(),
                Tier::Mark => without_spared(self.rules, text, &mut fires),
            }
            let weights = self.rules.weights(tier, class);
            let found = enough(self.rules, &mut fires, (tier, &weights), window);
            let of = |fire: SequenceMatch| {
                let SequenceMatch { rule, start, end, .. } = fire;
                let end = end.clamp(start, text.len().max(start));
                Hit { text: number, start, end, rule: usize::from(rule), tier }
            };
            if !found.is_empty() {
                found.into_iter().map(of).for_each(|hit| self.hit(hit));
            } else if class != FieldClass::ToolOutput && self.repeats.len() < MAX_REPEATS {
                let mut fires = all.to_vec();
                match tier {
                    Tier::Refuse
                        if may_refuse(self.rules, &fires, FieldClass::ToolOutput, window) =>
                    {
                        without_mentions(self.rules, text, FieldClass::ToolOutput, &mut fires);
                    }
                    Tier::Refuse => fires.clear(),
                    Tier::Mark => without_spared(self.rules, text, &mut fires),
                }
                let weights = self.rules.weights(tier, FieldClass::ToolOutput);
                let found = enough(self.rules, &mut fires, (tier, &weights), window);
                let hits: Vec<Hit> = found.into_iter().map(of).collect();
                if let Some(words) = stretch(text, &hits) {
                    self.repeats.push(Repeat { hits, words });
                }
            }
        }
    }

    fn hit(&mut self, hit: Hit) {
        let known = |one: &Hit| (one.text, one.rule, one.tier) == (hit.text, hit.rule, hit.tier);
        if self.hits.len() < MAX_HITS && !self.hits.iter().rev().take(64).any(known) {
            self.hits.push(hit);
        }
    }
}

/// The end of a text's first part and the start of its last part, at borders of words if there are any.
fn ends(text: &str) -> (usize, usize) {
    let head = text.floor_char_boundary(END);
    let head = text[..head].rfind(char::is_whitespace).unwrap_or(head);
    let tail = text.ceil_char_boundary(text.len() - END);
    let tail = text[tail..].find(char::is_whitespace).map_or(tail, |at| tail + at);
    (head, tail)
}

/// The stretch that the hits in a text cover, in plain words; `None` if it is too short.
fn stretch(text: &str, hits: &[Hit]) -> Option<String> {
    let start = hits.iter().map(|hit| hit.start).min()?.min(text.len());
    let end = hits.iter().map(|hit| hit.end).max()?.clamp(start, text.len());
    let (start, end) = (text.floor_char_boundary(start), text.ceil_char_boundary(end));
    // A form covers no words; the text after it distinguishes it from others.
    let end = text.ceil_char_boundary(end.max((start + 48).min(text.len())));
    Some(plain_words(&text[start..end])).filter(|words| words.len() >= 16)
}

/// A text's words in lower case, one space between them.
pub(super) fn plain_words(text: &str) -> String {
    let folded = normalize::fold(text);
    let text = folded.as_ref().map_or(text, |view| view.text.as_str());
    let mut words = String::with_capacity(text.len());
    for word in text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty())
    {
        if !words.is_empty() {
            words.push(' ');
        }
        words.extend(word.chars().flat_map(char::to_lowercase));
    }
    words
}

/// The fires of the rules that together reach [`THRESHOLD`] somewhere in a text, each rule once, with its first place
/// there.
fn enough(
    rules: &Rules,
    fires: &mut Vec<SequenceMatch>,
    (tier, weight): (Tier, &dyn Fn(u16, bool) -> f32),
    window: usize,
) -> Vec<SequenceMatch> {
    let conditions = fires.iter().filter(|fire| rules.is_condition(fire.rule));
    let mut conditions: Vec<SequenceMatch> = conditions.copied().collect();
    conditions.sort_unstable_by_key(|fire| (fire.rule, fire.start));
    let holds = |rule: u16, at: usize| {
        let from = (rule, at.saturating_sub(WINDOW));
        let next = conditions.partition_point(|one| (one.rule, one.start) < from);
        conditions.get(next).is_some_and(|one| one.rule == rule && one.start <= at + WINDOW)
    };
    fires.retain(|fire| !rules.unless(fire.rule).is_some_and(|rule| holds(rule, fire.start)));
    scored(rules, fires, (tier, weight), window)
}

/// Whether a text may be refused as one of this class: whether its matches would reach [`THRESHOLD`] if none of them were a
/// mention and none ruled out another. Costs less than to look at the text around each.
fn may_refuse(rules: &Rules, fires: &[SequenceMatch], class: FieldClass, window: usize) -> bool {
    let weights = rules.weights(Tier::Refuse, class);
    !scored(rules, &mut fires.to_vec(), (Tier::Refuse, &weights), window).is_empty()
}

/// The same of fires of which none rules out another.
fn scored(
    rules: &Rules,
    fires: &mut Vec<SequenceMatch>,
    (tier, weight): (Tier, &dyn Fn(u16, bool) -> f32),
    window: usize,
) -> Vec<SequenceMatch> {
    fires.retain(|fire| weight(fire.rule, fire.certain) > 0.0);
    fires.sort_unstable_by_key(|fire| (fire.start, fire.rule, fire.end, fire.certain));
    fires.dedup();
    // Matches of each rule within the window, doubtful and certain ones: the better counts, once.
    let mut count = vec![[0_u32; 2]; rules.all().len()];
    let adds = |rule: u16, [doubtful, certain]: [u32; 2]| match (doubtful, certain) {
        (0, 0) => 0.0,
        (_, 0) => weight(rule, false),
        _ => weight(rule, true),
    };
    let mut found: Vec<SequenceMatch> = Vec::new();
    let mut score = 0.0;
    // Matches within the window of rules that do not merely support.
    let mut bearing = 0_u32;
    let mut first = 0;
    for next in 0..fires.len() {
        let fire = fires[next];
        let counted = &mut count[usize::from(fire.rule)];
        score -= adds(fire.rule, *counted);
        counted[usize::from(fire.certain)] += 1;
        score += adds(fire.rule, *counted);
        bearing += u32::from(rules.bears(tier, fire.rule, fire.certain));
        while fire.start - fires[first].start > window {
            let left = fires[first];
            let counted = &mut count[usize::from(left.rule)];
            score -= adds(left.rule, *counted);
            counted[usize::from(left.certain)] -= 1;
            score += adds(left.rule, *counted);
            bearing -= u32::from(rules.bears(tier, left.rule, left.certain));
            first += 1;
        }
        if bearing > 0 && score + SLACK >= THRESHOLD {
            for fire in &fires[first..=next] {
                if found.iter().all(|known| known.rule != fire.rule) {
                    found.push(*fire);
                }
            }
        }
    }
    found.sort_by_key(|fire| (fire.start, fire.rule));
    found
}
