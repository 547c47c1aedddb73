//! A finding of the safety scan.

/// One rule that fired on one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SafetyFinding {
    pub rule: String,
    pub family: String,
    /// JSON pointer of the text; for a key, of the member it names.
    pub pointer: String,
    /// The start of the match, in bytes from the start of the text (for encoded text: the start of the
    /// encoded segment).
    pub offset: usize,
    /// The byte behind the match; where only its place is known, that place.
    pub end: usize,
    /// At most 80 characters of the original text around the match, without control and unseen characters. For
    /// the dead letter; not for logs.
    pub excerpt: String,
}
