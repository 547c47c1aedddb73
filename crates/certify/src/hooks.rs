//! Commands of the user by which the kit does what no API offers: end the broker, start it again, check a bundle.

use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use crate::Args;

/// The commands that were given.
pub(crate) struct Hooks {
    pub(crate) crash: Option<Crash>,
    verifier: Option<String>,
    pub(crate) receiver_host: String,
}

/// How to end the broker, and how to start it again.
pub(crate) struct Crash {
    kill: String,
    start: String,
}

impl Hooks {
    pub(crate) fn of(args: &Args) -> Self {
        let both = args.kill.clone().zip(args.start.clone());
        Self {
            crash: both.map(|(kill, start)| Crash { kill, start }),
            verifier: args.verifier.clone(),
            receiver_host: args.receiver_host.clone(),
        }
    }

    /// Whether the verifier takes a bundle; `None` without a verifier.
    pub(crate) async fn verifies(&self, bundle: &Path) -> Option<Result<bool, String>> {
        let verifier = self.verifier.as_ref()?;
        let command = format!("{verifier} \"$0\"");
        Some(ended(Command::new("sh").arg("-c").arg(command).arg(bundle)).await)
    }
}

impl Crash {
    pub(crate) async fn kill(&self) -> Result<(), String> {
        done(&self.kill).await
    }

    pub(crate) async fn start(&self) -> Result<(), String> {
        done(&self.start).await
    }
}

async fn ended(command: &mut Command) -> Result<bool, String> {
    let ran = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    Ok(ran.await.map_err(|err| format!("a command cannot run: {err}"))?.success())
}

async fn done(text: &str) -> Result<(), String> {
    if ended(Command::new("sh").arg("-c").arg(text)).await? {
        Ok(())
    } else {
        Err(format!("the command `{text}` failed"))
    }
}
