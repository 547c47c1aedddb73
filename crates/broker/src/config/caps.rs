//! Caps as the settings have them.

use std::collections::BTreeMap;

use handoffd_domain::cap::{CapLimit, MAX_DEFAULTS, MAX_TOKENS, Window};

/// Reads caps such as `P1D=100.00` and `P1D=2000000 tokens`.
pub(super) fn limits(texts: &[String]) -> Result<[Option<CapLimit>; MAX_DEFAULTS], String> {
    let mut limits = BTreeMap::new();
    for text in texts {
        let (window, amount) = text.split_once('=').ok_or_else(|| {
            format!("{text:?} is not a cap such as P1D=100.00 or P1D=2000000 tokens")
        })?;
        let window: Window = window.trim().parse().map_err(|err| format!("{text:?}: {err}"))?;
        let limit = limits.entry(window).or_insert(CapLimit { window, usd: None, tokens: None });
        let known = match amount.trim().strip_suffix("tokens") {
            None => {
                let usd = amount.trim().parse().map_err(|err| format!("{text:?}: {err}"))?;
                limit.usd.replace(usd).is_some()
            }
            Some(count) => {
                let tokens = count.trim().parse().ok().filter(|count| *count <= MAX_TOKENS);
                let tokens = tokens.ok_or_else(|| {
                    format!("{text:?}: tokens are a whole number of at most {MAX_TOKENS}")
                })?;
                limit.tokens.replace(tokens).is_some()
            }
        };
        if known {
            return Err(format!("two caps for {window}"));
        }
    }
    if limits.len() > MAX_DEFAULTS {
        return Err(format!("caps for more than {MAX_DEFAULTS} windows"));
    }
    let mut limits = limits.into_values();
    Ok(std::array::from_fn(|_| limits.next()))
}
