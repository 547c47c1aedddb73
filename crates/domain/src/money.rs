//! Exact money. A message carries US dollars as a JSON number; here they are whole nano-dollars, so
//! that the hops of a task add up to the cent and beyond (ruling X1).

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// US dollars in nano-dollars (1e-9 USD); the schema bounds amounts to ±1e9 USD, which fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Usd(pub i64);

const NANOS: f64 = 1e9;

/// The largest amount that a message may name: a billion US dollars.
const MOST: i64 = 1_000_000_000_000_000_000;

impl Usd {
    /// Rounds a dollar amount to the nearest nano-dollar; saturates beyond ±9.2e9 USD.
    #[must_use]
    pub fn from_f64(dollars: f64) -> Self {
        Self((dollars * NANOS).round() as i64)
    }

    /// The amount in dollars, as close as a double comes.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / NANOS
    }

    /// The difference, saturating.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The sum, saturating.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// For what is kept: whole nano-dollars, so that nothing passes through a double.
pub mod nanos {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Usd;

    /// Writes nano-dollars.
    ///
    /// # Errors
    /// As the serializer's.
    pub fn serialize<S: Serializer>(amount: &Usd, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i64(amount.0)
    }

    /// Reads nano-dollars.
    ///
    /// # Errors
    /// If the value is not a whole number.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Usd, D::Error> {
        i64::deserialize(from).map(Usd)
    }
}

/// Why a text is not an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "an amount is decimal US dollars from 0 to 1000000000 with at most nine decimals, such as 12.50"
)]
pub struct NoAmount;

impl std::str::FromStr for Usd {
    type Err = NoAmount;

    /// Decimal US dollars, exactly: `12`, `12.5`, `0.000000001`; neither sign nor exponent.
    fn from_str(text: &str) -> Result<Self, NoAmount> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str, most: usize| {
            (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !digits(whole, 10) || !digits(part, 9) {
            return Err(NoAmount);
        }
        let nanos = format!("{whole}{part:0<9}").parse().map_err(|_| NoAmount)?;
        if nanos > MOST { Err(NoAmount) } else { Ok(Self(nanos)) }
    }
}

impl std::fmt::Display for Usd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
        let trimmed = text.trim_end_matches('0');
        let shown = if trimmed.len() - trimmed.find('.').unwrap_or(0) < 3 {
            &text[..text.find('.').unwrap_or(0) + 3]
        } else {
            trimmed
        };
        write!(f, "{sign}{shown}")
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(self.as_f64())
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        f64::deserialize(from).map(Self::from_f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn differences_are_exact_where_doubles_are_not() {
        let hop = Usd::from_f64(0.3).minus(Usd::from_f64(0.08));
        assert_eq!(serde_json::to_string(&hop).unwrap(), "0.22");
        assert_eq!(hop.to_string(), "0.22");
        assert_eq!(Usd::from_f64(-1.5).to_string(), "-1.50");
        assert_eq!(Usd::from_f64(0.123_456).to_string(), "0.123456");
    }

    #[test]
    fn a_decimal_text_is_read_exactly_or_not_at_all() {
        assert_eq!("0.000000001".parse(), Ok(Usd(1)));
        assert_eq!("12.5".parse(), Ok(Usd(12_500_000_000)));
        assert_eq!("1000000000".parse(), Ok(Usd(MOST)));
        for bad in ["", ".", "1.", ".5", "-1", "+1", "1e3", "1,5", "0.0000000001", "1000000000.1"] {
            assert_eq!(bad.parse::<Usd>(), Err(NoAmount), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn an_amount_survives_the_wire(nanos in -1_000_000_000_000_000i64..1_000_000_000_000_000) {
            let text = serde_json::to_string(&Usd(nanos)).unwrap();
            prop_assert_eq!(serde_json::from_str::<Usd>(&text).unwrap(), Usd(nanos));
        }
    }
}
