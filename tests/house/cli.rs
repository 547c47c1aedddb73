//! The command line's own documents: reference, manual and completions are made from what is parsed.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

const HEAD: &str = "# Commands

Every command of `handoffd`, made from what it parses: `HANDOFFD_WRITE_DOCS=1 cargo test --test house cli`. `handoffd help COMMAND`
says the same, `handoffd man --dir FOLDER` writes manual pages, and completions are loaded from

```sh
handoffd completions bash > /etc/bash_completion.d/handoffd      # or zsh, fish, elvish, powershell
```

**Commands for operators** (`agents`, `allowlist`, `contracts`, `schemas`, `what-if`, `dead-letters`, `escalations`, `tasks`, `keys`,
`caps`, `subscriptions`) ask a running broker, as `trace` does:

- which one: `--url` or `HANDOFFD_URL`; the configured listener unless said.
- with which key: `--key-file` or `HANDOFFD_API_KEY_FILE`, else `HANDOFFD_API_KEY`, else (for a loopback address alone: it opens this machine's broker) the configured admin key, else
  `admin.key` in the data directory (in `auth.keys_dir`, where that is set). These commands take no key as an argument: the list of processes
  shows arguments. `trace` and `mcp` have `--key` for a machine that no other person uses.
- lists are tables, on a terminal with lines and within its width, elsewhere one row a line; all pages are fetched unless
  `--limit` says how many rows. `NO_COLOR` is honoured.
- `--output json` prints the API's answer as one JSON document, the pages of a list as one; `null` where the API answers
  without content. With `--watch` one document a line. An error is printed as the broker's problem (RFC 9457) on standard error.
- `--watch` or `--watch=SECONDS` looks again until interrupted; if the output is not a terminal, only differences are printed.
- secrets are printed when they are made, and never again.
- what others wrote is printed with control characters, invisible characters and marks of direction written out
  (`\\u{1b}`), in JSON as `\\u001b`.

| exit code | |
|---|---|
| 0 | success |
| 1 | the answer is no: refused with 4xx (`lint --broker`: only for an error in a contract); in bulk, one was refused or failed; a finding is an error |
| 2 | the words or settings are wrong |
| 3 | could not reach or read: no connection, 408, 429 or 5xx, a file that cannot be read |

Every command also takes `--config FILE`, `--database-url URL` and `--output text|json` (`lint` also `sarif`). `demo`, `validate`, `compress` and `scan` work without a broker's
settings, by their own arguments; `serve`, `mcp`, `openapi`, `completions`, `man` and `healthcheck` have one form of output.
";
const PAGE: &str = "docs/cli.md";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn handoffd(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handoffd"));
    // That is said to this test; to the broker it is a setting that there is not.
    command.args(arguments).env_remove("HANDOFFD_WRITE_DOCS");
    let done = command.output().expect("it runs");
    assert!(done.status.success(), "{arguments:?}: {done:?}");
    String::from_utf8(done.stdout).expect("UTF-8")
}

/// Every command, with those below it: its words and itself.
fn commands() -> Vec<(String, clap::Command)> {
    fn walk(command: &clap::Command, before: &str, out: &mut Vec<(String, clap::Command)>) {
        for one in command.get_subcommands().filter(|one| one.get_name() != "help") {
            let words = format!("{before} {}", one.get_name());
            if one.has_subcommands() {
                walk(one, &words, out);
            } else {
                out.push((words, one.clone()));
            }
        }
    }
    let mut all = Vec::new();
    walk(&handoffd::cli::command(), "handoffd", &mut all);
    all
}

/// An argument in the way in which it is said.
fn said(arg: &clap::Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let value = names.first().map_or(arg.get_id().as_str(), |name| name.as_str());
    let takes = arg.get_action().takes_values();
    match arg.get_long() {
        Some(long) if takes => format!("--{long} {value}"),
        Some(long) => format!("--{long}"),
        None => value.to_owned(),
    }
}

fn reference() -> String {
    let mut page = HEAD.to_owned();
    let mut part = String::new();
    for (words, command) in commands() {
        let next = words.split(' ').nth(1).unwrap_or_default().to_owned();
        if next != part {
            part = next;
            writeln!(page, "\n## {part}").expect("a string takes all");
        }
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(page, "\n### `{words}`\n\n{about}.").expect("a string takes all");
        let mut gap = "\n";
        for arg in command.get_arguments().filter(|arg| !arg.is_global_set()) {
            if ["help", "url", "key_file"].contains(&arg.get_id().as_str()) {
                continue;
            }
            let mut help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let values: Vec<_> = arg
                .get_possible_values()
                .iter()
                .map(|value| format!("`{}`", value.get_name()))
                .collect();
            if !values.is_empty() && arg.get_action().takes_values() {
                write!(help, ": {}", values.join(", ")).expect("a string takes all");
            }
            let needed = if arg.is_required_set() { " (needed)" } else { "" };
            writeln!(page, "{gap}- `{}`{needed}: {help}", said(arg)).expect("a string takes all");
            gap = "";
        }
    }
    page
}

#[test]
fn the_reference_is_what_is_parsed() {
    let path = root().join(PAGE);
    let page = reference();
    if std::env::var_os("HANDOFFD_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("a writable page");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == page,
        "{PAGE} is not up to date: HANDOFFD_WRITE_DOCS=1 cargo test --test house cli"
    );
    for words in ["handoffd dead-letters release-all", "handoffd keys create", "handoffd serve"] {
        assert!(page.contains(&format!("### `{words}`")), "{words}");
    }
}

#[test]
fn the_command_line_is_sound() {
    handoffd::cli::command().debug_assert();
}

#[test]
fn every_shell_gets_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = handoffd(&["completions", shell]);
        for word in ["dead-letters", "release-all", "--key-file", "completions"] {
            let word = if shell == "fish" { word.trim_start_matches("--") } else { word };
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn bash_completes_with_the_script() {
    const ASK: &str = r#"source "$1"; COMP_WORDS=(handoffd dead-letters rel); COMP_CWORD=2
        _handoffd handoffd rel dead-letters; echo "${COMPREPLY[@]}""#;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("handoffd.bash");
    std::fs::write(&path, handoffd(&["completions", "bash"])).expect("a file");
    let done = Command::new("bash").args(["-c", ASK, "bash"]).arg(&path).output().expect("bash");
    let said = String::from_utf8_lossy(&done.stdout);
    let said: Vec<_> = said.split_whitespace().collect();
    assert_eq!(said, ["release", "release-all"], "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn every_command_has_its_page_in_the_manual() {
    assert!(handoffd(&["man"]).contains(".TH handoffd"));
    let folder = tempfile::tempdir().expect("a folder");
    handoffd(&["man", "--dir", folder.path().to_str().expect("UTF-8")]);
    for (words, command) in commands() {
        let path = folder.path().join(format!("{}.1", words.replace(' ', "-")));
        let page = std::fs::read_to_string(&path).unwrap_or_else(|err| panic!("{words}: {err}"));
        let about =
            command.get_about().map(ToString::to_string).expect("every command says what it is");
        assert!(!about.is_empty() && page.contains(".SH SYNOPSIS"), "{words}");
    }
}
