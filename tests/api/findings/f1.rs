//! Findings of group 1: lineage and cost.
