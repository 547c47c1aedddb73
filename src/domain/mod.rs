//! Plain data and total functions. Knows no database, no HTTP and no clock.

pub mod failure;
