//! All readings of one text, and the rules that fire in them: the text folded, closed up, unescaped,
//! decoded, shifted back and turned around, and what that brought to light again, to a bounded depth.

use std::ops::Range;

use super::disguise::{self, Unescaped};
use super::lexicon::{LexiconMatch, WordMatch};
use super::normalize::{self, View};
use super::reading::Reading;
use super::rules::{FieldClass, Rules};
use super::sequence::{ScanMemory, SequenceMatch};
use super::structure::{Form, forms};
use handoffd_domain::unseen;

/// Layers of encoding that are undone.
const DEPTH: usize = 4;

/// The least weight of a rule that counts where words have no borders.
const TELLING: f32 = 0.6;

/// Words before a stretch of a text that tell how its first ones are meant.
const LEAD: u32 = 16;

/// The cost of a view of any length, in bytes read.
const A_VIEW: u64 = 64;

/// Of each text, so many times its length is turned back or around at most.
const TURNED: usize = 4;

/// The result of reading one text.
#[derive(Debug, Default)]
pub(super) struct ViewScan {
    /// Rules that fired, with their offsets in the text.
    pub fires: Vec<SequenceMatch>,
    /// The lexicon's words in the text as it came, outside of the stretch that was named.
    pub heard: Vec<WordMatch>,
    /// Bytes read and steps tried.
    pub work: u64,
}

/// The place that a rule matched, in the words of the view that it was found in.
#[derive(Debug, Clone)]
pub(super) struct Witness {
    pub rule: u16,
    /// Its place in the text.
    pub start: usize,
    pub certain: bool,
    pub words: String,
    /// The text behind it there.
    pub after: String,
}

/// Most characters of a match, and of the text behind it.
const SHOWN: (usize, usize) = (300, 120);

impl Witness {
    fn new(fire: &SequenceMatch, text: &str, start: usize) -> Self {
        let from = text.floor_char_boundary(fire.start.min(text.len()));
        let to = text.ceil_char_boundary(fire.end.clamp(from, text.len()));
        Self {
            rule: fire.rule,
            start,
            certain: fire.certain,
            words: shown(&text[from..to], SHOWN.0),
            after: shown(&text[to..], SHOWN.1),
        }
    }
}

/// The beginning of a text on one line, without what is not seen.
pub(super) fn shown(text: &str, most: usize) -> String {
    let each = unseen::each(text).take(most);
    let plain = each.map(|(one, hidden)| if hidden || one.is_control() { ' ' } else { one });
    plain.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Reads a text in all its views once more, and tells what each rule matched in words.
pub(super) fn witnesses(rules: &Rules, text: &str) -> Vec<Witness> {
    let (memory, seen) = (&mut ScanMemory::default(), ViewScan::default());
    let witnesses = Some(Vec::new());
    let mut looker = ViewScanner { rules, memory, unheard: 0..0, turned: None, seen, witnesses };
    looker.view(text, 0, false, &|offset| offset);
    looker.witnesses.unwrap_or_default()
}

/// Reads a text in all its views. The words in `unheard` are not kept.
pub(super) fn look(
    rules: &Rules,
    text: &str,
    memory: &mut ScanMemory,
    unheard: Range<usize>,
) -> ViewScan {
    let seen = ViewScan::default();
    let mut looker = ViewScanner { rules, memory, unheard, turned: None, seen, witnesses: None };
    looker.forms(text, &|offset| offset);
    looker.view(text, 0, false, &|offset| offset);
    looker.seen
}

struct ViewScanner<'a> {
    rules: &'a Rules,
    memory: &'a mut ScanMemory,
    unheard: Range<usize>,
    /// How the text at hand was turned from the one above it, where it was.
    turned: Option<Option<u8>>,
    seen: ViewScan,
    /// The matches in words, where that is asked for.
    witnesses: Option<Vec<Witness>>,
}

/// The origin of a pass's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PassKind {
    /// As it came: what only marks a text counts here alone.
    Plain,
    /// Changed, or read from what was.
    Changed,
    /// It had to be decoded first.
    Hidden,
}

/// A word that tells of a shifted alphabet (or, with none, of text written backwards).
type TurnedWord = (Option<u8>, usize);

impl ViewScanner<'_> {
    /// `hidden`: it had to be decoded first.
    fn view(&mut self, text: &str, depth: usize, hidden: bool, original: &dyn Fn(usize) -> usize) {
        let folded = normalize::fold(text);
        if folded.is_some() && depth < DEPTH {
            for view in disguise::selected(text) {
                let back = |offset: usize| original(view.original(offset));
                self.hidden(&view, depth, &back);
            }
        }
        if let Some(view) = folded.as_ref().and_then(|_| normalize::fold_without_tags(text)) {
            let of_text = |offset: usize| original(view.original(offset));
            let mut reading = self.reading(&view.text);
            let since = self.seen.fires.len();
            let pass = if hidden { PassKind::Hidden } else { PassKind::Changed };
            self.words(&view.text, &mut reading, pass, &of_text);
            self.closed_up_runs(&view.text, &reading, since, &of_text);
            self.memory.readings.push(reading);
        }
        let of_text =
            |offset: usize| original(folded.as_ref().map_or(offset, |view| view.original(offset)));
        let text = folded.as_ref().map_or(text, |view| view.text.as_str());
        if folded.is_some() {
            self.forms(text, &of_text);
        }
        let mut reading = self.reading(text);
        let pass = match (hidden, depth) {
            (true, _) => PassKind::Hidden,
            (false, 0) => PassKind::Plain,
            (false, _) => PassKind::Changed,
        };
        let since = self.seen.fires.len();
        let turns = self.words(text, &mut reading, pass, &of_text);
        self.closed_up_runs(text, &reading, since, &of_text);
        if depth < DEPTH {
            self.decoded(text, &mut reading, (depth, hidden), &turns, &of_text);
        }
        self.memory.readings.push(reading);
    }

    /// The texts that are spaced out or broken over lines. The fires from `since` on are of the text as it is.
    fn closed_up_runs(
        &mut self,
        text: &str,
        reading: &Reading,
        since: usize,
        original: &dyn Fn(usize) -> usize,
    ) {
        let runs = disguise::closed_up(text, reading);
        let mut known = Vec::new();
        if !runs.signs.is_empty() {
            known.extend(self.seen.fires[since..].iter().map(|fire| fire.rule));
            known.sort_unstable();
        }
        for run in &runs.signs {
            let back = |offset| original(run.original(offset));
            let before = self.seen.fires.len();
            self.forms(&run.text, &back);
            let mut reading = self.reading(&run.text);
            self.words(&run.text, &mut reading, PassKind::Changed, &back);
            // The lines do not conceal an attack that the text shows as it is.
            let new = |fire: &&SequenceMatch| known.binary_search(&fire.rule).is_err();
            if let Some(first) = self.seen.fires[before..].iter().find(new).copied() {
                self.concealed(first.start);
            }
            self.closed_up(&run.text, &reading, |_| true, &back);
            self.memory.readings.push(reading);
            self.seen.work += A_VIEW;
        }
        for run in &runs.lines {
            let back = |offset| original(run.original(offset));
            let rules = self.rules;
            let reading = self.reading(&run.text);
            let broken = |fire: &SequenceMatch| is_broken(rules, text, run, fire);
            self.closed_up(&run.text, &reading, broken, &back);
            self.memory.readings.push(reading);
            self.seen.work += A_VIEW;
        }
        for run in &runs.letters {
            let back = |offset| original(run.original(offset));
            let mut reading = self.reading(&run.text);
            if run.text.contains(' ') {
                self.words(&run.text, &mut reading, PassKind::Hidden, &back);
            }
            self.closed_up(&run.text, &reading, |_| true, &back);
            self.memory.readings.push(reading);
            self.seen.work += A_VIEW;
        }
    }

    /// A view of a text that was looked at: only as far around its changes as a rule can reach. Whatever
    /// else is in it was seen. `reading` is the view, read.
    fn changed(
        &mut self,
        text: &str,
        changes: &[usize],
        reading: &mut Reading,
        original: &dyn Fn(usize) -> usize,
    ) {
        let rules = self.rules;
        let reach = rules.machine.reach;
        let before = self.seen.fires.len();
        let mut changes = changes.iter().copied().peekable();
        while let Some(first) = changes.next() {
            let mut last = first;
            let mut end = reading.words_on(last, reach);
            while let Some(next) = changes.next_if(|next| *next <= end) {
                last = next;
                // Not anew for each of a crowd.
                if changes.peek().is_none_or(|then| *then > end) {
                    end = reading.words_on(last, reach);
                }
            }
            let start = reading.words_back(first, reach);
            let stretch = reading.words_back(start, LEAD)..end;
            let mut words = self.memory.free_words();
            rules.lexicon.read(text, reading, stretch.clone(), |found| {
                if let LexiconMatch::Word(hit) = found {
                    words.push(hit);
                }
            });
            self.seen.work += stretch.len() as u64;
            if !words.is_empty() {
                let mut run = rules.machine.begin(text, false, self.memory);
                let fires = &mut self.seen.fires;
                run.take_all(&words, |fire| {
                    if fire.start >= start {
                        keep(rules, fires, before, fire);
                    }
                });
                self.seen.work += run.work;
            }
            self.memory.keep_words(words);
        }
        self.placed(before, (text, false), PassKind::Changed, original);
        self.closed_up_runs(text, reading, before, original);
    }

    /// The texts that the text hides, one layer deeper. `reading` is that text, read, and is lost.
    fn decoded(
        &mut self,
        text: &str,
        reading: &mut Reading,
        (depth, hidden): (usize, bool),
        turns: &[TurnedWord],
        of_text: &dyn Fn(usize) -> usize,
    ) {
        self.turn(text, turns, depth, of_text);
        let unescaped = disguise::unescaped(text);
        if let Some(Unescaped { view, changes, plain }) = &unescaped {
            let back = |offset: usize| of_text(view.original(offset));
            self.forms(&view.text, &back);
            reading.read(&view.text);
            // Folding twice changes nothing: only pieces that were put in may have to be folded.
            if *plain && !hidden {
                self.changed(&view.text, changes, reading, &back);
            } else {
                self.view(&view.text, DEPTH, hidden, &back);
            }
        }
        let (plain, back): (&str, &dyn Fn(usize) -> usize) = match &unescaped {
            Some(Unescaped { view, .. }) => (&view.text, &|offset| of_text(view.original(offset))),
            None => (text, of_text),
        };
        self.joined(plain, reading, back);
        for view in disguise::encoded(plain, reading) {
            let back = |offset: usize| back(view.original(offset));
            self.hidden(&view, depth, &back);
        }
    }

    /// Text that had to be decoded, one layer deeper.
    fn hidden(&mut self, view: &View, depth: usize, original: &dyn Fn(usize) -> usize) {
        self.forms(&view.text, original);
        let turned = self.turned.take();
        self.view(&view.text, depth + 1, true, original);
        self.turned = turned;
    }

    /// Words that are written as one. They may be a name in code, so they are never certain, and only what says much by itself
    /// counts, within one of them.
    fn joined(&mut self, text: &str, reading: &Reading, original: &dyn Fn(usize) -> usize) {
        let Some(view) = disguise::joined(text, reading) else { return };
        let back = |offset: usize| original(view.original(offset));
        let mut start = 0;
        let names = view.text.lines().map(|name| {
            let from = start;
            start += name.len() + 1;
            back(from)..back(from + name.len() - 1) + 1
        });
        let names: Vec<Range<usize>> = names.collect();
        let before = self.seen.fires.len();
        let mut reading = self.reading(&view.text);
        self.words(&view.text, &mut reading, PassKind::Changed, &back);
        self.memory.readings.push(reading);
        let all = self.rules.all();
        let joined = self.seen.fires.split_off(before);
        self.seen.fires.extend(joined.into_iter().filter_map(|fire| {
            let next = names.partition_point(|name| name.start <= fire.start);
            let one = next > 0 && fire.end <= names[next - 1].end;
            let telling = all[usize::from(fire.rule)].weight(FieldClass::Any) >= TELLING;
            (one && telling).then_some(SequenceMatch { certain: false, ..fire })
        }));
        self.seen.work += A_VIEW;
    }

    fn turn(
        &mut self,
        text: &str,
        turns: &[TurnedWord],
        depth: usize,
        original: &dyn Fn(usize) -> usize,
    ) {
        let mut budget = TURNED * text.len() + 2_000;
        let mut covered: Vec<(Option<u8>, usize)> = Vec::new();
        for (shift, at) in turns {
            // A text turned twice is what it was: nothing of it was concealed.
            if self.turned.is_some_and(|turned| disguise::undoes(*shift, turned)) {
                continue;
            }
            if covered.iter().any(|(known, until)| known == shift && at <= until) {
                continue;
            }
            let views = match shift {
                Some(shift) => vec![disguise::shifted_back(text, *at, *shift)],
                None => vec![disguise::reversed(text, *at), disguise::words_reversed(text, *at)],
            };
            covered.retain(|(known, _)| known != shift);
            covered.push((*shift, at + disguise::AROUND.1 / 2));
            for view in views {
                let Some(left) = budget.checked_sub(view.text.len()) else { return };
                budget = left;
                let back = |offset: usize| original(view.original(offset));
                self.forms(&view.text, &back);
                let turned = self.turned.replace(*shift);
                self.view(&view.text, (depth + 1).max(DEPTH - 1), true, &back);
                self.turned = turned;
            }
        }
    }

    fn reading(&mut self, text: &str) -> Reading {
        let mut reading = self.memory.readings.pop().unwrap_or_default();
        reading.read(text);
        reading
    }

    /// One pass over the words; gives those that tell of a turned text.
    fn words(
        &mut self,
        text: &str,
        reading: &mut Reading,
        pass: PassKind,
        original: &dyn Fn(usize) -> usize,
    ) -> Vec<TurnedWord> {
        let mut turns = Vec::new();
        let rules = self.rules;
        let mut words = self.memory.free_words();
        rules.lexicon.read(text, reading, 0..text.len(), |found| match found {
            LexiconMatch::Word(hit) => words.push(hit),
            LexiconMatch::Shifted(shift, at) => turns.push((Some(shift), at)),
            LexiconMatch::Backwards(at) => turns.push((None, at)),
        });
        if pass == PassKind::Plain {
            self.hear(&words, original);
        }
        self.seen.work += text.len() as u64;
        if !words.is_empty() {
            let mut run = rules.machine.begin(text, false, self.memory);
            let fires = &mut self.seen.fires;
            let before = fires.len();
            run.take_all(&words, |fire| keep(rules, fires, before, fire));
            self.seen.work += run.work;
            self.placed(before, (text, false), pass, original);
        }
        self.memory.keep_words(words);
        turns
    }

    /// Keeps the words of a text as it came, but for those that stand where nothing is to be heard.
    fn hear(&mut self, words: &[WordMatch], original: &dyn Fn(usize) -> usize) {
        let heard = |hit: &WordMatch| {
            let (start, end) = (original(hit.start), original(hit.end - 1) + 1);
            WordMatch { start, end, ..*hit }
        };
        // Words come in the order of their ends, so that those between the first and the last need no look.
        let Range { start, end } = self.unheard;
        let first = words.iter().map(heard).take_while(|hit| hit.end <= start);
        self.seen.heard.extend(first);
        let rest = &words[self.seen.heard.len()..];
        let last = rest.iter().rev().map(heard).take_while(|hit| hit.end > end);
        let mut last: Vec<WordMatch> = last.filter(|hit| hit.start >= end).collect();
        last.reverse();
        self.seen.heard.append(&mut last);
    }

    /// One pass over a text whose spaces say nothing. `counts` says of a match whether it counts.
    fn closed_up(
        &mut self,
        text: &str,
        reading: &Reading,
        counts: impl Fn(&SequenceMatch) -> bool,
        original: &dyn Fn(usize) -> usize,
    ) {
        let rules = self.rules;
        let mut words = self.memory.free_words();
        rules.lexicon.read_closed_up(text, reading, |hit| words.push(hit));
        let mut run = rules.machine.begin(text, true, self.memory);
        let fires = &mut self.seen.fires;
        let before = fires.len();
        run.take_all(&words, |fire| keep(rules, fires, before, fire));
        self.seen.work += text.len() as u64 + run.work;
        self.memory.keep_words(words);
        // Without borders, words turn up by chance: only what says much by itself counts.
        let all = rules.all();
        let mut kept = before;
        for at in before..fires.len() {
            let telling = all[usize::from(fires[at].rule)].weight(FieldClass::Any) >= TELLING;
            if telling && counts(&fires[at]) {
                fires.swap(kept, at);
                kept += 1;
            }
        }
        fires.truncate(kept);
        self.placed(before, (text, true), PassKind::Hidden, original);
    }

    /// Gives the fires of one pass over a text (closed up or not), those from `before` on, their places in the original.
    fn placed(
        &mut self,
        before: usize,
        (text, closed_up): (&str, bool),
        pass: PassKind,
        original: &dyn Fn(usize) -> usize,
    ) {
        let (rules, fires) = (self.rules, &mut self.seen.fires);
        rules.prove(&mut fires[before..], text, closed_up);
        if let Some(witnesses) = &mut self.witnesses {
            let tell = |fire: &SequenceMatch| Witness::new(fire, text, original(fire.start));
            witnesses.extend(fires[before..].iter().map(tell));
        }
        let mut kept = before;
        for at in before..fires.len() {
            if pass == PassKind::Plain || !rules.is_condition(fires[at].rule) {
                fires.swap(kept, at);
                let SequenceMatch { start, end, .. } = fires[kept];
                fires[kept].start = original(start);
                fires[kept].end = original(end.max(1) - 1) + usize::from(end > 0);
                kept += 1;
            }
        }
        fires.truncate(kept);
        // A rule that marks a text by itself also fires in cipher text by chance.
        let refuses = |fire: &&SequenceMatch| {
            rules.all()[usize::from(fire.rule)].weight(FieldClass::Any) > 0.0
        };
        if pass == PassKind::Hidden
            && let Some(first) = fires[before..].iter().find(refuses).copied()
        {
            self.concealed(first.start);
        }
    }

    fn concealed(&mut self, start: usize) {
        for rule in self.rules.of_form(Form::Concealed) {
            self.seen.fires.push(SequenceMatch {
                rule: rule as u16,
                start,
                end: start,
                certain: true,
            });
        }
    }

    fn forms(&mut self, text: &str, original: &dyn Fn(usize) -> usize) {
        let (rules, fires) = (self.rules, &mut self.seen.fires);
        forms(text, |form, at| {
            for rule in rules.of_form(form) {
                let start = original(at);
                fires.push(SequenceMatch { rule: rule as u16, start, end: start, certain: true });
            }
        });
        self.seen.work += text.len() as u64;
    }
}

/// Whether a match in lines of a text that were put together has a word that the lines break. Columns, lists and poems have short
/// lines as well, of whole words: what these say is read in the text as it is.
fn is_broken(rules: &Rules, text: &str, lines: &View, fire: &SequenceMatch) -> bool {
    let (start, end) = (lines.original(fire.start), lines.original(fire.end.max(1) - 1) + 1);
    let (Some(before), Some(behind)) = (text.get(..start), text.get(end..)) else { return false };
    let start = before.rfind(char::is_whitespace).map_or(0, |at| text.ceil_char_boundary(at + 1));
    let end = end + behind.find(char::is_whitespace).unwrap_or(behind.len());
    let mut pieces = text[start..end].split('\n').map(str::trim).filter(|line| !line.is_empty());
    let Some(mut above) = pieces.next() else { return false };
    pieces.any(|below| {
        let (first, next) = (above.trim_end_matches('-'), below);
        above = below;
        let last = first.rsplit(char::is_whitespace).next().unwrap_or_default();
        // A token such as `<end_of_turn>` has signs.
        let broken_token = last.starts_with('<') && !last.contains('>');
        let border = |one: char| !one.is_alphanumeric();
        let pair = first.rsplit(border).next().zip(next.split(border).next());
        broken_token || pair.is_some_and(|(first, next)| is_one_word(rules, first, next))
    })
}

/// Whether two pieces are a word of the lexicon together, and no entry of two words.
fn is_one_word(rules: &Rules, first: &str, next: &str) -> bool {
    let reaches = |text: &str| {
        let mut reading = Reading::default();
        reading.read(text);
        let mut reaches = false;
        rules.lexicon.read(text, &mut reading, 0..text.len(), |found| {
            let over = |word: WordMatch| word.start == 0 && word.end > first.len();
            reaches |= matches!(found, LexiconMatch::Word(word) if over(word));
        });
        reaches
    };
    let pieces = !first.is_empty() && !next.is_empty();
    pieces && reaches(&format!("{first}{next}")) && !reaches(&format!("{first} {next}"))
}

/// Keeps a fire of the pass that began at `before`, unless one of its rule covers its beginning: a separate one may
/// count if the other is a mention. A condition reaches to the end of all overlapping fires: a sentence that goes on to
/// a second verb covers that verb as well.
pub(super) fn keep(
    rules: &Rules,
    fires: &mut Vec<SequenceMatch>,
    before: usize,
    fire: SequenceMatch,
) {
    let within = |known: &&mut SequenceMatch| {
        known.rule == fire.rule && (known.start..known.end).contains(&fire.start)
    };
    match fires[before..].iter_mut().rev().take(16).find(within) {
        Some(known) if rules.is_condition(fire.rule) => known.end = known.end.max(fire.end),
        Some(_) => {}
        None => fires.push(fire),
    }
}
