//! The command line, shared by `handoffd certify` and the stand-alone program.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

/// Form of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// A table for people.
    Text,
    /// One JSON object.
    Json,
    /// JUnit XML, for CI.
    Junit,
    /// One HTML page.
    Html,
}

/// Arguments of a run.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// The broker's address, such as http://127.0.0.1:8080. The kit registers agents there and hands tasks over: use a test broker
    #[arg(required_unless_present = "list", default_value = "")]
    pub url: String,
    /// A file with an operator's key, which registers agents, reads the audit log and places contracts
    #[arg(long, env = "HANDOFFD_API_KEY_FILE", value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// That key itself
    #[arg(long, env = "HANDOFFD_API_KEY", hide_env_values = true)]
    pub key: Option<String>,
    /// A YAML file with what the broker speaks, its paths and its words, where they are not the canonical ones
    #[arg(long, value_name = "FILE")]
    pub map: Option<PathBuf>,
    /// Examine also what the mapping file names as not claimed; the verdict stays `not claimed`, and the evidence says what was seen
    #[arg(long)]
    pub not_claimed_too: bool,
    /// Only these claims, by id
    #[arg(long, value_delimiter = ',', value_name = "CLAIM")]
    pub only: Vec<String>,
    /// Command that ends the broker at once, such as 'kill -9 $(cat broker.pid)'
    #[arg(long, value_name = "COMMAND", requires = "start")]
    pub kill: Option<String>,
    /// Command that starts the broker again, once nothing answers at its address, and returns; it may go on in the background
    #[arg(long, value_name = "COMMAND", requires = "kill")]
    pub start: Option<String>,
    /// Command that checks an exported bundle; the file's path follows it. Exit code 0 means that the evidence holds
    #[arg(long, value_name = "COMMAND")]
    pub verifier: Option<String>,
    /// Host at which the broker reaches this machine's receivers
    #[arg(long, default_value = "127.0.0.1", value_name = "HOST")]
    pub receiver_host: String,
    /// Handoffs of each check that counts
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(usize), value_name = "N")]
    pub handoffs: usize,
    /// Submissions a second of the measured run; it takes ten seconds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=2_000), value_name = "N")]
    pub rate: u32,
    /// Form of the report on standard output
    #[arg(long = "report", value_enum, default_value = "text")]
    pub form: Form,
    /// Write the report to this file too, in the form that its ending names (.txt, .json, .xml, .html)
    #[arg(long, value_name = "FILE")]
    pub file: Vec<PathBuf>,
    /// Print the claims and their sources, and run nothing
    #[arg(long)]
    pub list: bool,
}
