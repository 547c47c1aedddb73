//! Cosignatures of tree heads: C2SP tlog-cosignature with Ed25519. A witness follows the log, checks that each tree
//! grew out of the one before, and states the time at which this was the largest tree that it had seen. Its signature
//! is in the note beside the log's own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ed25519_dalek::{Signature, VerifyingKey};
use sha2::{Digest, Sha256};

use super::note::{Note, NoteError, NoteSignature, is_name};

/// Algorithm byte of Ed25519 cosignatures.
const COSIGNATURE: u8 = 4;

/// A witness' public key with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WitnessKey {
    name: String,
    key: VerifyingKey,
}

impl WitnessKey {
    /// Reads `name+hash+base64` (a "vkey").
    ///
    /// # Errors
    /// [`NoteError::Malformed`], also for a key of another kind.
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        let malformed = NoteError::Malformed;
        let mut parts = text.trim().splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(malformed("a key is name+hash+base64"));
        };
        let bytes = BASE64.decode(key).map_err(|_| malformed("the key is not base64"))?;
        let key = match bytes.split_first() {
            Some((&COSIGNATURE, key)) => key.try_into().ok(),
            _ => return Err(malformed("the key is not one of cosignature/v1 with Ed25519")),
        };
        let key = key.and_then(|key| VerifyingKey::from_bytes(key).ok());
        let key = key.filter(|_| is_name(name)).ok_or(malformed("the text is not a key"))?;
        let known = Self { name: name.to_owned(), key };
        if hex::encode(known.id()) == id {
            Ok(known)
        } else {
            Err(malformed("the key's hash is not its own"))
        }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> [u8; 4] {
        let digest = Sha256::new()
            .chain_update(self.name.as_bytes())
            .chain_update([b'\n', COSIGNATURE])
            .chain_update(self.key.as_bytes())
            .finalize();
        [digest[0], digest[1], digest[2], digest[3]]
    }

    /// The first signature of a note made by this witness, and its time in seconds since the Unix epoch.
    ///
    /// # Errors
    /// [`NoteError::Unsigned`] or [`NoteError::Forged`].
    pub fn verify<'a>(&self, note: &'a Note) -> Result<(&'a NoteSignature, u64), NoteError> {
        let id = self.id();
        let signature = note
            .signatures
            .iter()
            .find(|signature| signature.name == self.name && signature.bytes[..4] == id)
            .ok_or_else(|| NoteError::Unsigned(self.name.clone()))?;
        let forged = || NoteError::Forged(self.name.clone());
        let (time, bytes) = signature.bytes[4..].split_first_chunk::<8>().ok_or_else(forged)?;
        let (time, bytes) = (u64::from_be_bytes(*time), Signature::from_slice(bytes));
        let text = cosigned_text(time, &note.text);
        self.key
            .verify_strict(text.as_bytes(), &bytes.map_err(|_| forged())?)
            .map_err(|_| forged())?;
        Ok((signature, time))
    }
}

/// The text a witness signs: the time, then the note's text.
#[must_use]
pub fn cosigned_text(time: u64, text: &str) -> String {
    format!("cosignature/v1\ntime {time}\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::{Signer as _, SigningKey};

    fn vkey(name: &str, kind: u8, key: &[u8; 32]) -> String {
        let id = Sha256::new()
            .chain_update(name)
            .chain_update([b'\n', kind])
            .chain_update(key)
            .finalize();
        let key = [&[kind][..], key].concat();
        format!("{name}+{}+{}", hex::encode(&id[..4]), BASE64.encode(key))
    }

    fn cosigned(text: &str, time: u64, seed: [u8; 32], said: u64) -> Note {
        let key = SigningKey::from_bytes(&seed);
        let known = vkey("w.example/1", COSIGNATURE, key.verifying_key().as_bytes());
        let id = WitnessKey::parse(&known).unwrap().id();
        let signature = key.sign(cosigned_text(time, text).as_bytes()).to_bytes();
        let bytes = [&id[..], &said.to_be_bytes(), &signature].concat();
        let signature = NoteSignature { name: "w.example/1".to_owned(), bytes };
        Note { text: text.to_owned(), signatures: vec![signature] }
    }

    #[test]
    fn a_cosignature_holds_for_its_text_and_its_time_alone() {
        let key = SigningKey::from_bytes(&[9; 32]).verifying_key();
        let known = WitnessKey::parse(&vkey("w.example/1", COSIGNATURE, key.as_bytes())).unwrap();
        let text = "o/log\n5\nAAAA\n";
        let note = cosigned(text, 1_679_315_147, [9; 32], 1_679_315_147);
        assert_eq!(known.verify(&note).unwrap().1, 1_679_315_147);
        let later = cosigned(text, 1_679_315_147, [9; 32], 1_679_315_148);
        assert_eq!(known.verify(&later), Err(NoteError::Forged("w.example/1".to_owned())));
        let other = Note { text: "o/log\n6\nAAAA\n".to_owned(), ..note.clone() };
        assert!(known.verify(&other).is_err());
        let another = WitnessKey::parse(&vkey("w.example/2", COSIGNATURE, key.as_bytes())).unwrap();
        assert_eq!(another.verify(&note), Err(NoteError::Unsigned("w.example/2".to_owned())));
        assert_eq!(Note::parse(&format!("{text}\n{}\n", note.signatures[0])), Ok(note));
    }

    #[test]
    fn a_key_of_another_kind_or_with_another_hash_is_none() {
        let key = SigningKey::from_bytes(&[9; 32]).verifying_key();
        let good = vkey("w", COSIGNATURE, key.as_bytes());
        for bad in [
            vkey("w", 1, key.as_bytes()),
            vkey("w x", COSIGNATURE, key.as_bytes()),
            good.replacen("w+", "v+", 1),
            good[..good.len() - 4].to_owned(),
            "w".to_owned(),
            String::new(),
        ] {
            assert!(WitnessKey::parse(&bad).is_err(), "{bad}");
        }
    }
}
