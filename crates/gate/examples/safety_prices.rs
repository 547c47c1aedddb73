//! The price list of the safety rules: how often each refuses and marks honest text, by language and size of the field.
//!
//! `safety_prices [--rules FILE] [--limits] [--as CLASS] [--show N] FOLDER`: FOLDER holds files `LANGUAGE.txt`,
//! `LANGUAGE-SOURCE.txt` or `LANGUAGE/SOURCE.txt`, a sentence a line (`#` begins a remark). Each sentence is a field, and so are
//! 800 bytes and 8 KB of them. Beside each figure stand the number of fields and the 95 % upper bound. `--limits` ends with
//! exit code 1 where more is refused or marked than `docs/safety.md` promises; `--rules` prices another file of rules;
//! `--show N` prints up to N fields of each rule and language. Files `NAME.jsonl` hold a field a line, `{"text": …}`, and are
//! counted by their name: turns of users with their ends of lines, attacks.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use handoffd_gate::safety::rules::Rules;
use handoffd_gate::safety::{FieldClass, SafetyFinding, Scanner};

/// Bytes of the longer fields; a field of a `.jsonl` file is as long as it is.
const SIZES: [(&str, usize); 4] = [("sentence", 0), ("800 B", 800), ("8 KB", 8_000), ("text", 0)];

/// The place of a `.jsonl` file's fields among the sizes.
const TEXT: usize = 3;

/// How much of a field `--show` prints before and behind a finding, in bytes.
const BEFORE: usize = 240;
const BEHIND: usize = 240;

/// The most that may be marked: one field in so many, of one sentence and of 800 bytes.
const MARKED: u64 = 100;

type Failure = Box<dyn std::error::Error>;

/// Fields, and how many of them were refused and only marked.
#[derive(Debug, Default, Clone, Copy)]
struct Price {
    fields: u64,
    refused: u64,
    marked: u64,
}

struct Options {
    scanner: Scanner,
    class: FieldClass,
    limits: bool,
    show: usize,
    folder: PathBuf,
}

fn main() -> Result<ExitCode, Failure> {
    let options = options()?;
    let mut all: BTreeMap<(String, usize), Price> = BTreeMap::new();
    let mut rules: BTreeMap<(String, String, usize), Price> = BTreeMap::new();
    for (language, path) in files(&options.folder)? {
        let text = std::fs::read_to_string(&path)?;
        for (at, fields) in of_file(&path, &text)? {
            for field in fields {
                let report = options.scanner.report_text(&field, options.class);
                let (refused, marked) = (!report.findings.is_empty(), !report.marks.is_empty());
                let price = all.entry((language.clone(), at)).or_default();
                price.fields += 1;
                price.refused += u64::from(refused);
                price.marked += u64::from(!refused && marked);
                for (list, refuses) in [(&report.findings, true), (&report.marks, false)] {
                    for name in names(list) {
                        let price =
                            rules.entry((name.to_owned(), language.clone(), at)).or_default();
                        let count = if refuses { &mut price.refused } else { &mut price.marked };
                        *count += 1;
                        if *count <= options.show as u64 {
                            let tier = if refuses { "refused" } else { "marked" };
                            let near = around(&field, list.iter().find(|one| one.rule == name));
                            println!("{tier} {name} {language}: {near}");
                        }
                    }
                }
            }
        }
    }
    print!("{}", table(&all, &rules));
    let over = over(&all);
    if options.limits && !over.is_empty() {
        eprint!("{over}");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn options() -> Result<Options, Failure> {
    let mut scanner = Scanner::builtin();
    let (mut class, mut limits, mut show, mut folder) = (FieldClass::ToolOutput, false, 0, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--rules" => {
                scanner = Scanner::with_rules(Rules::load(&std::fs::read_to_string(value()?)?)?);
            }
            "--as" => {
                class = match value()?.as_str() {
                    "tool-output" => FieldClass::ToolOutput,
                    "user-turn" => FieldClass::UserTurn,
                    "task" => FieldClass::Task,
                    "data" => FieldClass::Data,
                    other => return Err(format!("{other} is not a class of fields").into()),
                };
            }
            "--show" => show = value()?.parse()?,
            "--limits" => limits = true,
            _ => folder = Some(PathBuf::from(argument)),
        }
    }
    let folder = folder.ok_or("usage: safety_prices [--rules FILE] [--limits] FOLDER")?;
    Ok(Options { scanner, class, limits, show, folder })
}

/// The fields of a file by their size.
fn of_file(path: &Path, text: &str) -> Result<Vec<(usize, Vec<String>)>, Failure> {
    if path.extension().is_some_and(|one| one == "jsonl") {
        let mut texts = Vec::new();
        for line in text.lines() {
            let row: serde_json::Value = serde_json::from_str(line)?;
            texts.push(row["text"].as_str().ok_or("a line without a text")?.to_owned());
        }
        return Ok(vec![(TEXT, texts)]);
    }
    let lines = text.lines().map(str::trim);
    let sentences: Vec<&str> =
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let sizes = SIZES[..TEXT].iter().enumerate();
    Ok(sizes.map(|(at, (_, size))| (at, fields(&sentences, *size))).collect())
}

/// A line with the words around a finding of a field; `[[` and `]]` enclose the finding.
fn around(field: &str, found: Option<&SafetyFinding>) -> String {
    let (start, end) = found.map_or((0, 0), |one| (one.offset, one.end));
    let from = field.floor_char_boundary(start.min(field.len()).saturating_sub(BEFORE));
    let to = field.ceil_char_boundary((end + BEHIND).min(field.len()));
    let start = field.floor_char_boundary(start.clamp(from, to));
    let end = field.ceil_char_boundary(end.clamp(start, to));
    let text = format!("{}[[{}]]{}", &field[from..start], &field[start..end], &field[end..to]);
    text.replace('\n', "\\n")
}

/// The files of a folder with their languages, in order.
fn files(folder: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                found.push((stem.clone(), entry?.path()));
            }
        } else if path.extension().is_some_and(|one| one == "txt") {
            let language = stem.split('-').next().unwrap_or_default().to_owned();
            found.push((language, path));
        } else if path.extension().is_some_and(|one| one == "jsonl") {
            found.push((stem, path));
        }
    }
    found.sort();
    Ok(found)
}

/// Neighbouring sentences in fields of at least that size; the rest at the end is a field, too.
fn fields(sentences: &[&str], size: usize) -> Vec<String> {
    let mut fields = Vec::new();
    let mut field = String::new();
    for sentence in sentences {
        if !field.is_empty() {
            field.push(' ');
        }
        field.push_str(sentence);
        if field.len() >= size {
            fields.push(std::mem::take(&mut field));
        }
    }
    fields.extend(Some(field).filter(|field| !field.is_empty()));
    fields
}

fn names(found: &[SafetyFinding]) -> Vec<&str> {
    let mut names: Vec<&str> = found.iter().map(|one| one.rule.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The upper bound of a share of which `hits` of `of` were seen, at 95 % (Clopper and Pearson, one side).
fn bound(hits: u64, of: u64) -> f64 {
    if hits >= of {
        return 1.0;
    }
    let (mut low, mut high) = (hits as f64 / of as f64, 1.0);
    for _ in 0..60 {
        let share = f64::midpoint(low, high);
        // The chance of so few hits, summed up by its logarithms.
        let mut term = of as f64 * (-share).ln_1p();
        let mut chance = term.exp();
        for hit in 0..hits {
            term += ((of - hit) as f64 / (hit + 1) as f64).ln() + (share / (1.0 - share)).ln();
            chance += term.exp();
        }
        if chance > 0.05 { low = share } else { high = share }
    }
    high
}

fn table(
    all: &BTreeMap<(String, usize), Price>,
    rules: &BTreeMap<(String, String, usize), Price>,
) -> String {
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = writeln!(
        text,
        "{:<10} {:<9} {:>8} {:>8} {:>16} {:>8} {:>8} {:>8}",
        "language", "field", "fields", "refused", "at most, 1e-5", "marked", "share", "at most"
    );
    let mut sums = [Price::default(); SIZES.len()];
    let mut row = |language: &str, at: usize, price: &Price| {
        let Price { fields, refused, marked } = *price;
        let _ = writeln!(
            text,
            "{language:<10} {:<9} {fields:>8} {refused:>8} {:>16.1} {marked:>8} {:>7.2}% {:>7.2}%",
            SIZES[at].0,
            1e5 * bound(refused, fields),
            100.0 * marked as f64 / fields as f64,
            100.0 * bound(marked, fields),
        );
    };
    for ((language, at), price) in all {
        row(language, *at, price);
        sums[*at].fields += price.fields;
        sums[*at].refused += price.refused;
        sums[*at].marked += price.marked;
    }
    for (at, price) in sums.iter().enumerate().filter(|(_, price)| price.fields > 0) {
        row("all", at, price);
    }
    let _ = writeln!(text, "\n{:<44} {:<10} {:<9} refused marked of", "rule", "language", "field");
    for ((rule, language, at), price) in rules {
        let of = all.get(&(language.clone(), *at)).map_or(0, |price| price.fields);
        let Price { refused, marked, .. } = price;
        let _ =
            writeln!(text, "{rule:<44} {language:<10} {:<9} {refused} {marked} {of}", SIZES[*at].0);
    }
    text
}

/// What is over the promises, in sentences. A small sample may have two marks more.
fn over(all: &BTreeMap<(String, usize), Price>) -> String {
    let mut text = String::new();
    for ((language, at), price) in all {
        let Price { fields, refused, marked } = *price;
        // Writing to a text cannot fail.
        if refused > 0 {
            let _ = writeln!(
                text,
                "{language}: {refused} of {fields} fields of {} are refused",
                SIZES[*at].0
            );
        }
        if *at == 0 && marked > fields / MARKED + 2 {
            let _ = writeln!(text, "{language}: {marked} of {fields} sentences are marked");
        }
    }
    text
}
