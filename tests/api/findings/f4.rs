//! Findings of group 4: what operators are told.
