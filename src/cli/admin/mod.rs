//! The commands for operators, over the API of a running broker: `handoffd agents list` and so on. Tables describe the
//! commands (`resource.rs`), one file per resource; this file builds the commands from them.

use std::collections::HashSet;
use std::io::{self, IsTerminal, Read, Write};
use std::time::Duration;

use clap::{Arg as ClapArg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use serde_json::Value;

use self::resource::ArgValues;
use self::resource::{Action, Arg, Kind, Pages, Resource, Shape};
use self::show::OutputMedium;
use super::client::{Client, ClientError, Reach, Request};
use super::plain;
use super::{Exit, Output};
use handoffd_broker::config::Config;

mod agents;
mod allowlist;
mod attention;
mod bulk;
mod caps;
mod contracts;
mod costs;
mod data_subjects;
mod dead_letters;
mod delivery_fields;
mod erasures;
mod escalations;
mod events;
mod handoffs;
mod heads;
mod holds;
mod keys;
mod receivers;
mod refusals;
mod request;
mod resource;
mod schemas;
mod sessions;
mod show;
mod subscriptions;
mod tasks;
mod what_if;

/// All of them, in the order of the help.
const RESOURCES: [&Resource; 22] = [
    &agents::RESOURCE,
    &allowlist::RESOURCE,
    &contracts::RESOURCE,
    &schemas::RESOURCE,
    &what_if::RESOURCE,
    &handoffs::RESOURCE,
    &refusals::RESOURCE,
    &dead_letters::RESOURCE,
    &escalations::RESOURCE,
    &tasks::RESOURCE,
    &costs::RESOURCE,
    &attention::RESOURCE,
    &receivers::RESOURCE,
    &sessions::RESOURCE,
    &caps::RESOURCE,
    &keys::RESOURCE,
    &subscriptions::RESOURCE,
    &events::RESOURCE,
    &holds::RESOURCE,
    &data_subjects::RESOURCE,
    &erasures::RESOURCE,
    &heads::RESOURCE,
];

/// Rows requested per page: the largest page of the API.
const PAGE: usize = 500;
/// Pages without a row, one after the other, after which a list has no end: a filter may pass over some.
const MAX_EMPTY: usize = 1_000;
/// Rows of a list that is asked for without `--limit`: some hundred megabytes of them.
const MAX_ROWS: usize = 500_000;
/// Default interval of `--watch`, in seconds.
const LOOK: &str = "2";
/// Bold, and back: what the headings of a table are on a terminal.
const BOLD: [&str; 2] = ["\u{1b}[1m", "\u{1b}[0m"];
/// To the upper left corner, and everything away.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J\u{1b}[3J";

/// An action and its parsed arguments.
#[derive(Debug)]
pub(super) struct ActionRequest {
    resource: &'static Resource,
    action: &'static Action,
    matches: ArgMatches,
}

impl FromArgMatches for ActionRequest {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let resource = RESOURCES.into_iter().find(|one| one.name == name).ok_or_else(missing)?;
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let action = resource.actions.iter().find(|one| one.name == name).ok_or_else(missing)?;
        Ok(Self { resource, action, matches: matches.clone() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for ActionRequest {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommands(RESOURCES.map(command_of))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        RESOURCES.iter().any(|one| one.name == name)
    }
}

fn command_of(resource: &Resource) -> Command {
    let actions = resource.actions.iter().map(|action| {
        let mut command = Command::new(action.name).about(action.about);
        command = command.args(action.args.iter().map(arg_of));
        if action.args.iter().any(|arg| arg.kind == Kind::Fields) {
            command = command.after_help(delivery_fields::help());
        }
        if action.pages.is_some() {
            let limit = ClapArg::new("limit")
                .long("limit")
                .value_name("ROWS")
                .help("So many rows at most; all unless said");
            command = command.arg(limit.value_parser(clap::value_parser!(u64).range(1..)));
        }
        if action.asks.is_some() {
            let yes =
                ClapArg::new("yes").long("yes").help("Do not ask; needed if no person can answer");
            command = command.arg(yes.action(ArgAction::SetTrue));
        }
        if action.watch {
            let watch = ClapArg::new("watch")
                .long("watch")
                .value_name("SECONDS")
                .help("Look again so often, until stopped");
            let watch = watch.num_args(0..=1).default_missing_value(LOOK).require_equals(true);
            command = command.arg(watch.value_parser(clap::value_parser!(u64).range(1..=3_600)));
        }
        Reach::augment_args(command)
    });
    Command::new(resource.name)
        .about(resource.about)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(actions)
}

fn arg_of(arg: &Arg) -> ClapArg {
    let mut made = ClapArg::new(arg.name).help(arg.help).required(arg.required);
    // A positional argument has no option name.
    if !arg.positional {
        made = made.long(arg.name);
        if arg.kind != Kind::Flag {
            made = made.value_name(match arg.kind {
                Kind::File | Kind::Contract => "FILE",
                Kind::Number | Kind::Whole => "NUMBER",
                Kind::Truth => "BOOL",
                Kind::Choice(_) => "WORD",
                Kind::Fields => "KEY=VALUE",
                Kind::Text | Kind::List | Kind::Flag => "TEXT",
            });
        }
    }
    match arg.kind {
        Kind::Text | Kind::File | Kind::Contract => made,
        Kind::Flag => made.action(ArgAction::SetTrue),
        Kind::List if arg.positional => made.num_args(1..),
        Kind::List => made.action(ArgAction::Append),
        Kind::Fields => made.action(ArgAction::Append).value_parser(delivery_fields::read),
        Kind::Truth => made.value_parser(["true", "false"]),
        Kind::Choice(of) => made.value_parser(clap::builder::PossibleValuesParser::new(of)),
        Kind::Number => made.value_parser(number),
        Kind::Whole => made.value_parser(clap::value_parser!(u64)),
    }
}

/// A number as JSON writes it.
fn number(text: &str) -> Result<f64, String> {
    serde_json::from_str(text).map_err(|_| "must be a number such as 12.5".to_owned())
}

pub(super) async fn run(asked: ActionRequest, config: Config, output: Output) -> Exit {
    match carry_out(&asked, &config, output).await {
        Ok(exit) => exit,
        Err(AdminError::Output(err)) if err.kind() == io::ErrorKind::BrokenPipe => Exit::Success,
        Err(trouble) => {
            complain(&trouble, output);
            match trouble {
                AdminError::Usage(_) => Exit::Usage,
                AdminError::Api(err) => err.exit(),
                AdminError::Input(_) | AdminError::Output(_) => Exit::Unreachable,
            }
        }
    }
}

/// Why an action failed.
enum AdminError {
    /// The arguments are invalid.
    Usage(String),
    /// A file could not be read.
    Input(String),
    /// The answer could not be written.
    Output(io::Error),
    Api(ClientError),
}

/// Prints the error; as JSON the problem document of the broker.
fn complain(trouble: &AdminError, output: Output) {
    let said = match trouble {
        AdminError::Usage(why) | AdminError::Input(why) => {
            format!("handoffd: {}", plain::plain(why))
        }
        AdminError::Output(err) => format!("handoffd: the answer cannot be written: {err}"),
        AdminError::Api(err) => err.shown(output),
    };
    let _ = writeln!(io::stderr(), "{said}");
}

async fn carry_out(
    asked: &ActionRequest,
    config: &Config,
    output: Output,
) -> Result<Exit, AdminError> {
    let ActionRequest { resource, action, matches } = asked;
    let given = given(action, matches)?;
    let request = (action.plan)(action, &given).map_err(AdminError::Usage)?;
    if let Some(question) = action.asks
        && !matches.get_flag("yes")
        && given.one("dry-run").is_none()
        && !agrees(question).map_err(AdminError::Usage)?
    {
        return Ok(Exit::No);
    }
    let number = |name: &str| matches.try_get_one::<u64>(name).ok().flatten().copied();
    let limit =
        number("limit").map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let reach =
        Reach::from_arg_matches(matches).map_err(|err| AdminError::Usage(err.to_string()))?;
    let key = std::env::var("HANDOFFD_API_KEY").ok().filter(|key| !key.is_empty());
    let client = Client::new(&reach, key, config).map_err(AdminError::Api)?;
    let parts = action.parts.filter(|_| given.one("dry-run").is_none());
    let ask = async || match parts {
        Some(parts) => bulk::all(&client, &request, parts).await,
        None => fetch(&client, &request, action.pages, limit).await,
    };
    let printer = Printer::new(output, &action.shape);
    if let Some(seconds) = number("watch") {
        return watch(&printer, Duration::from_secs(seconds), ask).await;
    }
    let answer = ask().await.map_err(AdminError::Api)?;
    printer.print(&answer).map_err(AdminError::Output)?;
    let mut aside = io::stderr();
    if output == Output::Text && printer.is_empty(&answer) {
        let of_resource = ["list", "match"].contains(&action.name);
        let rows = if of_resource { resource.name } else { action.name };
        let _ = writeln!(aside, "handoffd: no {}", rows.replace('-', " "));
    }
    for name in show::secrets(&answer) {
        let _ = writeln!(aside, "handoffd: {name} is shown this once: keep it now");
    }
    Ok(if (action.well)(&answer) { Exit::Success } else { Exit::No })
}

/// Asks the person at the terminal.
fn agrees(question: &str) -> Result<bool, String> {
    let input = io::stdin();
    if !input.is_terminal() {
        return Err(format!("{question} Say --yes, or --dry-run to see what would go"));
    }
    let asked =
        write!(io::stderr(), "handoffd: {question} [y/N] ").and_then(|()| io::stderr().flush());
    asked.map_err(|err| err.to_string())?;
    let mut line = String::new();
    io::BufRead::read_line(&mut input.lock(), &mut line).map_err(|err| err.to_string())?;
    Ok(["y", "yes"].iter().any(|yes| line.trim().eq_ignore_ascii_case(yes)))
}

/// Reads the arguments and the files that they name.
fn given(action: &Action, matches: &ArgMatches) -> Result<ArgValues, AdminError> {
    let mut given = ArgValues::default();
    for arg in action.args {
        if arg.kind == Kind::Flag {
            if matches.get_flag(arg.name) {
                given.0.insert(arg.name, vec!["true".to_owned()]);
            }
            continue;
        }
        let Some(raw) = matches.get_raw(arg.name) else { continue };
        let texts = raw.map(|text| text.to_str().map(str::to_owned));
        let mut texts = texts
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| AdminError::Usage(format!("{} is not UTF-8", arg.name)))?;
        if matches!(arg.kind, Kind::File | Kind::Contract) {
            for path in &mut texts {
                let text = read(path).map_err(|err| AdminError::Input(format!("{path}: {err}")))?;
                *path = match arg.kind {
                    Kind::Contract => contracts::self_contained(text, path),
                    _ => text,
                };
            }
        }
        given.0.insert(arg.name, texts);
    }
    Ok(given)
}

fn read(path: &str) -> io::Result<String> {
    if path == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(path)
}

/// Fetches the answer; all pages of a list as one, up to a number of rows.
async fn fetch(
    client: &Client,
    request: &Request,
    pages: Option<Pages>,
    limit: usize,
) -> Result<Value, ClientError> {
    let Some(pages) = pages else { return client.call(request).await };
    let mut rows = Vec::new();
    let mut next: Option<String> = None;
    let (mut seen, mut empty) = (HashSet::new(), 0);
    let endless = |why: &str| {
        ClientError::Endless(format!("the list does not end: {why}; is this a handoffd?"))
    };
    loop {
        let mut asked = request.clone();
        let size = PAGE.min(limit - rows.len());
        asked.query.push(("limit".to_owned(), size.to_string()));
        asked.query.extend(next.take().map(|cursor| (pages.parameter.to_owned(), cursor)));
        let mut page = client.call(&asked).await?;
        next = (pages.next)(&page);
        let before = rows.len();
        if let Some(items) = page.get_mut("items").and_then(Value::as_array_mut) {
            rows.append(items);
        }
        empty = if rows.len() == before { empty + 1 } else { 0 };
        if limit == usize::MAX && rows.len() > MAX_ROWS {
            let why = format!("the list has more than {MAX_ROWS} rows: give --limit, or a filter");
            return Err(ClientError::Endless(why));
        }
        if empty == MAX_EMPTY {
            return Err(endless("page after page is empty"));
        }
        if let Some(cursor) = &next
            && !seen.insert(cursor.clone())
        {
            return Err(endless("a page leads back to one that was read"));
        }
        if next.is_none() || rows.len() >= limit {
            // The last page, with what came before it: where it was cut, its cursor says how to go on.
            page["items"] = Value::Array(rows);
            return Ok(page);
        }
    }
}

/// Looks again and again until a signal. On a terminal each look takes the place of the one before;
/// elsewhere only what differs is printed. A broker that is away for a while is waited for.
async fn watch(
    printer: &Printer<'_>,
    pause: Duration,
    ask: impl AsyncFn() -> Result<Value, ClientError>,
) -> Result<Exit, AdminError> {
    let stop = tokio::signal::ctrl_c();
    tokio::pin!(stop);
    let mut before = None;
    loop {
        let answer = tokio::select! {
            biased;
            _ = &mut stop => return Ok(Exit::Success),
            answer = ask() => answer,
        };
        match answer {
            Ok(answer) if before.as_ref() != Some(&answer) => {
                printer.renew(&answer).map_err(AdminError::Output)?;
                before = Some(answer);
            }
            Ok(_) => {}
            Err(err) if before.is_none() || err.exit() != Exit::Unreachable => {
                return Err(AdminError::Api(err));
            }
            Err(err) => {
                let _ = writeln!(io::stderr(), "handoffd: {err}");
            }
        }
        tokio::select! {
            biased;
            _ = &mut stop => return Ok(Exit::Success),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// How answers go to the standard output.
struct Printer<'a> {
    output: Output,
    shape: &'a Shape,
    terminal: bool,
}

impl<'a> Printer<'a> {
    fn new(output: Output, shape: &'a Shape) -> Self {
        Self { output, shape, terminal: io::stdout().is_terminal() }
    }

    fn text(&self, answer: &Value) -> String {
        if self.output == Output::Json {
            return plain::json(answer, self.terminal) + "\n";
        }
        let paper = if self.terminal {
            let width = terminal_size::terminal_size().map_or(80, |(width, _)| width.0);
            OutputMedium::Terminal(width.max(20))
        } else {
            OutputMedium::Plain
        };
        let text = show::show(answer, self.shape, paper);
        let coloured = self.terminal && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
        if coloured && matches!(self.shape, Shape::Rows { .. }) { bold_head(&text) } else { text }
    }

    fn is_empty(&self, answer: &Value) -> bool {
        matches!(self.shape, Shape::Rows { at, foot, .. } if foot.is_empty()
            && answer.pointer(at).and_then(Value::as_array).is_none_or(Vec::is_empty))
    }

    fn print(&self, answer: &Value) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(self.text(answer).as_bytes())?;
        out.flush()
    }

    /// Replaces the lines that were printed before.
    fn renew(&self, answer: &Value) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.terminal {
            out.write_all(CLEAR.as_bytes())?;
        }
        out.write_all(self.text(answer).as_bytes())?;
        out.flush()
    }
}

/// The headings in bold: the lines above the double line.
fn bold_head(text: &str) -> String {
    let Some(end) = text.find('═') else { return text.to_owned() };
    let [bold, back] = BOLD;
    let head: String = text[..end]
        .lines()
        .map(|line| {
            if line.contains('─') { format!("{line}\n") } else { format!("{bold}{line}{back}\n") }
        })
        .collect();
    head + &text[end..]
}

#[cfg(test)]
mod tests {
    use super::resource::ArgTarget;
    use super::*;

    #[test]
    fn every_place_in_a_path_has_its_argument_and_every_argument_a_place() {
        for (resource, action) in
            RESOURCES.iter().flat_map(|one| one.actions.iter().map(move |action| (one, action)))
        {
            let at = format!("{} {}", resource.name, action.name);
            let wanted: Vec<_> = action
                .path
                .split('/')
                .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
                .collect();
            let has: Vec<_> = action
                .args
                .iter()
                .filter(|arg| arg.goes == ArgTarget::Path)
                .map(|arg| arg.name)
                .collect();
            let planned = action.args.iter().any(|arg| arg.goes == ArgTarget::Plan);
            assert!(wanted == has || planned, "{at}: {wanted:?} {has:?}");
        }
    }

    /// The published interface has what the tables ask for: path and method, parameters, members.
    #[test]
    fn every_action_is_in_the_published_interface() {
        let document = serde_json::to_value(crate::http::router::openapi()).unwrap();
        let shape = |path: &str| {
            path.split('/')
                .map(|part| if part.starts_with('{') { "{}" } else { part })
                .collect::<Vec<_>>()
                .join("/")
        };
        let paths = document["paths"].as_object().unwrap();
        for (resource, action) in
            RESOURCES.iter().flat_map(|one| one.actions.iter().map(move |action| (one, action)))
        {
            let at = format!("{} {}", resource.name, action.name);
            let method = action.verb.method().as_str().to_lowercase();
            let operations: Vec<_> = paths
                .iter()
                .filter(|(path, _)| shape(path) == shape(action.path))
                .filter_map(|(_, item)| item.get(&method))
                .collect();
            // `/agents/{agent}` must not find `/agents/match`, nor the other way round.
            let literal = !action.path.ends_with('}');
            let exact: Vec<_> = paths
                .iter()
                .filter(|(path, _)| {
                    path.ends_with('}') != literal && shape(path) == shape(action.path)
                })
                .collect();
            assert!(!exact.is_empty() && !operations.is_empty(), "{at}: {method} {}", action.path);
            let parameters: Vec<&str> = operations
                .iter()
                .filter_map(|one| one["parameters"].as_array())
                .flatten()
                .filter_map(|one| one["name"].as_str())
                .collect();
            for arg in action.args {
                if let ArgTarget::Query(name) = arg.goes {
                    assert!(parameters.contains(&name), "{at}: {name} is not in {parameters:?}");
                }
            }
            if let Some(pages) = action.pages {
                assert!(
                    parameters.contains(&"limit") && parameters.contains(&pages.parameter),
                    "{at}"
                );
            }
        }
    }
}
