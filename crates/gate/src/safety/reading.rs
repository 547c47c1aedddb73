//! A text as the scan reads it, made once and shared by what looks for words, for letters that stand
//! alone and for encoded segments.
//!
//! Every byte goes through a table: letters in lower case, digits as the letters they pass for
//! (`1gn0r3`), everything else as a border. Beside that copy stand two maps with a bit a byte, in which
//! the ends of a word or of a segment are found 64 bytes at a time and not one by one.

use super::disguise::MIN_ENCODED;

mod byte_map;

use byte_map::ByteMap;

/// Most bytes that are not part of a word are read as a space. These have a meaning of their own
/// near certain others: a backslash, a hyphen, and other digits of an encoding. The last two differ
/// in one bit.
const BACKSLASH: u8 = 0;
const HYPHEN: u8 = 1;
const JOINT: u8 = 3;

/// Places in one word of a map.
const BLOCK: usize = u64::BITS as usize;

/// The lowest bit of each of eight bytes, their highest, and all but that.
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;
const LOW: u64 = !HIGH;

/// Eight joints, and the bit that makes one of a hyphen.
const JOINTS: u64 = ONES * JOINT as u64;
const BIT: u64 = ONES * (HYPHEN ^ JOINT) as u64;

/// Added to a byte under 128, this sets its highest bit if it is more than a space.
const SPACES: u64 = ONES * (127 - b' ' as u64);

/// Times this, the lowest bits of eight bytes come to stand side by side in the highest byte.
const GATHER: u64 = 0x0102_0408_1020_4080;

/// Spreads a number over the high bits (2^64 divided by the golden ratio).
pub(super) const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// By how many more than eight bytes there are: all of those, lowest first.
const BELOW: [u64; 17] = {
    let mut masks = [0; 17];
    let mut bytes = 1;
    while bytes <= 8 {
        masks[8 + bytes] = !0 >> (64 - 8 * bytes);
        bytes += 1;
    }
    masks
};

/// How a byte is read.
pub(super) const READ: [u8; 256] = {
    let mut table = [b' '; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            letter @ (b'a'..=b'z' | 0x80..) => letter,
            letter @ b'A'..=b'Z' => letter.to_ascii_lowercase(),
            b'0' => b'o',
            b'1' => b'i',
            b'3' => b'e',
            b'4' | b'@' => b'a',
            b'5' | b'$' => b's',
            b'7' => b't',
            digit @ b'0'..=b'9' => digit,
            b'\\' => BACKSLASH,
            b'-' => HYPHEN,
            b'+' | b'/' | b'_' => JOINT,
            _ => b' ',
        };
        byte += 1;
    }
    table
};

/// Whether a byte is part of a word.
pub(super) const fn is_letter(byte: u8) -> bool {
    READ[byte as usize] > b' '
}

/// A text, read. Kept from text to text for its memory.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The text through [`READ`], then borders, at least a [`BLOCK`] of them, then words that are broken over lines, put together.
    bytes: Vec<u8>,
    /// Parts of words.
    letters: ByteMap,
    /// Digits of encodings. Letters and digits of ASCII are both, and nothing else is.
    encoded: ByteMap,
    /// Places of `@` and `$`.
    signs: Vec<usize>,
    length: usize,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReadingWord {
    /// See [`hash`] and [`head`].
    pub hash: u64,
    pub head: u32,
    /// How many letters it has, and where they stand among the reading's bytes.
    pub length: u32,
    letters: usize,
    /// First byte in the text, and the one behind the last.
    pub start: usize,
    pub end: usize,
}

impl ReadingWord {
    /// The empty word before the first word from `at` on.
    pub(super) fn none(at: usize) -> Self {
        Self { end: at, ..Self::default() }
    }

    /// Its hash and its head.
    #[inline]
    pub(super) const fn key(&self) -> (u64, u32) {
        (self.hash, self.head)
    }
}

/// A word's hash: of up to eight letters the letters themselves, little end first.
pub(super) fn hash(word: &[u8]) -> u64 {
    word.chunks(8).rev().fold(0, |later, chunk| {
        let mut eight = [0; 8];
        eight[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(eight) ^ mixed(later)
    })
}

/// A word's first four letters, little end first.
pub(super) fn head(word: &[u8]) -> u32 {
    let mut four = [0; 4];
    let length = word.len().min(4);
    four[..length].copy_from_slice(&word[..length]);
    u32::from_le_bytes(four)
}

/// Nothing stays nothing.
const fn mixed(hash: u64) -> u64 {
    hash.wrapping_mul(SPREAD).rotate_left(32)
}

impl Reading {
    /// Reads a text; its reading replaces the previous one.
    pub(super) fn read(&mut self, text: &str) {
        let text = text.as_bytes();
        self.length = text.len();
        self.bytes.clear();
        self.letters.begin(text.len());
        self.encoded.begin(text.len());
        self.bytes.extend(text.iter().map(|byte| READ[usize::from(*byte)]));
        self.bytes.resize(text.len().next_multiple_of(BLOCK) + BLOCK, b' ');
        for block in self.bytes.as_chunks::<BLOCK>().0 {
            let (mut letters, mut encoded) = (0, 0);
            for (index, eight) in block.as_chunks::<8>().0.iter().enumerate() {
                let eight = u64::from_le_bytes(*eight);
                let letter = (((eight & LOW) + SPACES) | eight) & HIGH;
                let joint = filled((eight | BIT) ^ JOINTS) ^ HIGH;
                letters |= gathered(letter) << (8 * index);
                encoded |= gathered((letter & !eight) | joint) << (8 * index);
            }
            self.letters.0.push(letters);
            self.encoded.0.push(encoded);
        }
        // Read as letters, and in no alphabet of an encoding.
        self.signs.clear();
        for at in memchr::memchr2_iter(b'@', b'$', text) {
            self.encoded.clear(at);
            self.signs.push(at);
        }
    }

    /// Places of `@` and `$` in the text, in order.
    pub(super) fn signs(&self) -> &[usize] {
        &self.signs
    }

    /// The bytes as read, in the order of the text.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The letters of one of its words, `most` at most.
    #[inline]
    pub(super) fn letters(&self, word: &ReadingWord, most: usize) -> &[u8] {
        &self.bytes[word.letters..word.letters + most.min(word.length as usize)]
    }

    /// The next word from `at` on. `text` is what was read.
    #[expect(clippy::inline_always, reason = "a call a word takes a quarter of the scan's time")]
    #[inline(always)]
    pub(super) fn word(&mut self, text: &[u8], at: usize) -> Option<ReadingWord> {
        let mut start = self.letters.next(at)?;
        // The letter of a line break that is written as an escape is none.
        while start > 0
            && self.bytes[start - 1] == BACKSLASH
            && matches!(text[start], b'n' | b'r' | b't')
        {
            start = self.letters.next(start + 1)?;
        }
        let mut end = self.letters.next_gap(start);
        let (mut letters, mut length) = (start, end - start);
        if self.bytes[end] == HYPHEN && text.get(end + 1) == Some(&b'\n') {
            (letters, end) = self.put_together(text, start, end);
            length = self.bytes.len() - letters;
        }
        let low = self.eight(letters) & BELOW[length.min(8) + 8];
        let hash = match BELOW.get(length) {
            Some(below) => low ^ mixed(self.eight(letters + 8) & below),
            None => hash(&self.bytes[letters..letters + length]),
        };
        Some(ReadingWord { hash, head: low as u32, length: length as u32, letters, start, end })
    }

    /// Eight bytes from `at` on; as many as there are of a word at the very end that was put together.
    #[inline]
    fn eight(&self, at: usize) -> u64 {
        match self.bytes[at.min(self.bytes.len())..].first_chunk() {
            Some(eight) => u64::from_le_bytes(*eight),
            None => self.last_bytes(at),
        }
    }

    #[cold]
    fn last_bytes(&self, at: usize) -> u64 {
        let bytes = self.bytes.get(at..).unwrap_or_default();
        bytes.iter().rev().fold(0, |eight, byte| eight << 8 | u64::from(*byte))
    }

    /// Puts a word together that goes on after a hyphen at the end of a line: where its letters are,
    /// and its end in the text.
    #[cold]
    fn put_together(&mut self, text: &[u8], start: usize, mut end: usize) -> (usize, usize) {
        let letters = self.bytes.len();
        self.bytes.extend_from_within(start..end);
        while text[end..].starts_with(b"-\n") {
            let from = end + 2;
            end = if from < self.length { self.letters.next_gap(from) } else { from };
            self.bytes.extend_from_within(from..end);
        }
        (letters, end)
    }

    /// The place at which so many words (at least one) before `at` begin, or some more.
    pub(super) fn words_back(&self, at: usize, count: u32) -> usize {
        let mut block = at / BLOCK;
        let mut starts = self.letters.starts(block) & !(!0 << (at % BLOCK));
        let mut words = starts.count_ones();
        while words < count && block > 0 {
            block -= 1;
            starts = self.letters.starts(block);
            words += starts.count_ones();
        }
        if words < count { 0 } else { block * BLOCK + starts.trailing_zeros() as usize }
    }

    /// A place with so many beginnings of words from `at` on before it, or some more, or the end.
    pub(super) fn words_on(&self, at: usize, count: u32) -> usize {
        let mut block = at / BLOCK;
        let mut words = (self.letters.starts(block) & (!0 << (at % BLOCK))).count_ones();
        while words < count && (block + 1) * BLOCK < self.length {
            block += 1;
            words += self.letters.starts(block).count_ones();
        }
        ((block + 1) * BLOCK).min(self.length)
    }

    /// The place from `at` on at which the first run of [`MIN_ENCODED`] digits of an encoding begins. No
    /// run is open at `at`.
    pub(super) fn encoded_from(&self, mut at: usize) -> Option<usize> {
        while at < self.length {
            let one = self.encoded.from(at);
            let two = one & one >> 1;
            let four = two & two >> 2;
            let eight = four & four >> 4;
            let all = eight & eight >> 8;
            if all != 0 {
                return Some(at + all.trailing_zeros() as usize);
            }
            at += BLOCK + 1 - MIN_ENCODED;
        }
        None
    }

    /// The end of the run of digits of an encoding that holds `at`.
    pub(super) fn encoded_until(&self, at: usize) -> usize {
        self.encoded.next_gap(at)
    }

    /// The first of the places from `at` on, eight bytes apart, where none of eight bytes is a letter or
    /// digit of ASCII beside another, and one is; what is skipped lies before it.
    pub(super) fn next_alone(&self, mut at: usize) -> usize {
        while at < self.length {
            let letters = self.letters.from(at) & self.encoded.from(at);
            let beside = letters & letters >> 1 & LOW;
            let alone = filled(letters) & !filled(beside);
            if alone != 0 {
                return at + (alone.trailing_zeros() as usize & !7);
            }
            at += BLOCK;
        }
        at
    }
}

/// The highest bit of each byte that is not 0.
const fn filled(bytes: u64) -> u64 {
    (((bytes & LOW) + LOW) | bytes) & HIGH
}

/// The highest bits of eight bytes, side by side.
const fn gathered(high: u64) -> u64 {
    (high >> 7).wrapping_mul(GATHER) >> 56
}

#[cfg(test)]
mod tests;
