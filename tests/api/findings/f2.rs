//! Findings of group 2: when it goes wrong.
