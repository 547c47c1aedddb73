//! Which steps are possible where: a sequence fires only where words of all its slots stand within its reach, so that the word
//! of its rarest slot tells of it. Most sequences are ruled out by that word alone, before the machine tries a step.
//!
//! The reading is cut into blocks. A sequence whose reach is a block at most lies within two neighbours; a word passes its
//! steps by where none of the block, the one before and the one behind has a word of its rarest slot. A sequence that reaches
//! further is possible in all of a text, or in none of it. The findings are the same as without it.

use super::super::lexicon::WordMatch;
use super::{ConceptSet, SequenceMachine, StepSet, concepts, summary, word_and_bit};

/// Size of a block, as a power of two, in bytes of the reading.
const BLOCK: u32 = 8;

/// Longest word of the lexicon in a text that is cut into blocks, in bytes of the reading.
const WORD: u32 = 40;

/// By how much words may stand out of the order of their ends, on both sides of a sequence.
const DISORDER: u32 = 2 * WORD;

/// The steps that a word of each sense makes possible: nearby, and in all of the text.
#[derive(Debug, Default)]
pub(super) struct Telling {
    senses: Vec<TellingSense>,
    /// Words of bits for all steps.
    width: usize,
}

#[derive(Debug, Default)]
struct TellingSense {
    near: StepSet,
    anywhere: StepSet,
}

/// One sequence: the concepts of its slots, its gaps in all, and its steps.
pub(super) struct SlottedSequence {
    pub slots: Vec<ConceptSet>,
    pub gaps: u32,
    pub steps: Vec<usize>,
}

impl SlottedSequence {
    /// The slot whose words are the rarest; `common` is how often words of each concept are met.
    fn rarest(&self, common: &[u32]) -> Option<&ConceptSet> {
        let often =
            |slot: &&ConceptSet| concepts(slot).map(|concept| u64::from(common[concept])).sum();
        self.slots.iter().min_by_key::<u64, _>(often)
    }

    /// Whether it lies within two neighbouring blocks, and with it each word between its words.
    fn is_near(&self) -> bool {
        self.gaps + WORD * self.slots.len() as u32 + DISORDER <= 1 << BLOCK
    }
}

impl Telling {
    /// `senses` are the lexicon's; `steps` is the number of all steps.
    pub(super) fn new(
        sequences: &[SlottedSequence],
        senses: &[ConceptSet],
        common: &[u32],
        steps: usize,
    ) -> Self {
        let width = word_and_bit(steps).0 + 1;
        let mut by_concept = vec![[vec![0_u64; width], vec![0; width]]; common.len()];
        for sequence in sequences {
            let far = usize::from(!sequence.is_near());
            for concept in sequence.rarest(common).into_iter().flat_map(concepts) {
                for step in &sequence.steps {
                    let (word, bit) = word_and_bit(*step);
                    by_concept[concept][far][word] |= bit;
                }
            }
        }
        let of = |sense: &ConceptSet, far: usize| {
            let mut row = vec![0; width];
            for concept in concepts(sense) {
                row.iter_mut().zip(&by_concept[concept][far]).for_each(|(all, own)| *all |= own);
            }
            let filled = row.into_iter().enumerate().filter(|(_, bits)| *bits != 0);
            StepSet(filled.collect())
        };
        let senses = senses
            .iter()
            .map(|sense| TellingSense { near: of(sense, 0), anywhere: of(sense, 1) })
            .collect();
        Self { senses, width }
    }
}

/// The steps that are possible in each block of one text. Kept from text to text for its memory.
#[derive(Debug, Default)]
pub(super) struct PossibleSteps {
    /// Bits of steps, a row a block, and whether it has any.
    rows: Vec<u64>,
    filled: Vec<bool>,
    /// Those of sequences that reach far.
    anywhere: Vec<u64>,
    /// The row of the block that was asked for last, and that block.
    around: Vec<u64>,
    last: Option<usize>,
    /// Which words of that row are not 0.
    words: u64,
    width: usize,
    /// Whether everything is possible: a word is too long.
    all: bool,
    /// Whether nothing is ruled out, so that a test can compare.
    #[cfg(test)]
    pub(super) compare: bool,
}

/// Steps that a word may begin or continue.
pub(super) enum Possible<'a> {
    All,
    Some(&'a [u64]),
    Nothing,
}

impl PossibleSteps {
    /// Looks at all words of a text.
    pub(super) fn look(&mut self, machine: &SequenceMachine, words: &[WordMatch]) {
        let telling = &machine.telling;
        self.width = telling.width;
        self.last = None;
        self.all = words.iter().any(|word| word.to.saturating_sub(word.from) > WORD);
        #[cfg(test)]
        (self.all |= self.compare);
        if self.all {
            return;
        }
        let last = words.iter().map(|word| word.from).max().unwrap_or(0);
        let blocks = (last >> BLOCK) as usize + 1;
        for (bits, length) in [
            (&mut self.rows, blocks * self.width),
            (&mut self.anywhere, self.width),
            (&mut self.around, self.width),
        ] {
            bits.clear();
            bits.resize(length, 0);
        }
        self.filled.clear();
        self.filled.resize(blocks, false);
        for word in words {
            let TellingSense { near, anywhere } = &telling.senses[usize::from(word.sense)];
            if !near.0.is_empty() {
                let block = (word.from >> BLOCK) as usize;
                self.filled[block] = true;
                near.add_to(&mut self.rows[block * self.width..][..self.width]);
            }
            if !anywhere.0.is_empty() {
                anywhere.add_to(&mut self.anywhere);
            }
        }
    }

    /// The steps that are possible around a word, a bit a step, where there are any in some of those `words` of bits.
    #[inline]
    pub(super) fn around(&mut self, word: &WordMatch, words: u64) -> Possible<'_> {
        if self.all {
            return Possible::All;
        }
        let block = (word.from >> BLOCK) as usize;
        if self.last != Some(block) {
            self.gather(block);
        }
        if self.words & words == 0 { Possible::Nothing } else { Possible::Some(&self.around) }
    }

    /// Puts together what is possible around a block.
    fn gather(&mut self, block: usize) {
        self.last = Some(block);
        self.around.copy_from_slice(&self.anywhere);
        let near = block.saturating_sub(1)..(block + 2).min(self.filled.len());
        for row in near.filter(|row| self.filled[*row]) {
            let row = &self.rows[row * self.width..][..self.width];
            self.around.iter_mut().zip(row).for_each(|(all, own)| *all |= own);
        }
        let filled = self.around.iter().enumerate().filter(|(_, bits)| **bits != 0);
        self.words = filled.fold(0, |words, (word, _)| words | summary(word));
    }
}
