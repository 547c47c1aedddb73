//! The repository agrees with its code: pages, published documents, diagrams, dependencies and imports.

#![allow(unreachable_pub, reason = "not a library")]

mod cli;
mod diagrams;
mod docs;
mod layering;
mod licences;
mod openapi;
mod profile;
mod prose;
mod shape;
mod signing;
mod store;
mod verifier;
mod watching;
