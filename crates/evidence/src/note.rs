//! Signed notes, and the tree head as one: C2SP signed-note and tlog-checkpoint.
//!
//! A note is a text that ends in a newline, an empty line, and signature lines `— <name> <base64>`.
//! A signature's first four bytes name the key: the first of SHA-256 over `name`, a newline, the
//! algorithm's byte and the public key. A tree head's text is three lines: the log's origin, its size in
//! decimal, its root in base64. Keys are Ed25519 (algorithm byte 1); a log's key has the origin as its
//! name.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest, Sha256};

use super::merkle::Hash;

/// Ed25519's algorithm byte (C2SP signed-note).
const ED25519: u8 = 1;

/// The start of a signature line: an em dash and a space.
const SIGNATURE_PREFIX: &str = "\u{2014} ";

/// Prefix of a signature line: an em dash and a space.
const MAX_NOTE: usize = 64 * 1024;

/// Reasons to reject a note.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// The text is not in the form of a signed note.
    #[error("not a signed note: {0}")]
    Malformed(&'static str),
    /// The note has no signature by the key.
    #[error("the note carries no signature of key {0}")]
    Unsigned(String),
    /// The signature does not verify under the key.
    #[error("the signature of key {0} is wrong")]
    Forged(String),
}

/// A public key with its name, as `name+hash+base64` (a "vkey").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    name: String,
    key: VerifyingKey,
}

impl PublicKey {
    /// A key under a name. `None` where the name is empty or holds white space or a plus sign, or the bytes are
    /// no point of the curve.
    #[must_use]
    pub fn new(name: &str, key: &[u8; 32]) -> Option<Self> {
        Self::of(name, VerifyingKey::from_bytes(key).ok()?)
    }

    fn of(name: &str, key: VerifyingKey) -> Option<Self> {
        is_name(name).then(|| Self { name: name.to_owned(), key })
    }

    /// Parses `name+hash+base64`.
    ///
    /// # Errors
    /// [`NoteError::Malformed`], also where the hash is not the key's.
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        let malformed = || NoteError::Malformed("a key is name+hash+base64");
        let mut parts = text.trim().splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(malformed());
        };
        let key = BASE64.decode(key).map_err(|_| malformed())?;
        let key = match key.split_first() {
            Some((&ED25519, key)) => <&[u8; 32]>::try_from(key).map_err(|_| malformed())?,
            _ => return Err(NoteError::Malformed("the key is not Ed25519")),
        };
        let known = Self::new(name, key).ok_or_else(malformed)?;
        if hex::encode(known.id()) == id {
            Ok(known)
        } else {
            Err(NoteError::Malformed("the key's hash is not its own"))
        }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The 32 bytes of the Ed25519 key.
    #[must_use]
    pub fn bytes(&self) -> [u8; 32] {
        self.key.to_bytes()
    }

    /// The first four bytes of every signature by this key.
    #[must_use]
    pub fn id(&self) -> [u8; 4] {
        let digest = Sha256::new()
            .chain_update(self.name.as_bytes())
            .chain_update([b'\n', ED25519])
            .chain_update(self.key.as_bytes())
            .finalize();
        [digest[0], digest[1], digest[2], digest[3]]
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = [&[ED25519][..], self.key.as_bytes()].concat();
        write!(f, "{}+{}+{}", self.name, hex::encode(self.id()), BASE64.encode(key))
    }
}

/// Whether a text is a valid key name.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c == '+' || c.is_whitespace() || c.is_control())
}

/// One signature line of a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteSignature {
    pub name: String,
    /// The four bytes of the key's id, then the signature.
    pub bytes: Vec<u8>,
}

/// Writes the line of a note, without the newline.
impl std::fmt::Display for NoteSignature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{SIGNATURE_PREFIX}{} {}", self.name, BASE64.encode(&self.bytes))
    }
}

/// A parsed note; no signature has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The signed text; ends in a newline.
    pub text: String,
    /// The signatures, in the note's order.
    pub signatures: Vec<NoteSignature>,
}

impl Note {
    /// Parses a note.
    ///
    /// # Errors
    /// [`NoteError::Malformed`].
    pub fn parse(note: &str) -> Result<Self, NoteError> {
        let malformed = NoteError::Malformed;
        if note.len() > MAX_NOTE || !note.ends_with('\n') {
            return Err(malformed("too long, or no newline at the end"));
        }
        if note.contains(|c: char| c.is_control() && c != '\n') {
            return Err(malformed("it holds control characters"));
        }
        let cut = note.rfind("\n\n").ok_or(malformed("no empty line before the signatures"))?;
        let (text, lines) = (&note[..=cut], &note[cut + 2..]);
        let signatures = lines
            .lines()
            .map(|line| {
                let (name, bytes) = line
                    .strip_prefix(SIGNATURE_PREFIX)
                    .and_then(|line| line.split_once(' '))
                    .filter(|(name, _)| is_name(name))
                    .ok_or(malformed("a signature line is — name base64"))?;
                let bytes = BASE64.decode(bytes).ok().filter(|bytes| bytes.len() > 4);
                let bytes = bytes.ok_or(malformed("a signature is not base64"))?;
                Ok(NoteSignature { name: name.to_owned(), bytes })
            })
            .collect::<Result<Vec<_>, _>>()?;
        if signatures.is_empty() {
            return Err(malformed("it carries no signature"));
        }
        Ok(Self { text: text.to_owned(), signatures })
    }

    /// Checks the signature by `key`.
    ///
    /// # Errors
    /// [`NoteError::Unsigned`] or [`NoteError::Forged`].
    pub fn verify(&self, key: &PublicKey) -> Result<(), NoteError> {
        let id = key.id();
        let signature = self
            .signatures
            .iter()
            .find(|signature| signature.name == key.name && signature.bytes[..4] == id)
            .ok_or_else(|| NoteError::Unsigned(key.name.clone()))?;
        let forged = || NoteError::Forged(key.name.clone());
        let bytes = Signature::from_slice(&signature.bytes[4..]).map_err(|_| forged())?;
        key.key.verify_strict(self.text.as_bytes(), &bytes).map_err(|_| forged())
    }
}

/// Splits concatenated notes: each ends with its last signature line.
#[must_use]
pub fn split(text: &str) -> Vec<&str> {
    let (mut notes, mut start, mut signed) = (Vec::new(), 0, false);
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let signature = line.starts_with(SIGNATURE_PREFIX);
        if signed && !signature {
            notes.push(&text[start..at]);
            start = at;
        }
        signed = signature;
        at += line.len();
    }
    if start < text.len() {
        notes.push(&text[start..]);
    }
    notes
}

/// A log's size and root, as signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeHead {
    pub origin: String,
    /// Number of records.
    pub size: u64,
    /// The root of the log's Merkle tree.
    pub root: Hash,
}

impl TreeHead {
    /// The signed text: origin, size and root, a line each.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.origin, self.size, BASE64.encode(self.root))
    }

    /// Parses the text of a note; lines after the third are extensions and are ignored.
    ///
    /// # Errors
    /// [`NoteError::Malformed`].
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        let malformed = NoteError::Malformed;
        let mut lines = text.lines();
        let origin = lines.next().filter(|line| !line.is_empty());
        let size = lines.next().filter(|line| line.bytes().all(|byte| byte.is_ascii_digit()));
        // One way to write a number: no leading zeros.
        let size = size.filter(|line| *line == "0" || !line.starts_with('0'));
        let root = lines.next().and_then(|line| BASE64.decode(line).ok());
        Ok(Self {
            origin: origin.ok_or(malformed("a tree head begins with its log's origin"))?.to_owned(),
            size: size
                .and_then(|line| line.parse().ok())
                .ok_or(malformed("a tree head's second line is its size"))?,
            root: root
                .and_then(|root| root.try_into().ok())
                .ok_or(malformed("a tree head's third line is its root in base64"))?,
        })
    }
}

/// A log's private signing key.
pub struct Signer {
    key: SigningKey,
}

impl Signer {
    /// From 32 random bytes, the seed of the key (RFC 8032 §5.1.5).
    #[must_use]
    pub fn new(seed: &[u8; 32]) -> Self {
        Self { key: SigningKey::from_bytes(seed) }
    }

    /// The public key under a name. `None` where the name is not valid.
    #[must_use]
    pub fn public(&self, name: &str) -> Option<PublicKey> {
        PublicKey::of(name, self.key.verifying_key())
    }

    /// The 32 bytes of the public key.
    #[must_use]
    pub fn public_bytes(&self) -> [u8; 32] {
        self.key.verifying_key().to_bytes()
    }

    /// Signs a tree head. `None` where the origin is not a valid key name.
    #[must_use]
    pub fn sign(&self, head: &TreeHead) -> Option<String> {
        let key = PublicKey::of(&head.origin, self.key.verifying_key())?;
        let text = head.text();
        let signature = self.key.sign(text.as_bytes());
        let bytes = [&key.id()[..], &signature.to_bytes()].concat();
        Some(format!("{text}\n{SIGNATURE_PREFIX}{} {}\n", head.origin, BASE64.encode(bytes)))
    }
}

impl Signer {
    /// The Ed25519 signature over a JWS signing input (RFC 7515 §5.1). `None` for a text that is none: two parts in base64url
    /// with a dot between. A tree head has line breaks, so no signature can stand for both.
    #[must_use]
    pub fn sign_jws(&self, input: &str) -> Option<[u8; 64]> {
        let (header, payload) = input.split_once('.')?;
        let coded = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        (coded(header) && coded(payload)).then(|| self.key.sign(input.as_bytes()).to_bytes())
    }
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_jws_is_signed_and_nothing_that_could_be_a_tree_head() {
        let signer = Signer::new(&[3; 32]);
        let signature = signer.sign_jws("eyJ9.e30").unwrap();
        let key = ed25519_dalek::VerifyingKey::from_bytes(&signer.public_bytes()).unwrap();
        let signature = ed25519_dalek::Signature::from_bytes(&signature);
        key.verify_strict(b"eyJ9.e30", &signature).unwrap();
        for other in [head().text().as_str(), "a", "a.", ".b", "a.b.c", "a.b\n"] {
            assert!(signer.sign_jws(other).is_none(), "{other}");
        }
    }

    fn head() -> TreeHead {
        TreeHead { origin: "handoffd/log".to_owned(), size: 41, root: [7; 32] }
    }

    #[test]
    fn a_signed_tree_head_is_believed_and_says_what_was_signed() {
        let signer = Signer::new(&[3; 32]);
        let note = signer.sign(&head()).unwrap();
        let key = signer.public("handoffd/log").unwrap();
        let parsed = Note::parse(&note).unwrap();
        assert_eq!(parsed.verify(&key), Ok(()));
        assert_eq!(TreeHead::parse(&parsed.text), Ok(head()));
        assert_eq!(PublicKey::parse(&key.to_string()), Ok(key));
    }

    #[test]
    fn another_key_another_name_and_another_text_are_not_believed() {
        let signer = Signer::new(&[3; 32]);
        let note = signer.sign(&head()).unwrap();
        let other = Signer::new(&[4; 32]).public("handoffd/log").unwrap();
        let parsed = Note::parse(&note).unwrap();
        assert!(matches!(parsed.verify(&other), Err(NoteError::Unsigned(_))));
        let renamed = signer.public("handoffd/other").unwrap();
        assert!(matches!(parsed.verify(&renamed), Err(NoteError::Unsigned(_))));
        let changed = Note::parse(&note.replacen("41", "42", 1)).unwrap();
        let key = signer.public("handoffd/log").unwrap();
        assert!(matches!(changed.verify(&key), Err(NoteError::Forged(_))));
    }

    /// The example key and note of golang.org/x/mod/sumdb/note's documentation.
    #[test]
    fn the_example_of_the_go_implementation_verifies() {
        let key =
            PublicKey::parse("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
                .unwrap();
        let note = Note::parse(
            "If you think cryptography is the answer to your problem,\n\
             then you don't know what your problem is.\n\n\
             \u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n",
        )
        .unwrap();
        assert_eq!(note.verify(&key), Ok(()));
    }

    #[test]
    fn notes_one_after_the_other_come_apart() {
        let signer = Signer::new(&[3; 32]);
        let one = signer.sign(&head()).unwrap();
        let two = signer.sign(&TreeHead { size: 42, ..head() }).unwrap() + "\u{2014} w c2ln\n";
        let text = format!("{one}{two}{one}");
        assert_eq!(split(&text), [one.as_str(), two.as_str(), one.as_str()]);
        assert_eq!(split(&one), [one.as_str()]);
        assert!(split("").is_empty());
    }

    #[test]
    fn what_is_no_note_is_told_why() {
        let good = Signer::new(&[3; 32]).sign(&head()).unwrap();
        for (bad, why) in [
            (String::new(), "newline"),
            (good.trim_end().to_owned(), "newline"),
            (good.replace("\n\n", "\n"), "empty line"),
            (good.replace('\u{2014}', "-"), "signature line"),
            (good.replacen("41", "4\u{7}1", 1), "control"),
            ("text\n\n".to_owned(), "no signature"),
        ] {
            assert!(Note::parse(&bad).unwrap_err().to_string().contains(why), "{bad:?}");
        }
        for bad in ["", "o\n", "o\n01\nAAAA\n", "o\n-1\nAAAA\n", "o\n5\nAAAA\n", "o\n5\n!\n"] {
            assert!(TreeHead::parse(bad).is_err(), "{bad:?}");
        }
        assert!(PublicKey::parse("a b+00000000+AQ==").is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*(\n\n)?(\u{2014} \\PC{0,20} [A-Za-z0-9+/=]{0,100}\n)?") {
            if let Ok(note) = Note::parse(&text) {
                let _ = TreeHead::parse(&note.text);
                let _ = note.verify(&Signer::new(&[1; 32]).public("x").unwrap());
            }
            let _ = PublicKey::parse(&text);
        }
    }
}
