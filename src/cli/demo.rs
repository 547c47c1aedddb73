//! tbd
use super::{Exit, Output};
use clap::Args as ClapArgs;
/// `handoffd demo`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {}
pub(super) async fn run(_args: Args, _output: Output) -> Exit {
    Exit::Well
}
