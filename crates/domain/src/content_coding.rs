//! Content codings of HTTP (RFC 9110 §8.4): gzip (RFC 1952) and zstd (RFC 8878, windows bounded as RFC 9659 asks).

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

/// The largest zstd window that is read: 8 MiB (RFC 9659 §3), as a power of two.
const MAX_WINDOW_LOG: u32 = 23;
/// zstd's own default: three times faster than gzip at its default, and smaller.
const ZSTD_LEVEL: i32 = 3;

/// A coding that the broker reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Coding {
    /// `zstd`.
    Zstd,
    /// `gzip`.
    Gzip,
}

/// Why a coded body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Undecoded {
    /// The decoded bytes exceed the limit.
    #[error("the decoded body is too large")]
    TooLarge,
    /// The bytes are not in that coding, or end early.
    #[error("the body is not what its Content-Encoding says")]
    Malformed,
}

impl Coding {
    /// All of them, the preferred one first.
    pub const ALL: [Self; 2] = [Self::Zstd, Self::Gzip];

    /// The coding's name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// Reads a name; `x-gzip` is gzip (RFC 9110 §8.4.1.3).
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.trim();
        let named = Self::ALL.into_iter().find(|one| name.eq_ignore_ascii_case(one.as_str()));
        named.or_else(|| name.eq_ignore_ascii_case("x-gzip").then_some(Self::Gzip))
    }

    /// Encodes.
    ///
    /// # Errors
    /// When the encoder has no memory.
    pub fn encode(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut encoder = Encoder::new(self)?;
        let mut coded = encoder.write(bytes)?;
        coded.extend(encoder.finish()?);
        Ok(coded)
    }

    /// Decodes to `limit` bytes at most.
    ///
    /// # Errors
    /// [`Undecoded`]; no more than `limit` bytes were made then either.
    pub fn decode(self, bytes: &[u8], limit: usize) -> Result<Vec<u8>, Undecoded> {
        let malformed = |_| Undecoded::Malformed;
        match self {
            Self::Zstd => {
                let mut decoder =
                    zstd::stream::read::Decoder::with_buffer(bytes).map_err(malformed)?;
                decoder.window_log_max(MAX_WINDOW_LOG).map_err(malformed)?;
                bounded(decoder, limit)
            }
            Self::Gzip => bounded(flate2::bufread::MultiGzDecoder::new(bytes), limit),
        }
    }
}

fn bounded(decoder: impl Read, limit: usize) -> Result<Vec<u8>, Undecoded> {
    let mut decoded = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(most).read_to_end(&mut decoded).map_err(|_| Undecoded::Malformed)?;
    if decoded.len() > limit { Err(Undecoded::TooLarge) } else { Ok(decoded) }
}

/// Encodes a body piece by piece.
pub struct Encoder(Inner);

enum Inner {
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
}

impl Encoder {
    /// An encoder that was given nothing yet.
    ///
    /// # Errors
    /// When the encoder has no memory.
    pub fn new(coding: Coding) -> io::Result<Self> {
        Ok(Self(match coding {
            Coding::Zstd => Inner::Zstd(zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?),
            Coding::Gzip => {
                let level = flate2::Compression::default();
                Inner::Gzip(flate2::write::GzEncoder::new(Vec::new(), level))
            }
        }))
    }

    /// Takes a piece; returns what of the coded body is ready, often nothing.
    ///
    /// # Errors
    /// When the encoder has no memory.
    pub fn write(&mut self, piece: &[u8]) -> io::Result<Vec<u8>> {
        Ok(match &mut self.0 {
            Inner::Zstd(encoder) => {
                encoder.write_all(piece)?;
                std::mem::take(encoder.get_mut())
            }
            Inner::Gzip(encoder) => {
                encoder.write_all(piece)?;
                std::mem::take(encoder.get_mut())
            }
        })
    }

    /// The rest of the coded body.
    ///
    /// # Errors
    /// When the encoder has no memory.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self.0 {
            Inner::Zstd(encoder) => encoder.finish(),
            Inner::Gzip(encoder) => encoder.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f5_2_what_was_encoded_decodes_within_its_limit_only() {
        let text = b"a handoff ".repeat(20_000);
        for coding in Coding::ALL {
            let coded = coding.encode(&text).unwrap();
            assert!(coded.len() < text.len() / 20, "{coding:?}");
            assert_eq!(coding.decode(&coded, text.len()).unwrap(), text);
            assert_eq!(coding.decode(&coded, text.len() - 1), Err(Undecoded::TooLarge));
            assert_eq!(
                coding.decode(&coded[..coded.len() - 9], text.len()),
                Err(Undecoded::Malformed)
            );
            assert_eq!(coding.decode(b"{}", 100), Err(Undecoded::Malformed));
            assert_eq!(Coding::parse(&coding.as_str().to_uppercase()), Some(coding));
        }
        assert_eq!(Coding::parse("x-gzip"), Some(Coding::Gzip));
        assert_eq!(Coding::parse("br"), None);
    }

    #[test]
    fn f5_2_a_body_in_pieces_is_one_body() {
        for coding in Coding::ALL {
            let mut encoder = Encoder::new(coding).unwrap();
            let mut coded = Vec::new();
            for piece in ["{\"a\":", "1", "}"] {
                coded.extend(encoder.write(piece.as_bytes()).unwrap());
            }
            coded.extend(encoder.finish().unwrap());
            assert_eq!(coding.decode(&coded, 100).unwrap(), b"{\"a\":1}");
        }
    }

    #[test]
    fn f5_2_a_zstd_window_beyond_eight_mebibytes_is_not_read() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&vec![7; 9 << 20]).unwrap();
        let coded = encoder.finish().unwrap();
        assert_eq!(Coding::Zstd.decode(&coded, 64 << 20), Err(Undecoded::Malformed));
    }
}
