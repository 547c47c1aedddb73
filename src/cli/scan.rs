//! `handoffd scan FILE…`: the safety rules over files; with `--eval`, how well they do on labelled texts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args as ClapArgs, ValueEnum};
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::answer;
use super::plain::plain;
use super::{Exit, Output};
use handoffd_domain::json;
use handoffd_gate::safety::{Explanation, FieldClass, SafetyFinding, Scanner, Tier};

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Files to scan, gzipped or not; `-` is the standard input. A JSON document is scanned like a
    /// message, anything else as one text
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The files hold a JSON object a line, {"text", "label" (1 attack, 0 harmless), "kind"}: print
    /// recall and false alarms by kind, and texts a second
    #[arg(long)]
    eval: bool,
    /// Say of each finding which words were matched, why it is certain, and which exception would fit
    #[arg(long, conflicts_with = "eval")]
    explain: bool,
    /// Class of the scanned text (the fields of a JSON document have their own, with --eval the kind of each text gives it)
    #[arg(long = "as", value_enum, default_value = "tool-output", value_name = "CLASS")]
    class: Class,
}

/// [`FieldClass`], as it is spelled here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Class {
    ToolOutput,
    UserTurn,
    Task,
    Data,
}

impl From<Class> for FieldClass {
    fn from(class: Class) -> Self {
        match class {
            Class::ToolOutput => Self::ToolOutput,
            Class::UserTurn => Self::UserTurn,
            Class::Task => Self::Task,
            Class::Data => Self::Data,
        }
    }
}

/// Scans; exit 1 if anything was found. An evaluation finds nothing, it counts.
pub(super) fn run(args: &Args, output: Output) -> Exit {
    let done = if args.eval { evaluate(&args.files, output) } else { scan(args, output) };
    done.unwrap_or_else(|why| {
        eprintln!("handoffd: {why}");
        Exit::Unreachable
    })
}

fn scan(args: &Args, output: Output) -> Result<Exit, String> {
    let scanner = Scanner::builtin();
    let (mut all, mut refused) = (Vec::new(), false);
    for file in &args.files {
        let mut bytes = Vec::new();
        open(file)?.read_to_end(&mut bytes).map_err(|err| named(file, err))?;
        let found = if let Ok(document @ (Value::Object(_) | Value::Array(_))) = json::parse(&bytes)
        {
            scanner.explain(&document, &[])
        } else {
            let text = String::from_utf8(bytes).map_err(|err| named(file, err.utf8_error()))?;
            scanner.explain_text(&text, args.class.into())
        };
        refused |= found.iter().any(|one| one.tier == Tier::Refuse);
        let (findings, marks): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|one| one.tier == Tier::Refuse);
        all.extend(findings.into_iter().chain(marks).map(|one| (file.display().to_string(), one)));
    }
    let text = match output {
        Output::Json => {
            let findings: Vec<Value> =
                all.iter().map(|(file, one)| told(file, one, args.explain)).collect();
            json!({ "rules": scanner.version(), "findings": findings }).to_string()
        }
        Output::Text if all.is_empty() => "nothing found".to_owned(),
        Output::Text => {
            let lines = all.iter().map(|(file, one)| line(file, one, args.explain));
            lines.collect::<Vec<_>>().concat()
        }
    };
    Ok(answer(&text, if refused { Exit::No } else { Exit::Success }))
}

const fn tier(one: &Explanation) -> &'static str {
    match one.tier {
        Tier::Refuse => "refuse",
        Tier::Mark => "mark",
    }
}

/// A finding as JSON.
fn told(file: &str, one: &Explanation, explain: bool) -> Value {
    let finding = &one.finding;
    let mut told = json!({
        "file": file, "tier": tier(one), "rule": finding.rule, "family": finding.family,
        "pointer": finding.pointer, "offset": finding.offset, "excerpt": finding.excerpt,
    });
    if explain {
        let (setting, value) = one.setting();
        told["fieldClass"] = json!(one.class.as_str());
        told["words"] = json!(one.words);
        told["certain"] = json!(one.certainty.as_str());
        told["because"] = json!(one.certainty.because());
        told["order"] = json!(one.order);
        told["with"] = json!(one.with);
        told["exception"] =
            json!({ setting: value, "field": one.field(), "rules": [finding.rule] });
    }
    told
}

/// A finding on a line, and why on further ones.
fn line(file: &str, one: &Explanation, explain: bool) -> String {
    let SafetyFinding { rule, family, pointer, offset, excerpt, .. } = &one.finding;
    let mut text =
        format!("{file}{pointer}:{offset}: {}: {rule} ({family}): {excerpt}\n", tier(one));
    if explain {
        let (setting, value) = one.setting();
        let field = one.field();
        let field = if field.is_empty() { String::new() } else { format!(", field = {field:?}") };
        let order = one.order.iter().map(|order| format!("  then:      {}\n", plain(order)));
        let with = Some(one.with.join(", ")).filter(|with| !with.is_empty());
        let with = with.iter().map(|with| format!("  with:      {with}\n"));
        let said = [
            format!("  words:     {}\n", plain(&one.words)),
            order.collect(),
            format!("  as:        {}\n", one.class.as_str()),
            format!("  because:   {}\n", one.certainty.because()),
            with.collect(),
            format!("  exception: {setting} = {value:?}{field}, rules = [{rule:?}]\n"),
        ];
        text.push_str(&said.concat());
    }
    text
}

/// A line of an evaluation; other members are left alone.
#[derive(Debug, Deserialize)]
struct Row {
    text: String,
    label: Label,
    kind: String,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Label {
    Number(u8),
    Flag(bool),
}

impl Label {
    const fn attack(&self) -> Option<bool> {
        match self {
            Self::Number(0) | Self::Flag(false) => Some(false),
            Self::Number(1) | Self::Flag(true) => Some(true),
            Self::Number(_) => None,
        }
    }
}

/// Texts of one kind and label, how many of them were flagged, and how many only marked.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    texts: u64,
    flagged: u64,
    marked: u64,
}

impl Count {
    fn share(self) -> f64 {
        self.flagged as f64 / self.texts as f64
    }

    fn marked(self) -> f64 {
        self.marked as f64 / self.texts as f64
    }
}

#[derive(Debug, Default)]
struct Tally {
    attacks: BTreeMap<String, Count>,
    harmless: BTreeMap<String, Count>,
    texts: u64,
    bytes: u64,
    taken: Duration,
}

fn evaluate(files: &[PathBuf], output: Output) -> Result<Exit, String> {
    let scanner = Scanner::builtin();
    let mut tally = Tally::default();
    for file in files {
        for (index, line) in BufReader::new(open(file)?).split(b'\n').enumerate() {
            let line = line.map_err(|err| named(file, err))?;
            let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line);
            if line.trim_ascii().is_empty() {
                continue;
            }
            let wrong = |why: &str| format!("{}:{}: {why}", file.display(), index + 1);
            let row: Row = serde_json::from_slice(line)
                .map_err(|err| wrong(&format!("not {{\"text\", \"label\", \"kind\"}}: {err}")))?;
            let attack = row.label.attack().ok_or_else(|| wrong("the label is neither 0 nor 1"))?;
            tally.add(&scanner, &row, attack);
        }
    }
    Ok(answer(&tally.shown(output), Exit::Success))
}

impl Tally {
    fn add(&mut self, scanner: &Scanner, row: &Row, attack: bool) {
        let begun = now();
        let report = scanner.report_text(&row.text, class_of(&row.kind));
        let flagged = !report.findings.is_empty();
        self.taken += begun.elapsed();
        self.texts += 1;
        self.bytes += row.text.len() as u64;
        let side = if attack { &mut self.attacks } else { &mut self.harmless };
        let count = side.entry(row.kind.clone()).or_default();
        count.texts += 1;
        count.flagged += u64::from(flagged);
        count.marked += u64::from(!flagged && !report.marks.is_empty());
    }

    fn shown(&self, output: Output) -> String {
        let seconds = self.taken.as_secs_f64().max(f64::MIN_POSITIVE);
        let rate = if self.texts == 0 { 0.0 } else { self.texts as f64 / seconds };
        if output == Output::Json {
            let shares = |side: &BTreeMap<String, Count>| -> BTreeMap<String, f64> {
                side.iter().map(|(kind, count)| (kind.clone(), count.share())).collect()
            };
            let (recall, fpr) = (shares(&self.attacks), shares(&self.harmless));
            let mut marked: BTreeMap<String, f64> = BTreeMap::new();
            for (kind, count) in self.attacks.iter().chain(&self.harmless) {
                marked.insert(kind.clone(), count.marked());
            }
            return json!({
                "recall": recall, "fpr": fpr, "marked": marked, "textsPerSecond": rate,
            })
            .to_string();
        }
        let mut text = String::new();
        for (title, side) in [("recall", &self.attacks), ("false alarms", &self.harmless)] {
            if side.is_empty() {
                continue;
            }
            let heads = ["texts", "flagged", "share", "marked", "share"];
            let [texts, flagged, share, marked, also] = heads;
            // Writing to a text cannot fail.
            let _ = writeln!(
                text,
                "{title:<40} {texts:>8} {flagged:>8} {share:>9} {marked:>8} {also:>9}"
            );
            let mut sum = Count::default();
            for (kind, count) in side {
                sum.texts += count.texts;
                sum.flagged += count.flagged;
                sum.marked += count.marked;
                text.push_str(&count_line(kind, *count));
            }
            text.push_str(&count_line("all", sum));
            text.push('\n');
        }
        let speed = self.bytes as f64 / 1e6 / seconds;
        let _ = writeln!(text, "{rate:.0} texts and {speed:.1} MB a second, on one core");
        text
    }
}

fn count_line(kind: &str, count: Count) -> String {
    let Count { texts, flagged, marked } = count;
    let (share, also) = (100.0 * count.share(), 100.0 * count.marked());
    format!("  {kind:<38} {texts:>8} {flagged:>8} {share:>8.3}% {marked:>8} {also:>8.3}%\n")
}

/// The class of the field that holds a text of a kind.
fn class_of(kind: &str) -> FieldClass {
    let begins = |with: &[&str]| with.iter().any(|prefix| kind.starts_with(prefix));
    if begins(&["agent_tool", "tool_", "indirect", "i:"]) {
        FieldClass::ToolOutput
    } else if begins(&["agent_user", "user_", "direct"]) {
        FieldClass::UserTurn
    } else {
        FieldClass::Data
    }
}

/// A file's bytes, unpacked where they are gzipped.
fn open(file: &Path) -> Result<Box<dyn Read>, String> {
    let raw: Box<dyn Read> = if file == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(file).map_err(|err| named(file, err))?)
    };
    let mut raw = BufReader::new(raw);
    let packed = raw.fill_buf().map_err(|err| named(file, err))?.starts_with(&[0x1f, 0x8b]);
    Ok(if packed { Box::new(MultiGzDecoder::new(raw)) } else { Box::new(raw) })
}

fn named(file: &Path, why: impl std::fmt::Display) -> String {
    format!("{}: {why}", file.display())
}

#[expect(clippy::disallowed_methods, reason = "how long a scan takes is what is asked")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_says_where_its_texts_stand() {
        for (kind, class) in [
            ("agent_tool_mail", FieldClass::ToolOutput),
            ("tool_json", FieldClass::ToolOutput),
            ("indirect_latent", FieldClass::ToolOutput),
            ("i:wrapper", FieldClass::ToolOutput),
            ("agent_user", FieldClass::UserTurn),
            ("user_request", FieldClass::UserTurn),
            ("direct_jailbreak", FieldClass::UserTurn),
            ("code", FieldClass::Data),
            ("", FieldClass::Data),
        ] {
            assert_eq!(class_of(kind), class, "{kind}");
        }
    }
}
