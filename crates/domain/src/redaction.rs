//! Redaction by policy (seed 000 §6.2): values that are never stored, from any sender, named by JSON pointers with
//! `*` for one level and `**` for any number of levels.
//!
//! Redaction runs after the gate's verdict and before anything is made of the message: the stored, delivered,
//! compared and committed message is the redacted one. So the log shows what the receiver saw, and no stored hash
//! covers the value.

use serde_json::{Value, json};

use super::credential::{self, SecretPolicy};
use super::members::{BROKER_MEMBERS, CONTENT_MEMBERS};

/// One level of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternStep {
    /// A member of that name, or the item of that index.
    Name(String),
    /// Any one level.
    One,
    /// Any number of levels, including none.
    Deep,
}

/// The values to replace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RedactionPolicy {
    patterns: Vec<Vec<PatternStep>>,
    pub secrets: SecretPolicy,
}

/// Replaces a redacted string; valid as a constraint too, which needs a colon.
pub const REDACTED: &str = "[REDACTED:policy]";

/// Replace a redacted time and digest, which must have a valid form.
const NO_TIME: &str = "1970-01-01T00:00:00Z";
const NO_HASH: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// Members of a message that are lists of objects with members fixed by the schema.
const LISTS: [&str; 5] = [
    "completedSubtasks",
    "remainingSubtasks",
    "relevantContext",
    "conversationHistoryVerbatim",
    "toolCallHistory",
];

/// Members of a message that are texts without members.
const TEXTS: [&str; 5] =
    ["taskDescription", "conversationHistorySummary", "taskSummary", "reason", "userId"];

/// Names of values in verdicts, answers and outputs, besides the members of a message.
const WORDS: [&str; 10] = [
    "result",
    "output",
    "details",
    "rejection_reason",
    "error",
    "message",
    "note",
    "question",
    "answer",
    "conversationSummary",
];

/// Whether the items of a list stand in the places that they have in the message.
#[derive(Debug, Clone, Copy)]
enum ItemPlaces {
    Stated,
    /// They are appended: any place from the list's end on.
    Any,
}

/// The position of a value: whether below one of [`LISTS`], its depth below that member, and its name.
#[derive(Debug, Clone, Copy)]
struct ValuePosition<'n> {
    listed: bool,
    depth: usize,
    name: &'n str,
}

impl<'n> ValuePosition<'n> {
    fn of_member(name: &'n str) -> Self {
        Self { listed: LISTS.contains(&name), depth: 0, name }
    }

    const fn below(self, name: &str) -> ValuePosition<'_> {
        ValuePosition { listed: self.listed, depth: self.depth + 1, name }
    }

    /// Whether the broker needs the value: the set of subtasks distinguishes progress from a loop.
    fn is_kept(self) -> bool {
        self.listed && self.depth == 2 && self.name == "subtaskId"
    }
}

/// Whether a value is the result of a redaction.
#[must_use]
pub fn is_redacted(value: &Value) -> bool {
    match value {
        Value::String(text) => text.starts_with("[REDACTED:"),
        Value::Object(object) => object.len() == 1 && object.contains_key("$redacted"),
        _ => false,
    }
}

/// Replaces a value by a neutral one of the same type, so that the message still fits its schema.
fn conceal(value: &mut Value, place: ValuePosition<'_>) {
    match value {
        _ if place.is_kept() => {}
        Value::String(text) => {
            let form = match place.name {
                "completedAt" | "calledAt" | "timestamp" if place.listed && place.depth == 2 => {
                    NO_TIME
                }
                "inputHash" if place.listed && place.depth == 2 => NO_HASH,
                _ => REDACTED,
            };
            form.clone_into(text);
        }
        Value::Object(members) if place.listed && place.depth == 1 => {
            for (name, below) in members {
                conceal(below, place.below(name));
            }
        }
        Value::Object(_) => *value = json!({ "$redacted": "policy" }),
        Value::Array(items) => items.clear(),
        Value::Number(_) => *value = json!(0),
        Value::Bool(_) => *value = json!(false),
        Value::Null => {}
    }
}

impl RedactionPolicy {
    /// Parses the patterns.
    ///
    /// # Errors
    /// A sentence that names the first pattern that is invalid, or that can match no value.
    pub fn parse<S: AsRef<str>>(patterns: &[S]) -> Result<Self, String> {
        let parsed = patterns.iter().map(|pattern| {
            let steps = steps(pattern.as_ref())?;
            reachable(&steps).map_err(|why| format!("'{}' {why}", pattern.as_ref()))?;
            Ok::<_, String>(steps)
        });
        Ok(Self { patterns: parsed.collect::<Result<_, _>>()?, secrets: SecretPolicy::default() })
    }

    /// This policy with the given handling of credentials.
    #[must_use]
    pub const fn with_secrets(mut self, secrets: SecretPolicy) -> Self {
        self.secrets = secrets;
        self
    }

    fn keeps_credentials(&self) -> bool {
        self.secrets == SecretPolicy::Warn
    }

    /// Redacts a message, within the members that hold content (including those of a newer minor version) and the
    /// data of `personalDataPayload`; returns whether anything was replaced.
    pub fn redact_message(&self, message: &mut Value) -> bool {
        self.redact_members(message, ItemPlaces::Stated)
    }

    /// Redacts the values that a chunk of a stream appends, in the form of a message: a pattern's index matches each of its
    /// items, as the chunk does not state their places in the list.
    pub fn redact_appended(&self, appended: &mut Value) -> bool {
        self.redact_members(appended, ItemPlaces::Any)
    }

    fn redact_members(&self, message: &mut Value, items: ItemPlaces) -> bool {
        if self.patterns.is_empty() && self.keeps_credentials() {
            return false;
        }
        let mut found = false;
        let members = message.as_object_mut().into_iter().flatten();
        for (name, value) in members.filter(|(name, _)| !BROKER_MEMBERS.contains(&name.as_str())) {
            found |= self.redact_at(&[name], value, items);
        }
        let subjects = message.pointer_mut("/personalDataPayload/subjects");
        for (index, subject) in
            subjects.and_then(Value::as_array_mut).into_iter().flatten().enumerate()
        {
            let path = ["personalDataPayload", "subjects", &index.to_string(), "data"];
            found |= subject.get_mut("data").is_some_and(|data| self.redact_at(&path, data, items));
        }
        found
    }

    /// Redacts a checkpoint submitted on its own, as a message's `/checkpoint`.
    pub fn redact_checkpoint(&self, state: &mut Value) {
        self.redact_at(&["checkpoint"], state, ItemPlaces::Stated);
    }

    /// Redacts a reply or an output. Pointers count from its root.
    pub fn redact_words(&self, words: &mut serde_json::Map<String, Value>) {
        for (name, value) in words {
            self.redact_at(&[name], value, ItemPlaces::Stated);
        }
    }

    /// An answer as operators may read it: without credentials, and a JSON object as [`Self::redact_words`] has it. `None`
    /// where patterns name values and the text begins like JSON without being an object: they cannot be found in it.
    #[must_use]
    pub fn redact_answer(&self, text: &str) -> Option<String> {
        let whole = serde_json::from_str(text).ok();
        let Some(Value::Object(answer)) = whole else {
            let looks_like_json = text.trim_start().starts_with(['{', '[']);
            if looks_like_json && !self.patterns.is_empty() {
                return None;
            }
            let mut text = Value::from(text);
            credential::redact(None, &mut text);
            return text.as_str().map(str::to_owned);
        };
        let mut redacted = answer.clone();
        self.redact_words(&mut redacted);
        let mut redacted = Value::Object(redacted);
        credential::redact(None, &mut redacted);
        let is_same = redacted == Value::Object(answer);
        Some(if is_same { text.to_owned() } else { redacted.to_string() })
    }

    /// Redacts at and below a value at `path`.
    fn redact_at(&self, path: &[&str], value: &mut Value, items: ItemPlaces) -> bool {
        let mut states: Vec<&[PatternStep]> = self.patterns.iter().map(Vec::as_slice).collect();
        for name in path {
            states = next(&states, |wanted| wanted == name);
        }
        let named = replace(&states, value, ValuePosition::of_member(path[0]), items);
        named | (!self.keeps_credentials() && credential::redact(Some(path[path.len() - 1]), value))
    }
}

/// Whether a pattern below `personalDataPayload` reaches a subject's data.
fn reaches_data(below: &[PatternStep]) -> bool {
    for (at, wanted) in ["subjects", "*", "data"].iter().enumerate() {
        match below.get(at) {
            Some(PatternStep::Deep) => return true,
            None => return false,
            Some(PatternStep::Name(name)) if *wanted == "*" => {
                if name.parse::<u32>().is_err() {
                    return false;
                }
            }
            Some(PatternStep::Name(name)) if name != wanted => return false,
            Some(PatternStep::Name(_) | PatternStep::One) => {}
        }
    }
    true
}

/// Checks that a pattern can match a redactable value: otherwise a policy would be accepted without effect.
fn reachable(steps: &[PatternStep]) -> Result<(), String> {
    let Some((PatternStep::Name(member), below)) = steps.split_first() else { return Ok(()) };
    let member = member.as_str();
    if member == "personalDataPayload" {
        return if reaches_data(below) {
            Ok(())
        } else {
            Err("points at what the broker works with: of personalDataPayload, data of subjects is \
                 redacted (/personalDataPayload/subjects/*/data/…)"
                .to_owned())
        };
    }
    if BROKER_MEMBERS.contains(&member) {
        return Err(format!("points at what the broker works with: {member} is never redacted"));
    }
    if !CONTENT_MEMBERS.contains(&member) && !WORDS.contains(&member) {
        let known = CONTENT_MEMBERS.iter().chain(&WORDS);
        let near = known.filter(|known| strsim::damerau_levenshtein(known, member) < 4);
        let near = near.min_by_key(|known| strsim::damerau_levenshtein(known, member));
        let meant = near.map(|near| format!(" (/{near}?)")).unwrap_or_default();
        return Err(format!(
            "points at a member that no message and no reply has{meant}; members of newer schemas and \
             of free replies are reached by /*/… and /**/…"
        ));
    }
    let is_index = |step: &PatternStep| match step {
        PatternStep::Name(name) => name.parse::<u32>().is_ok(),
        PatternStep::One | PatternStep::Deep => true,
    };
    let listed = LISTS.contains(&member) || member == "constraints";
    match below {
        [step, ..] if listed && !is_index(step) => {
            Err(format!("names a member of {member}, which is a list: write /{member}/*/…"))
        }
        [_, PatternStep::Name(id)] if LISTS.contains(&member) && id == "subtaskId" => {
            Err("points at what the broker works with: subtaskId is never redacted".to_owned())
        }
        // A reply's reason may be of any form.
        [PatternStep::Name(_) | PatternStep::One, ..]
            if TEXTS.contains(&member) && member != "reason" =>
        {
            Err(format!("points below {member}, which is a text"))
        }
        [PatternStep::Name(_) | PatternStep::One, PatternStep::Name(_) | PatternStep::One, ..]
            if member == "constraints" =>
        {
            Err("points below an item of constraints, which is a text".to_owned())
        }
        _ => Ok(()),
    }
}

/// The remaining patterns one level down, at the names that `is` holds for.
fn next<'a>(states: &[&'a [PatternStep]], is: impl Fn(&String) -> bool) -> Vec<&'a [PatternStep]> {
    let mut further: Vec<&[PatternStep]> = Vec::new();
    for &(mut state) in states {
        // `**` matches this level, and no level: then the rest must match here.
        while let Some((PatternStep::Deep, rest)) = state.split_first() {
            further.push(state);
            state = rest;
        }
        match state.split_first() {
            Some((PatternStep::One, rest)) => further.push(rest),
            Some((PatternStep::Name(wanted), rest)) if is(wanted) => further.push(rest),
            _ => {}
        }
    }
    further.sort_unstable_by_key(|state| (state.as_ptr(), state.len()));
    further.dedup_by_key(|state| (state.as_ptr(), state.len()));
    further
}

fn replace(
    states: &[&[PatternStep]],
    value: &mut Value,
    place: ValuePosition<'_>,
    items: ItemPlaces,
) -> bool {
    if states.is_empty() {
        return false;
    }
    if states.iter().any(|state| state.iter().all(|step| *step == PatternStep::Deep)) {
        conceal(value, place);
        return true;
    }
    let mut found = false;
    match value {
        Value::Object(object) => {
            for (name, below) in object {
                found |= replace(
                    &next(states, |wanted| wanted == name),
                    below,
                    place.below(name),
                    items,
                );
            }
        }
        Value::Array(list) => {
            for (index, below) in list.iter_mut().enumerate() {
                let further = match items {
                    ItemPlaces::Stated => next(states, |name| *name == index.to_string()),
                    ItemPlaces::Any => next(states, |name| name.parse::<u32>().is_ok()),
                };
                found |= replace(&further, below, place.below(""), ItemPlaces::Stated);
            }
        }
        _ => {}
    }
    found
}

fn steps(pattern: &str) -> Result<Vec<PatternStep>, String> {
    let rest = pattern
        .strip_prefix('/')
        .filter(|rest| !rest.is_empty())
        .ok_or_else(|| format!("'{pattern}' is not a pointer such as /currentState/**/ssn"))?;
    let steps: Vec<_> = rest
        .split('/')
        .map(|step| match step {
            "*" => PatternStep::One,
            "**" => PatternStep::Deep,
            name => PatternStep::Name(name.replace("~1", "/").replace("~0", "~")),
        })
        .collect();
    if steps.iter().all(|step| *step == PatternStep::Deep) {
        return Err(format!("'{pattern}' would redact everything"));
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone() -> Value {
        json!({ "$redacted": "policy" })
    }

    fn applied(patterns: &[&str], mut message: Value) -> Value {
        RedactionPolicy::parse(patterns).unwrap().redact_message(&mut message);
        message
    }

    #[test]
    fn patterns_reach_as_deep_as_they_say() {
        let message = || {
            json!({ "currentState": {
                "ssn": 1, "a": { "ssn": "2", "b": [{ "ssn": { "n": 3 } }, { "other": 4 }] }, "a/b": { "x": [5] },
            } })
        };
        let deep = applied(&["/currentState/**/ssn"], message());
        assert_eq!(deep["currentState"]["ssn"], 0);
        assert_eq!(deep["currentState"]["a"]["ssn"], REDACTED);
        assert_eq!(deep["currentState"]["a"]["b"], json!([{ "ssn": gone() }, { "other": 4 }]));
        let one = applied(&["/currentState/*/ssn"], message());
        assert_eq!(
            (&one["currentState"]["ssn"], &one["currentState"]["a"]["ssn"]),
            (&json!(1), &json!(REDACTED))
        );
        let exact = applied(&["/currentState/a~1b/x", "/currentState/a/b/1"], message());
        assert_eq!(
            (&exact["currentState"]["a/b"]["x"], &exact["currentState"]["a"]["b"][1]),
            (&json!([]), &gone())
        );
        let all = applied(&["/currentState/a/**"], message());
        assert_eq!(all["currentState"]["a"], gone());
        assert_eq!(applied(&["/**/nothing"], message()), message());
    }

    #[test]
    fn what_the_broker_works_with_stays() {
        let message = json!({
            "taskId": "t", "fromAgent": { "agentId": "a" }, "checkpoint": { "agentId": "1" },
            "remainingSubtasks": [{ "subtaskId": "s-1", "description": "d" }],
            "personalDataPayload": { "subjects": [{ "subjectId": "s", "data": { "subjectId": "1", "x": 2 } }] },
        });
        let policy = ["/**/agentId", "/**/subjectId", "/**/taskId", "/**/subtaskId"];
        let done = applied(&policy, message);
        assert_eq!((&done["taskId"], &done["fromAgent"]["agentId"]), (&json!("t"), &json!("a")));
        assert_eq!(done["checkpoint"]["agentId"], REDACTED);
        assert_eq!(done["remainingSubtasks"][0]["subtaskId"], "s-1");
        let subject = &done["personalDataPayload"]["subjects"][0];
        assert_eq!(
            (&subject["subjectId"], &subject["data"]["subjectId"]),
            (&json!("s"), &json!(REDACTED))
        );
    }

    #[test]
    fn a_checkpoint_by_itself_and_words_are_redacted_too() {
        for member in ["/answer/ssn", "/question", "/conversationSummary"] {
            let policy = RedactionPolicy::parse(&[member]).unwrap();
            let mut words =
                json!({ "answer": { "ssn": "1" }, "question": "1", "conversationSummary": "1" });
            policy.redact_words(words.as_object_mut().unwrap());
            assert_eq!(words.pointer(member), Some(&json!(REDACTED)), "{member}");
        }
        let policy = RedactionPolicy::parse(&["/checkpoint/*/ssn", "/result/ssn"]).unwrap();
        let mut state = json!({ "a": { "ssn": 1 } });
        policy.redact_checkpoint(&mut state);
        assert_eq!(state["a"]["ssn"], 0);
        let mut words = json!({ "result": { "ssn": "1", "x": 2 } });
        policy.redact_words(words.as_object_mut().unwrap());
        assert_eq!(words["result"], json!({ "ssn": REDACTED, "x": 2 }));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for wrong in ["", "/", "currentState", "/**", "/**/**"] {
            assert!(RedactionPolicy::parse(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn f5_8_unknown_members_of_a_newer_minor_are_reached() {
        let message = json!({ "schemaVersion": "2.9", "newMember": { "ssn": "1" }, "other": "x" });
        let done = applied(&["/**/ssn"], message);
        assert_eq!(
            done,
            json!({ "schemaVersion": "2.9", "newMember": { "ssn": REDACTED }, "other": "x" })
        );
    }

    #[test]
    fn f5_8_a_policy_that_can_touch_nothing_is_refused_with_the_reason() {
        for (wrong, why) in [
            ("/currenState/ssn", "(/currentState?)"),
            ("/ssn", "no message and no reply has"),
            ("/taskId", "what the broker works with"),
            ("/fromAgent/agentId", "what the broker works with"),
            ("/costTracking/**", "what the broker works with"),
            ("/personalDataPayload/subjects/*/subjectId", "subjects/*/data"),
            ("/personalDataPayload/pointers", "subjects/*/data"),
            ("/personalDataPayload", "subjects/*/data"),
            ("/completedSubtasks/result", "/completedSubtasks/*/"),
            ("/completedSubtasks/*/subtaskId", "never redacted"),
            ("/taskDescription/x", "which is a text"),
            ("/constraints/0/x", "which is a text"),
        ] {
            let told = RedactionPolicy::parse(&[wrong]).unwrap_err();
            assert!(told.contains(why) && told.contains(wrong), "{wrong}: {told}");
        }
        for right in [
            "/**/ssn",
            "/*/ssn",
            "/currentState/**/ssn",
            "/result/card",
            "/reason",
            "/completedSubtasks/*/result",
            "/completedSubtasks/0",
            "/constraints/*",
            "/personalDataPayload/subjects/*/data/ssn",
            "/personalDataPayload/**/ssn",
            "/personalDataPayload/subjects/0/data",
            "/checkpoint/a",
            "/taskSummary",
        ] {
            assert!(
                RedactionPolicy::parse(&[right]).is_ok(),
                "{right}: {:?}",
                RedactionPolicy::parse(&[right])
            );
        }
    }

    #[test]
    fn f5_12_credentials_go_from_any_depth_and_from_names() {
        let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9".repeat(2));
        let message = || {
            json!({
                "signature": "x", "taskDescription": format!("clone with {token}"),
                "toolState": { "a": [{ "b": { "url": "postgres://admin:secret@db/x" } }], &token: 1 },
            })
        };
        let policy = RedactionPolicy::default().with_secrets(SecretPolicy::Redact);
        let mut done = message();
        assert!(policy.redact_message(&mut done));
        assert_eq!(
            done,
            json!({
                "signature": "x", "taskDescription": "clone with [REDACTED:github-token]",
                "toolState": {
                    "a": [{ "b": { "url": "postgres://admin:[REDACTED:url-password]@db/x" } }], "[REDACTED:github-token]": 1,
                },
            })
        );
        let seen = credential::sightings("", &message());
        let places: Vec<_> = seen.iter().map(|one| one.pointer.as_str()).collect();
        assert_eq!(places, ["/taskDescription", "/toolState/a/0/b/url", "/toolState"]);
        let mut kept = message();
        assert!(!RedactionPolicy::default().redact_message(&mut kept));
        assert_eq!(kept, message());
    }

    #[test]
    fn an_answer_is_kept_as_far_as_its_values_can_be_found() {
        let policy = RedactionPolicy::parse(&["/details/**/ssn"]).unwrap();
        let answer = r#"{"status":"REJECTED", "details":{"who":{"ssn":"123"}}}"#;
        assert_eq!(
            policy.redact_answer(answer).unwrap(),
            r#"{"details":{"who":{"ssn":"[REDACTED:policy]"}},"status":"REJECTED"}"#
        );
        let plain = r#"{"status": "REJECTED"}"#;
        assert_eq!(policy.redact_answer(plain).unwrap(), plain);
        assert_eq!(policy.redact_answer(&answer[..40]), None, "it is cut");
        assert_eq!(policy.redact_answer(r#" [{"ssn":"123"}]"#), None);
        assert_eq!(policy.redact_answer("<html>500</html>").unwrap(), "<html>500</html>");
        let none = RedactionPolicy::default();
        assert_eq!(none.redact_answer(&answer[..40]).unwrap(), answer[..40]);
        let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9".repeat(2));
        for policy in [policy, none] {
            let answer = policy.redact_answer(&format!("no push with {token}")).unwrap();
            assert_eq!(answer, "no push with [REDACTED:github-token]");
        }
    }
}
