//! Attacks that are split over neighbouring texts of different classes. Each text was read among those of its class;
//! the words that the lexicon knows in it were kept, and go through the rules once more in the order of the message.

use super::{ACROSS, CLASSES, Hit, enough};
use crate::safety::lexicon::WordMatch;
use crate::safety::mention::without_mentions;
use crate::safety::reading::is_letter;
use crate::safety::rules::{FieldClass, Rules, Tier};
use crate::safety::sequence::{SEAM, ScanMemory, SequenceMatch};
use crate::safety::views::keep;

/// Which stretch of its text a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Whole,
    Head,
    Tail,
}

/// A text that runs on, or an end of a longer one.
#[derive(Debug)]
pub(super) struct Part {
    /// Its place among the texts that run on.
    pub ordinal: u32,
    pub side: Side,
    pub class: FieldClass,
    /// Number of the text, in the order of the message.
    pub text: u32,
    /// Its start in its text.
    pub offset: usize,
    pub words: String,
    /// Words of the lexicon, by their places in `words`.
    pub heard: Vec<WordMatch>,
}

impl Part {
    /// Whether it follows `before` directly, without other text between them.
    fn follows(&self, before: &Self) -> bool {
        self.ordinal == before.ordinal + 1 && before.side != Side::Head && self.side != Side::Tail
    }
}

/// The rules that refuse whatever the class and whose words stand in texts of different classes; `work` counts the steps.
pub(super) fn across(
    rules: &Rules,
    memory: &mut ScanMemory,
    mut parts: Vec<Part>,
    work: &mut u64,
) -> Vec<Hit> {
    parts.sort_unstable_by_key(|part| (part.ordinal, part.side));
    let mut hits = Vec::new();
    for neighbours in parts.chunk_by(|before, next| next.follows(before)) {
        if neighbours.iter().any(|part| part.class != neighbours[0].class) {
            hits.extend(within(rules, memory, neighbours, work));
        }
    }
    hits
}

fn within(rules: &Rules, memory: &mut ScanMemory, parts: &[Part], work: &mut u64) -> Vec<Hit> {
    let mut text = String::new();
    let mut starts = Vec::with_capacity(parts.len());
    for part in parts {
        if !starts.is_empty() {
            text.push(char::from(SEAM));
        }
        starts.push(text.len());
        text.push_str(&part.words);
    }
    let mut words = Vec::new();
    let mut place = 1;
    for (part, start) in parts.iter().zip(&starts) {
        let read = read_lengths(part.words.as_bytes());
        for hit in &part.heard {
            let from = place + read[hit.start];
            let (to, start, end) = (from + hit.to - hit.from, start + hit.start, start + hit.end);
            words.push(WordMatch { start, end, from, to, ..*hit });
        }
        place += read[part.words.len()] + 1;
    }
    let mut run = rules.machine.begin(&text, false, memory);
    let mut fires = Vec::new();
    run.take_all(&words, |fire| keep(rules, &mut fires, 0, fire));
    *work += run.work + text.len() as u64;
    let index = |at: usize| starts.partition_point(|start| *start <= at).max(1) - 1;
    let crosses = |fire: &SequenceMatch| {
        let (first, last) = (index(fire.start), index(fire.end.max(1) - 1));
        parts[first..=last.max(first)].iter().any(|part| part.class != parts[first].class)
    };
    fires.retain(|fire| rules.is_condition(fire.rule) || crosses(fire));
    rules.prove(&mut fires, &text, false);
    without_mentions(rules, &text, FieldClass::Any, &mut fires);
    // Who says which half is open: what counts is what each of them may not say.
    let weight = |rule: u16, certain: bool| {
        let each =
            CLASSES.into_iter().map(|class| rules.weights(Tier::Refuse, class)(rule, certain));
        each.fold(1.0, f32::min)
    };
    let complete = enough(rules, &mut fires, (Tier::Refuse, &weight), ACROSS);
    let hit = |fire: SequenceMatch| {
        let at = index(fire.start);
        let (part, start) = (&parts[at], fire.start - starts[at]);
        let end = (fire.end - starts[at]).clamp(start, part.words.len());
        let (start, end) = (start + part.offset, end + part.offset);
        Hit { text: part.text, start, end, rule: usize::from(fire.rule), tier: Tier::Refuse }
    };
    complete.into_iter().map(hit).collect()
}

/// How long a text is to each of its bytes as it is read, where a run of borders is one.
fn read_lengths(text: &[u8]) -> Vec<u32> {
    let mut length = 0;
    let mut border = false;
    let mut lengths = Vec::with_capacity(text.len() + 1);
    for byte in text {
        lengths.push(length);
        let letter = is_letter(*byte);
        length += u32::from(letter || !border);
        border = !letter;
    }
    lengths.push(length);
    lengths
}
