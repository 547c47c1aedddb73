//! Data residency: regions, and the legal basis of transfers between them (seed 000 §12.2, GDPR chapter V).
//!
//! The broker's region is that of its database. An agent, a subscriber or an archive without a stated region is in
//! the broker's. A handoff crosses on its way in where its sender's region differs, and on its way out where its
//! receiver's does. So do texts that go to the classifier, the model or the matcher. The legal basis of such a transfer is the foreign party's `transferBasis`, a code registered by
//! an operator, since it is part of records.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest name of a region, in bytes.
const LONGEST: usize = 32;

/// A region's name, chosen by an operator: lower-case letters, digits and `-`, e.g. `eu` or `eu-central-1`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region {
    bytes: [u8; LONGEST],
    length: u8,
}

impl Region {
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl FromStr for Region {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let fits = (1..=LONGEST).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        let length = u8::try_from(text.len()).ok().filter(|_| fits);
        let Some(length) = length else {
            return Err(format!("a region is 1 to {LONGEST} of a-z, 0-9 and -"));
        };
        let mut bytes = [0; LONGEST];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { bytes, length })
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for Region {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Region {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Whether a text is a valid transfer basis: a code such as `ADEQUACY`, `SCC_2021` or `BCR`.
#[must_use]
pub fn is_basis(text: &str) -> bool {
    (2..=64).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

/// Handling of region crossings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResidencyPolicy {
    /// Regions are not compared.
    Off,
    /// A crossing is recorded, with its basis if known, and reported in a warning.
    #[default]
    Record,
    /// A crossing with a stated basis is recorded, any other refused.
    Refuse,
}

/// The broker's region, and its policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResidencyRules {
    /// The database's region; none: regions are not compared.
    pub region: Option<Region>,
    pub policy: ResidencyPolicy,
}

/// The party of a handoff in another region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CrossingParty {
    /// The data comes from the party.
    Sender,
    /// The data goes to the party.
    Receiver,
    /// The data goes to the external classifier.
    Classifier,
    /// The data goes to the model that condenses turns.
    Model,
}

/// Data that went from one region to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RecordCrossing))]
#[serde(rename_all = "camelCase")]
pub struct Crossing {
    /// At which end: `sender` or `receiver`; or who was shown texts: `classifier` or `model`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub party: CrossingParty,
    /// The region that the data leave.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub from: Region,
    /// The region that the data enter.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub to: Region,
    /// The legal basis of the transfer: a code.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub transfer_basis: Option<String>,
}

/// Between which regions the data of a record went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RecordResidency))]
pub struct ResidencyFacts {
    /// One an end of the edge.
    // The inbound one is first.
    pub crossings: Vec<Crossing>,
}

impl ResidencyRules {
    /// The crossing, if any, of data between the broker and a party in `region`, with its basis.
    #[must_use]
    pub fn crossing(
        &self,
        party: CrossingParty,
        region: Option<Region>,
        basis: Option<&str>,
    ) -> Option<Crossing> {
        let own = self.region.filter(|_| self.policy != ResidencyPolicy::Off)?;
        let other = region.filter(|region| *region != own)?;
        let (from, to) = match party {
            CrossingParty::Sender => (other, own),
            CrossingParty::Receiver | CrossingParty::Classifier | CrossingParty::Model => {
                (own, other)
            }
        };
        Some(Crossing { party, from, to, transfer_basis: basis.map(str::to_owned) })
    }

    /// Whether the policy refuses it.
    #[must_use]
    pub fn refuses(&self, crossing: &Crossing) -> bool {
        self.policy == ResidencyPolicy::Refuse && crossing.transfer_basis.is_none()
    }

    /// The crossings in a record's form; `None` for an empty list.
    #[must_use]
    pub fn facts(crossings: Vec<Crossing>) -> Option<ResidencyFacts> {
        (!crossings.is_empty()).then_some(ResidencyFacts { crossings })
    }
}

impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "data go from region {} to region {}", self.from, self.to)?;
        match &self.transfer_basis {
            Some(basis) => write!(f, " on the transfer basis {basis}"),
            None => f.write_str(" without a stated transfer basis"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Agent;

    fn agent(region: Option<&str>, basis: Option<&str>) -> Agent {
        let mut agent = Agent::new("one".parse().unwrap());
        agent.region = region.map(|name| name.parse().unwrap());
        agent.transfer_basis = basis.map(str::to_owned);
        agent
    }

    fn residency(policy: ResidencyPolicy) -> ResidencyRules {
        ResidencyRules { region: Some("eu".parse().unwrap()), policy }
    }

    #[test]
    fn f4_8_a_region_is_compared_with_the_brokers_in_both_directions() {
        let residency = residency(ResidencyPolicy::Record);
        let crossings = |source: &Agent, target: &Agent| {
            let all = residency.crossings(Some(source), Some(target));
            all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let (here, eu) = (agent(None, None), agent(Some("eu"), None));
        let (us, jp) = (agent(Some("us"), Some("SCC_2021")), agent(Some("jp"), None));
        assert_eq!(crossings(&here, &eu), "");
        assert_eq!(
            crossings(&eu, &us),
            "data go from region eu to region us on the transfer basis SCC_2021"
        );
        // By way of the broker, even between two of one region.
        assert_eq!(crossings(&jp, &jp).matches("without a stated transfer basis").count(), 2);
        let off = ResidencyRules { policy: ResidencyPolicy::Off, ..residency };
        assert_eq!(off.crossings(Some(&jp), Some(&us)), []);
        assert_eq!(ResidencyRules::default().crossings(Some(&jp), Some(&us)), []);
    }

    #[test]
    fn f4_8_refused_is_what_stands_on_nothing() {
        let (us, jp) = (agent(Some("us"), Some("ADEQUACY")), agent(Some("jp"), None));
        for (policy, refused) in
            [(ResidencyPolicy::Record, [false; 2]), (ResidencyPolicy::Refuse, [false, true])]
        {
            let residency = residency(policy);
            let told = [&us, &jp].map(|target| {
                residency.crossings(None, Some(target)).iter().any(|one| residency.refuses(one))
            });
            assert_eq!(told, refused);
        }
    }

    #[test]
    fn f4_8_regions_and_bases_are_names_and_codes() {
        for wrong in ["", "EU", "eu west", &"e".repeat(33)] {
            assert!(wrong.parse::<Region>().is_err(), "{wrong}");
        }
        assert_eq!("eu-central-1".parse::<Region>().unwrap().as_str(), "eu-central-1");
        assert!(is_basis("SCC_2021") && !is_basis("because I say so") && !is_basis("S"));
    }
}
