//! Findings of group 3: contracts.
