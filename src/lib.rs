//! `handoffd`: the handoff broker that multi-agent systems trust.
//!
//! Decide purely, commit once, then act. `ARCHITECTURE.md` is the map; imports point down only.

pub mod domain;
