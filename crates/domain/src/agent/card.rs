//! An agent's public description for other protocols.

use serde::{Deserialize, Serialize};

/// An agent's public description for other protocols (docs/doors/a2a.md); an agent without one has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Card {
    /// Shown without a key too, where the settings name the agent's tenant.
    pub public: bool,
    /// Media types of parts that the agent reads; a range such as `image/*` is one.
    #[serde(alias = "input_modes")]
    pub input_modes: Vec<String>,
    /// Media types of the agent's results.
    #[serde(alias = "output_modes")]
    pub output_modes: Vec<String>,
}

impl Default for Card {
    fn default() -> Self {
        let modes = || ["text/plain", "application/json"].map(str::to_owned).to_vec();
        Self { public: false, input_modes: modes(), output_modes: modes() }
    }
}

impl Card {
    /// Whether the agent reads parts of this media type; parameters do not count.
    #[must_use]
    pub fn reads(&self, media_type: &str) -> bool {
        let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        self.input_modes.iter().any(|mode| match mode.strip_suffix('*') {
            Some("*/") => true,
            Some(range) => essence.starts_with(&range.to_ascii_lowercase()),
            None => essence == mode.to_ascii_lowercase(),
        })
    }
}

/// Whether a text is a media type without parameters, or a range of them.
fn is_media_range(text: &str) -> bool {
    let token = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
    };
    text.len() <= 255
        && text
            .split_once('/')
            .is_some_and(|(kind, sub)| (token(kind) && (token(sub) || sub == "*")) || text == "*/*")
}

/// Most media types of one list of a card.
const MAX_MODES: usize = 100;

pub(super) fn check(card: &Card) -> Result<(), (String, String)> {
    for (pointer, modes) in
        [("/card/inputModes", &card.input_modes), ("/card/outputModes", &card.output_modes)]
    {
        if modes.is_empty()
            || modes.len() > MAX_MODES
            || !modes.iter().all(|mode| is_media_range(mode))
        {
            let why =
                format!("must be 1 to {MAX_MODES} media types, such as text/plain or image/*");
            return Err((pointer.to_owned(), why));
        }
    }
    Ok(())
}
