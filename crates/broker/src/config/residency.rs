//! `[residency]`: the regions of the broker and of the services outside that it shows texts to.

use serde::Deserialize;

use super::readers::maybe_region;
use super::{Classifier, Compressor, Config, ContextModel};
use handoffd_domain::residency::{
    Crossing, CrossingParty, Region, ResidencyPolicy, ResidencyRules,
};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Residency {
    #[serde(deserialize_with = "maybe_region")]
    pub region: Option<Region>,
    pub policy: ResidencyPolicy,
    #[serde(deserialize_with = "maybe_region")]
    pub archive_region: Option<Region>,
    pub archive_transfer_basis: String,
}

impl Residency {
    /// The broker's region, and its policy.
    #[must_use]
    pub const fn rules(&self) -> ResidencyRules {
        ResidencyRules { region: self.region, policy: self.policy }
    }

    /// The crossing of contents that move to an archive in another region.
    #[must_use]
    pub fn archive_crossing(&self) -> Option<Crossing> {
        let (region, basis) = (self.archive_region, &self.archive_transfer_basis);
        self.crossing(CrossingParty::Receiver, region, basis)
    }

    fn crossing(
        &self,
        party: CrossingParty,
        region: Option<Region>,
        basis: &str,
    ) -> Option<Crossing> {
        self.rules().crossing(party, region, Some(basis).filter(|basis| !basis.is_empty()))
    }
}

/// A service outside that the broker shows texts to.
#[derive(Debug)]
pub struct Outsider {
    /// The section of its settings.
    pub section: &'static str,
    pub transfer_basis: String,
    /// The transfer of data by which it is asked, where it is in another region.
    pub crossing: Option<Crossing>,
}

impl Config {
    /// The crossing of texts that go to the classifier.
    #[must_use]
    pub fn classifier_crossing(&self) -> Option<Crossing> {
        let Classifier { region, transfer_basis, .. } = &self.safety.classifier;
        self.residency.crossing(CrossingParty::Classifier, *region, transfer_basis)
    }

    /// The crossing of turns that go to the model that condenses them.
    #[must_use]
    pub fn model_crossing(&self) -> Option<Crossing> {
        let ContextModel { region, transfer_basis, .. } = &self.context.model;
        self.residency.crossing(CrossingParty::Model, *region, transfer_basis)
    }

    /// The services that the settings name and that are asked, and the archive.
    #[must_use]
    pub fn outsiders(&self) -> Vec<Outsider> {
        let (classifier, model) = (&self.safety.classifier, &self.context.model);
        let matcher = &self.routing.matcher;
        let to_matcher =
            self.residency.crossing(CrossingParty::Model, matcher.region, &matcher.transfer_basis);
        let asks_model = self.context.compressor == Compressor::Model;
        let of = |is_asked: bool, section, basis: &str, crossing| {
            is_asked.then(|| Outsider { section, transfer_basis: basis.to_owned(), crossing })
        };
        [
            of(
                true,
                "residency.archive",
                &self.residency.archive_transfer_basis,
                self.residency.archive_crossing(),
            ),
            of(
                !classifier.url.is_empty(),
                "safety.classifier.",
                &classifier.transfer_basis,
                self.classifier_crossing(),
            ),
            of(asks_model, "context.model.", &model.transfer_basis, self.model_crossing()),
            of(!matcher.url.is_empty(), "routing.matcher.", &matcher.transfer_basis, to_matcher),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
