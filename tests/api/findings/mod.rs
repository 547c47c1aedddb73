//! Findings of a trial of 0.1.0 from outside: a case for each finding, under its number (`f1_2_…` is finding 2
//! of group 1). Groups: 1 lineage and cost, 2 when it goes wrong, 3 contracts, 4 operators' alerts, 5 at the
//! door, 6 warnings.

mod f1;
mod f2;
mod f2_returns;
mod f3;
mod f4;
mod f4_counts;
mod f4_latency;
mod f4_residency;
mod f4_retention;
mod f5;
mod f5_door;
mod f5_orbit;
mod f5_secrets;
mod f5_versions;
mod f6;
