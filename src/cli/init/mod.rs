//! `handoffd init`: two agents, the edge between them and its contract as files for `handoffd apply`, and a sender and a
//! receiver in the language of the folder.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, ValueEnum};
use serde_json::{Value, json};

use super::answer::answer;
use super::declared::dump::{create, declared};
use super::plain::plain;
use super::{Exit, Output};

/// The folder of the declared objects.
const OBJECTS: &str = "handoffd";
/// The file for the agents' keys, which the programs read.
const KEYS: &str = "hello-keys.jsonl";

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The folder to write into; this one unless said
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// The language of the two programs; that of the folder unless said
    #[arg(long, value_enum)]
    language: Option<Language>,
}

/// A language of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Language {
    Python,
    Node,
    Shell,
}

impl Language {
    /// The language of a folder, by the files that tools expect there; shell where there is none.
    fn of(folder: &Path) -> Self {
        let names: Vec<String> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        let has = |test: &dyn Fn(&str) -> bool| names.iter().any(|name| test(name));
        let ends = |name: &str, endings: &[&str]| {
            let ending = Path::new(name).extension().and_then(|ending| ending.to_str());
            ending.is_some_and(|ending| endings.contains(&ending))
        };
        let python =
            ["pyproject.toml", "setup.py", "setup.cfg", "Pipfile", "uv.lock", ".python-version"];
        let node = ["package.json", "tsconfig.json", "node_modules", ".nvmrc"];
        if has(&|name| python.contains(&name) || name.starts_with("requirements")) {
            Self::Python
        } else if has(&|name| node.contains(&name)) {
            Self::Node
        } else if has(&|name| ends(name, &["py"]) || [".venv", "venv"].contains(&name)) {
            Self::Python
        } else if has(&|name| ends(name, &["ts", "mts", "js", "mjs"])) {
            Self::Node
        } else {
            Self::Shell
        }
    }

    /// The receiver and the sender: names and texts.
    const fn programs(self) -> [(&'static str, &'static str); 2] {
        match self {
            Self::Python => [
                ("hello_receiver.py", include_str!("hello_receiver.py")),
                ("hello_sender.py", include_str!("hello_sender.py")),
            ],
            Self::Node => [
                ("hello_receiver.mjs", include_str!("hello_receiver.mjs")),
                ("hello_sender.mjs", include_str!("hello_sender.mjs")),
            ],
            Self::Shell => [
                ("hello_receiver.sh", include_str!("hello_receiver.sh")),
                ("hello_sender.sh", include_str!("hello_sender.sh")),
            ],
        }
    }

    const fn interpreter(self) -> &'static str {
        match self {
            Self::Python => "python3",
            Self::Node => "node",
            Self::Shell => "sh",
        }
    }
}

/// The objects, as files state them.
fn objects() -> [Value; 4] {
    [
        json!({
            "kind": "Agent", "agentId": "hello-sender", "description": "Hands out greetings to be made.",
        }),
        json!({
            "kind": "Agent", "agentId": "hello-receiver", "description": "Greets by name.",
            "domains": ["greetings"], "permissions": ["perm:greet"],
        }),
        json!({ "kind": "Allowlist", "agentId": "hello-sender", "handoffTargets": ["hello-receiver"] }),
        json!({
            "kind": "Contract", "id": "hello", "version": "1.0.0", "source": "hello-sender", "target": "hello-receiver",
            "trigger": { "intent": "A greeting is to be made.", "predicate": "state.name != ''" },
            "payload": {
                "schema": { "type": "object", "properties": { "name": { "type": "string", "minLength": 1 } }, "required": ["name"] },
                "required": ["task_summary", "provenance", "constraints.language"],
                "history_strategy": "summary",
            },
            "acceptance_criteria": {
                "required_fields": ["task_summary"],
                "domain_match": "target.domains contains 'greetings'",
                "permission_check": "perm:greet",
            },
            "recovery": {
                "on_reject": "source", "on_timeout": "source", "on_error": "source",
                "timeout_ms": 60_000, "max_retries": 3, "loop_guard": 5,
            },
            "observability": {
                "trace_id_field": "payload.traceparent", "audit_event": "handoff.hello", "metrics": ["handoff.latency_ms"],
            },
            "idempotency": { "idempotent": true, "dedupe_key": "payload.handoff_id", "replay_window_ms": 60_000 },
            "human_in_the_loop": false,
        }),
    ]
}

/// Writes the files; prints the commands that run them.
pub(super) fn run(args: &Args, output: Output) -> Exit {
    let language = args.language.unwrap_or_else(|| Language::of(&args.folder));
    match write(&args.folder, language) {
        Ok(files) => answer(&shown(&args.folder, language, &files, output), Exit::Success),
        Err((exit, why)) => {
            eprintln!("handoffd: {}", plain(&why));
            exit
        }
    }
}

fn write(folder: &Path, language: Language) -> Result<Vec<PathBuf>, (Exit, String)> {
    let failed = |why: String| (Exit::Unreachable, why);
    let mut files = declared(&objects()).map_err(failed)?;
    for (path, _) in &mut files {
        *path = Path::new(OBJECTS).join(&*path);
    }
    files.extend(language.programs().map(|(name, text)| (PathBuf::from(name), text.to_owned())));
    let there = |path: &&PathBuf| std::fs::symlink_metadata(folder.join(path)).is_ok();
    let taken: Vec<String> = files
        .iter()
        .map(|(path, _)| path)
        .filter(there)
        .map(|path| path.display().to_string())
        .collect();
    if !taken.is_empty() {
        let why = format!("nothing was written: there is {} already", taken.join(", "));
        return Err((Exit::No, why));
    }
    for (path, text) in &files {
        create(&folder.join(path), text).map_err(failed)?;
    }
    Ok(files.into_iter().map(|(path, _)| path).collect())
}

/// The two commands that apply the objects and run the programs.
fn commands(folder: &Path, language: Language) -> [String; 2] {
    let [(receiver, _), (sender, _)] = language.programs();
    let by = language.interpreter();
    let at = |name: &str| {
        let path = if folder == Path::new(".") { PathBuf::from(name) } else { folder.join(name) };
        let text = path.display().to_string();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte);
        if text.bytes().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
    };
    [
        format!("handoffd apply -f {} --secrets-out {}", at(OBJECTS), at(KEYS)),
        format!("{by} {} --once & {by} {}", at(receiver), at(sender)),
    ]
}

fn shown(folder: &Path, language: Language, files: &[PathBuf], output: Output) -> String {
    let commands = commands(folder, language);
    if output == Output::Json {
        let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        return json!({ "files": files, "commands": commands }).to_string();
    }
    let mut out = String::new();
    let hidden = Path::new(OBJECTS).join(".schemas");
    for path in files.iter().filter(|path| !path.starts_with(&hidden)) {
        let _ = writeln!(out, "wrote {}", plain(&folder.join(path).display().to_string()));
    }
    let [apply, run] = commands;
    let _ = writeln!(
        out,
        "\nBeside `handoffd serve`, in the folder where it was started:\n\n  {apply}\n  {run}\n\n{KEYS} will hold keys: keep it out of the repository."
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_is_that_of_the_folder() {
        for (files, wanted) in [
            (&[][..], Language::Shell),
            (&["README.md"], Language::Shell),
            (&["package.json"], Language::Node),
            (&["package.json", "tool.py"], Language::Node),
            (&["package.json", "pyproject.toml"], Language::Python),
            (&["requirements-dev.txt"], Language::Python),
            (&["main.py"], Language::Python),
            (&[".venv"], Language::Python),
            (&["tsconfig.json"], Language::Node),
            (&["index.ts"], Language::Node),
        ] {
            let folder = tempfile::tempdir().unwrap();
            for file in files {
                std::fs::write(folder.path().join(file), "").unwrap();
            }
            assert_eq!(Language::of(folder.path()), wanted, "{files:?}");
        }
    }

    #[test]
    fn nothing_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("hello_sender.sh"), "mine").unwrap();
        let (exit, why) = write(folder.path(), Language::Shell).unwrap_err();
        assert!(exit == Exit::No && why.contains("hello_sender.sh"), "{why}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_commands_name_the_folder_as_a_shell_reads_it() {
        let [apply, run] = commands(Path::new("it's here"), Language::Python);
        assert!(apply.contains(r"-f 'it'\''s here/handoffd' "), "{apply}");
        assert!(run.starts_with(r"python3 'it'\''s here/hello_receiver.py' --once &"), "{run}");
    }
}
