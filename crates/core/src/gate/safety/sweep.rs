//! One way through the texts of a message. A long text is read by itself; short ones of one class are read together,
//! with a seam between any two, and with what stands at the ends of the long texts beside them: so an attack that is
//! split over neighbouring fields, parts, keys or turns is read as what it is, and short texts cost one reading.

use super::mention::{without_mentions, without_spared};
use super::normalize;
use super::rules::{FieldClass, Rules, Tier};
use super::sequence::{SEAM, ScanMemory, SequenceMatch};
use super::views::look;

/// The score at which the rules that matched a text are reported.
pub const THRESHOLD: f32 = 1.0;

/// What adding and subtracting weights may have lost.
const SLACK: f32 = 1e-3;

/// Rules that refuse add up within so many bytes of a text: weak signs far apart mean nothing.
const WINDOW: usize = 1_200;

/// Rules that mark add up within so many bytes.
const REACH: usize = 360;

/// Rules in several texts add up within so many bytes of them.
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

/// How a text stands among its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// What its neighbours may go on with.
    Running,
    /// A name or a code between them.
    Apart,
}

#[derive(Debug, Default)]
struct Page {
    text: String,
    pieces: Vec<Piece>,
    /// What fired in the texts whose ends stand here, by the place on the page.
    fires: Vec<SequenceMatch>,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    /// Where it begins on the page.
    start: usize,
    text: u32,
    /// Where it begins in its text.
    offset: usize,
    /// Whether it is all of its text.
    whole: bool,
}

/// The way through the texts of one message.
#[derive(Debug)]
pub(super) struct Sweep<'a> {
    rules: &'a Rules,
    memory: &'a mut ScanMemory,
    /// By class, those that run on and those apart.
    pages: [[Page; 2]; 4],
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
    pub(super) fn new(rules: &'a Rules, memory: &'a mut ScanMemory) -> Self {
        let pages = Default::default();
        Self { rules, memory, pages, hits: Vec::new(), repeats: Vec::new(), work: 0 }
    }

    pub(super) fn take(&mut self, number: u32, text: &str, class: FieldClass, standing: Standing) {
        let (at, beside) = (place(class), standing as usize);
        if text.len() <= SHORT {
            let page = &mut self.pages[at][beside];
            page.push(Piece { start: 0, text: number, offset: 0, whole: true }, text);
            if page.text.len() > PAGE {
                self.turn(class, beside);
            }
            return;
        }
        let seen = look(self.rules, text, self.memory);
        self.work += seen.work;
        let (head, tail) = ends(text);
        let page = &mut self.pages[at][beside];
        page.push(Piece { start: 0, text: number, offset: 0, whole: false }, &text[..head]);
        page.keep(&seen.fires, 0..head);
        if page.pieces.len() > 1 {
            self.turn(class, beside);
        }
        let page = &mut self.pages[at][beside];
        *page = Page::default();
        page.push(Piece { start: 0, text: number, offset: tail, whole: false }, &text[tail..]);
        page.keep(&seen.fires, tail..text.len());
        self.judge(number, text, seen.fires, class);
    }

    /// Reads what still waits for neighbours.
    pub(super) fn finish(&mut self) {
        for class in CLASSES {
            for beside in 0..2 {
                self.turn(class, beside);
            }
        }
    }

    /// Reads a page, and begins the next.
    fn turn(&mut self, class: FieldClass, beside: usize) {
        let page = std::mem::take(&mut self.pages[place(class)][beside]);
        if page.pieces.iter().all(|piece| !piece.whole) && page.pieces.len() < 2 {
            return;
        }
        let seen = look(self.rules, &page.text, self.memory);
        self.work += seen.work;
        if seen.fires.is_empty() && page.fires.is_empty() {
            return;
        }
        let mut across = page.fires.clone();
        let mut alone: Vec<Vec<SequenceMatch>> = vec![Vec::new(); page.pieces.len()];
        for fire in seen.fires {
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
                self.judge(piece.text, &page.text[piece.start..page.end(index)], fires, class);
            }
        }
        if page.pieces.len() < 2 {
            return;
        }
        // Names and codes in a row give no orders.
        let running = beside == Standing::Running as usize;
        for (tier, window) in [(Tier::Refuse, ACROSS), (Tier::Mark, ACROSS)] {
            if tier == Tier::Mark && !running {
                continue;
            }
            let mut fires = across.clone();
            if tier == Tier::Refuse {
                without_mentions(self.rules, &page.text, class, &mut fires);
            } else {
                without_spared(self.rules, &mut fires);
                // A name or a value of one word orders nothing.
                fires.retain(|fire| !page.is_word(page.index(fire.start), fire.end));
            }
            for fire in enough(self.rules, &mut fires, class, tier, window) {
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
    fn judge(&mut self, number: u32, text: &str, fires: Vec<SequenceMatch>, class: FieldClass) {
        let all = fires;
        for tier in [Tier::Refuse, Tier::Mark] {
            let window = if tier == Tier::Refuse { WINDOW } else { REACH };
            let mut fires = all.clone();
            match tier {
                Tier::Refuse => without_mentions(self.rules, text, class, &mut fires),
                Tier::Mark => without_spared(self.rules, &mut fires),
            }
            let found = enough(self.rules, &mut fires, class, tier, window);
            let of = |fire: SequenceMatch| {
                let SequenceMatch { rule, start, end } = fire;
                let end = end.clamp(start, text.len().max(start));
                Hit { text: number, start, end, rule: usize::from(rule), tier }
            };
            if !found.is_empty() {
                found.into_iter().map(of).for_each(|hit| self.hit(hit));
            } else if class != FieldClass::ToolOutput && self.repeats.len() < MAX_REPEATS {
                let mut fires = all.clone();
                match tier {
                    Tier::Refuse => {
                        without_mentions(self.rules, text, FieldClass::ToolOutput, &mut fires);
                    }
                    Tier::Mark => without_spared(self.rules, &mut fires),
                }
                let found = enough(self.rules, &mut fires, FieldClass::ToolOutput, tier, window);
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

impl Page {
    fn push(&mut self, piece: Piece, text: &str) {
        if !self.pieces.is_empty() {
            self.text.push(char::from(SEAM));
        }
        self.pieces.push(Piece { start: self.text.len(), ..piece });
        self.text.push_str(text);
    }

    /// Keeps what fired within a part of the text that was pushed last.
    fn keep(&mut self, fires: &[SequenceMatch], part: std::ops::Range<usize>) {
        let Some(piece) = self.pieces.last() else { return };
        let within = |fire: &&SequenceMatch| part.start <= fire.start && fire.end <= part.end;
        self.fires.extend(fires.iter().filter(within).map(|fire| {
            let onto = |at: usize| at - part.start + piece.start;
            SequenceMatch { start: onto(fire.start), end: onto(fire.end.max(fire.start)), ..*fire }
        }));
    }

    /// The piece that holds a place.
    fn index(&self, at: usize) -> usize {
        self.pieces.partition_point(|piece| piece.start <= at).max(1) - 1
    }

    /// Whether a piece is one word, and nothing that begins in it goes on to `end` in the next.
    fn is_word(&self, index: usize, end: usize) -> bool {
        let (piece, until) = (self.pieces[index], self.end(index));
        let text = self.text.get(piece.start..until).unwrap_or_default();
        piece.whole && end <= until && !text.contains(' ') && text.is_ascii()
    }

    /// Where a piece ends.
    fn end(&self, index: usize) -> usize {
        self.pieces.get(index + 1).map_or(self.text.len(), |next| next.start - 1)
    }
}

/// Where the first of a text's ends ends and the last begins, at borders of words where there are any.
fn ends(text: &str) -> (usize, usize) {
    let head = text.floor_char_boundary(END);
    let head = text[..head].rfind(char::is_whitespace).unwrap_or(head);
    let tail = text.ceil_char_boundary(text.len() - END);
    let tail = text[tail..].find(char::is_whitespace).map_or(tail, |at| tail + at);
    (head, tail)
}

/// What the hits in a text cover, in plain words; `None` if that says too little.
fn stretch(text: &str, hits: &[Hit]) -> Option<String> {
    let start = hits.iter().map(|hit| hit.start).min()?.min(text.len());
    let end = hits.iter().map(|hit| hit.end).max()?.clamp(start, text.len());
    let (start, end) = (text.floor_char_boundary(start), text.ceil_char_boundary(end));
    // A form covers nothing; what stands behind it tells it from others.
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
    class: FieldClass,
    tier: Tier,
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
    let weight = |rule: u16| rules.all()[usize::from(rule)].adds(tier, class);
    fires.retain(|fire| weight(fire.rule) > 0.0);
    fires.sort_unstable_by_key(|fire| (fire.start, fire.rule, fire.end));
    fires.dedup();
    let mut count = vec![0_u32; rules.all().len()];
    let mut found: Vec<SequenceMatch> = Vec::new();
    let mut score = 0.0;
    let mut first = 0;
    for next in 0..fires.len() {
        let fire = fires[next];
        let rule = usize::from(fire.rule);
        count[rule] += 1;
        if count[rule] == 1 {
            score += weight(fire.rule);
        }
        while fire.start - fires[first].start > window {
            let left = fires[first].rule;
            count[usize::from(left)] -= 1;
            if count[usize::from(left)] == 0 {
                score -= weight(left);
            }
            first += 1;
        }
        if score + SLACK >= THRESHOLD {
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
