//! Which sequences are possible where: a sequence needs words of all its slots within its reach, so most of them are ruled out
//! by the words that stand there, before the machine tries a step.
//!
//! The reading is cut into blocks. A sequence whose reach is a block at most lies within two neighbours; it is possible in
//! them where each of its slots finds a word in one of the two. Sequences that reach further are judged by larger blocks, and
//! those that reach further still are always possible. A word passes a step by only where no sequence through that step is
//! possible around it, so what fires is the same.

use super::super::lexicon::WordMatch;
use super::{SequenceMachine, StepSet, word_and_bit};

/// Sizes of blocks, as powers of two, in bytes of the reading.
const SIZES: [u32; 2] = [8, 11];

/// Most slots of a sequence that is ruled out; longer ones are always possible.
const SLOTS: usize = 5;

/// Longest word of the lexicon in a text that is cut into blocks, in bytes of the reading.
const WORD: u32 = 40;

/// By how much words may stand out of the order of their ends, on both sides of a sequence.
const DISORDER: u32 = 2 * WORD;

/// Slots of sequences, and the steps that these are.
#[derive(Debug, Default)]
pub(super) struct SequenceSlots {
    /// For each sense and size, the slots that take a word of it: which word of a block's bits, and the bits.
    takes: Vec<[Vec<(u32, u64)>; SIZES.len()]>,
    /// For each size, the steps of each of its sequences.
    steps: [Vec<StepSet>; SIZES.len()],
    /// For each size and depth, the sequences that have no slot there.
    shorter: [Vec<u64>; SIZES.len()],
    /// Words of bits for the sequences of each size.
    width: [usize; SIZES.len()],
    /// Steps of the sequences that are always possible.
    always: Vec<u64>,
}

/// One sequence as it is sorted: the concepts of its slots, its reach, and its steps.
pub(super) struct SlottedSequence {
    pub slots: Vec<super::ConceptSet>,
    pub reach: u32,
    pub steps: StepSet,
}

impl SequenceSlots {
    /// `senses` are the lexicon's; `steps` is the number of all steps.
    pub(super) fn new(
        sequences: &[SlottedSequence],
        senses: &[super::ConceptSet],
        steps: usize,
    ) -> Self {
        let mut slots = Self {
            takes: vec![Default::default(); senses.len()],
            always: vec![0; word_and_bit(steps).0 + 1],
            ..Self::default()
        };
        for sequence in sequences {
            let reach = sequence.reach + WORD * sequence.slots.len() as u32 + DISORDER;
            match SIZES.iter().position(|size| reach <= 1 << size) {
                Some(size) if sequence.slots.len() <= SLOTS => {
                    slots.steps[size].push(sequence.steps.clone());
                }
                _ => sequence.steps.add_to(&mut slots.always),
            }
        }
        for size in 0..SIZES.len() {
            slots.width[size] = slots.steps[size].len().div_ceil(u64::BITS as usize);
            slots.shorter[size] = vec![!0; SLOTS * slots.width[size]];
        }
        let mut placed = [0; SIZES.len()];
        for sequence in sequences {
            let reach = sequence.reach + WORD * sequence.slots.len() as u32 + DISORDER;
            let Some(size) = SIZES.iter().position(|size| reach <= 1 << size) else { continue };
            if sequence.slots.len() > SLOTS {
                continue;
            }
            let (word, bit) = word_and_bit(placed[size]);
            placed[size] += 1;
            for (depth, concepts) in sequence.slots.iter().enumerate() {
                let at = depth * slots.width[size] + word;
                slots.shorter[size][at] &= !bit;
                for (takes, sense) in slots.takes.iter_mut().zip(senses) {
                    if sense.iter().zip(concepts).any(|(one, other)| one & other != 0) {
                        match takes[size].iter_mut().find(|(known, _)| *known == at as u32) {
                            Some((_, bits)) => *bits |= bit,
                            None => takes[size].push((at as u32, bit)),
                        }
                    }
                }
            }
        }
        slots
    }
}

/// The steps that are possible in each block of one text. Kept from text to text for its memory.
#[derive(Debug, Default)]
pub(super) struct PossibleSteps {
    /// Bits of slots, a row a block.
    slots: Vec<u64>,
    /// For each sense, the last block that has it.
    seen: Vec<u32>,
    /// Bits of steps, a row a block.
    steps: Vec<u64>,
    width: usize,
    /// Whether everything is possible: a word is too long.
    all: bool,
}

impl PossibleSteps {
    /// Looks at all words of a text.
    pub(super) fn look(&mut self, machine: &SequenceMachine, words: &[WordMatch]) {
        let slots = &machine.slots;
        self.width = slots.always.len();
        let last = words.iter().map(|word| word.from).max().unwrap_or(0);
        self.all = words.iter().any(|word| word.to.saturating_sub(word.from) > WORD);
        if self.all {
            return;
        }
        let blocks = (last >> SIZES[0]) as usize + 1;
        self.steps.clear();
        for _ in 0..blocks {
            self.steps.extend_from_slice(&slots.always);
        }
        for size in 0..SIZES.len() {
            self.of_size(slots, size, words, (last >> SIZES[size]) as usize + 1);
        }
    }

    fn of_size(&mut self, slots: &SequenceSlots, size: usize, words: &[WordMatch], blocks: usize) {
        let width = slots.width[size];
        let row = SLOTS * width;
        self.slots.clear();
        self.slots.resize(blocks * row, 0);
        self.seen.clear();
        self.seen.resize(slots.takes.len(), u32::MAX);
        for word in words {
            let block = word.from >> SIZES[size];
            let seen = &mut self.seen[usize::from(word.sense)];
            if *seen != block {
                *seen = block;
                let start = block as usize * row;
                for (at, bits) in &slots.takes[usize::from(word.sense)][size] {
                    self.slots[start + *at as usize] |= bits;
                }
            }
        }
        let ratio = 1 << (SIZES[size] - SIZES[0]);
        let none = vec![0; row];
        for block in 0..blocks {
            let here = &self.slots[block * row..(block + 1) * row];
            let next = self.slots.get((block + 1) * row..(block + 2) * row).unwrap_or(&none);
            for word in 0..width {
                let mut possible = !0;
                for at in (word..row).step_by(width.max(1)) {
                    possible &= here[at] | next[at] | slots.shorter[size][at];
                }
                while possible != 0 {
                    let sequence = word * u64::BITS as usize + possible.trailing_zeros() as usize;
                    possible &= possible - 1;
                    let Some(steps) = slots.steps[size].get(sequence) else { break };
                    let last = ((block + 2) * ratio * self.width).min(self.steps.len());
                    for row in self.steps[block * ratio * self.width..last].chunks_mut(self.width) {
                        steps.add_to(row);
                    }
                }
            }
        }
    }

    /// The steps that are possible around a word, a bit a step; `None` where all are.
    pub(super) fn around(&self, word: &WordMatch) -> Option<&[u64]> {
        let start = (word.from >> SIZES[0]) as usize * self.width;
        (!self.all).then(|| &self.steps[start..start + self.width])
    }
}
