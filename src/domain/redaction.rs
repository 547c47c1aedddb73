//! Redaction by policy (seed 000 §6.2): values that are never to be kept, whoever sends them, named by
//! JSON pointers with `*` for one level and `**` for any number of them.
//!
//! It is applied to a message once the gate has judged it and before anything is made of it: what is
//! stored, delivered, compared and committed to is the redacted message. So the log shows what the
//! receiver saw, and no hash that is kept was taken over the value.

use serde_json::{Value, json};

use super::credential::{self, Treatment};
use super::personal::{BROKER_MEMBERS, CONTENT_MEMBERS};

/// One level of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// A member of that name, or the item of that index.
    Name(String),
    /// Any one.
    One,
    /// Any number of levels, also none.
    Deep,
}

/// Which values are replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    patterns: Vec<Vec<Step>>,
    /// What becomes of credentials.
    pub secrets: Treatment,
}

/// Stands where a string was redacted: also a constraint, which has a colon.
pub const REDACTED: &str = "[REDACTED:policy]";

/// Stand where a moment and a digest were redacted, which have a form.
const NO_TIME: &str = "1970-01-01T00:00:00Z";
const NO_HASH: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// Members of a message that are lists of objects with members that the schema names.
const LISTS: [&str; 5] = [
    "completedSubtasks",
    "remainingSubtasks",
    "relevantContext",
    "conversationHistoryVerbatim",
    "toolCallHistory",
];

/// Members of a message that are texts, and that have nothing below them.
const TEXTS: [&str; 5] =
    ["taskDescription", "conversationHistorySummary", "taskSummary", "reason", "userId"];

/// What receivers and people say by name besides the members of a message: verdicts, answers, outputs.
const WORDS: [&str; 7] =
    ["result", "output", "details", "rejection_reason", "error", "message", "note"];

/// Where a value stands: whether below one of [`LISTS`], how deep below its member, and its name.
#[derive(Debug, Clone, Copy)]
struct Place<'n> {
    listed: bool,
    depth: usize,
    name: &'n str,
}

impl<'n> Place<'n> {
    fn of_member(name: &'n str) -> Self {
        Self { listed: LISTS.contains(&name), depth: 0, name }
    }

    const fn below(self, name: &str) -> Place<'_> {
        Place { listed: self.listed, depth: self.depth + 1, name }
    }

    /// Whether the broker works with the value: which subtasks there are tells progress from a loop.
    fn is_kept(self) -> bool {
        self.listed && self.depth == 2 && self.name == "subtaskId"
    }
}

/// Whether a value is what redaction leaves.
#[must_use]
pub fn is_redacted(value: &Value) -> bool {
    match value {
        Value::String(text) => text.starts_with("[REDACTED:"),
        Value::Object(object) => object.len() == 1 && object.contains_key("$redacted"),
        _ => false,
    }
}

/// Puts in a value's place what says nothing and is of the same type, so that the message still fits its
/// schema.
fn conceal(value: &mut Value, place: Place<'_>) {
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

impl Policy {
    /// Reads the patterns.
    ///
    /// # Errors
    /// A sentence that names the first pattern that is none, or that no value can ever stand at.
    pub fn parse<S: AsRef<str>>(patterns: &[S]) -> Result<Self, String> {
        let parsed = patterns.iter().map(|pattern| {
            let steps = steps(pattern.as_ref())?;
            reachable(&steps).map_err(|why| format!("'{}' {why}", pattern.as_ref()))?;
            Ok::<_, String>(steps)
        });
        Ok(Self { patterns: parsed.collect::<Result<_, _>>()?, secrets: Treatment::default() })
    }

    /// The same, with this treatment of credentials.
    #[must_use]
    pub const fn with_secrets(mut self, secrets: Treatment) -> Self {
        self.secrets = secrets;
        self
    }

    fn keeps_credentials(&self) -> bool {
        self.secrets == Treatment::Warn
    }

    /// Replaces what the policy names in a message, within the members that hold content (those of a
    /// newer minor among them) and the data of `personalDataPayload`; says whether it found any.
    pub fn redact_message(&self, message: &mut Value) -> bool {
        if self.patterns.is_empty() && self.keeps_credentials() {
            return false;
        }
        let mut found = false;
        let members = message.as_object_mut().into_iter().flatten();
        for (name, value) in members.filter(|(name, _)| !BROKER_MEMBERS.contains(&name.as_str())) {
            found |= self.redact_at(&[name], value);
        }
        let subjects = message.pointer_mut("/personalDataPayload/subjects");
        for (index, subject) in
            subjects.and_then(Value::as_array_mut).into_iter().flatten().enumerate()
        {
            let path = ["personalDataPayload", "subjects", &index.to_string(), "data"];
            found |= subject.get_mut("data").is_some_and(|data| self.redact_at(&path, data));
        }
        found
    }

    /// Replaces what the policy names in a checkpoint that came by itself: as in a message's
    /// `/checkpoint`.
    pub fn redact_checkpoint(&self, state: &mut Value) {
        self.redact_at(&["checkpoint"], state);
    }

    /// Replaces what the policy names in what somebody said: a reply, an output. Pointers count from its
    /// root.
    pub fn redact_words(&self, words: &mut serde_json::Map<String, Value>) {
        for (name, value) in words {
            self.redact_at(&[name], value);
        }
    }

    /// Redacts at and below a value that stands at `path`.
    fn redact_at(&self, path: &[&str], value: &mut Value) -> bool {
        let mut states: Vec<&[Step]> = self.patterns.iter().map(Vec::as_slice).collect();
        for name in path {
            states = next(&states, name);
        }
        let named = replace(&states, value, Place::of_member(path[0]));
        named | (!self.keeps_credentials() && credential::redact(Some(path[path.len() - 1]), value))
    }
}

/// Whether a pattern below `personalDataPayload` reaches the data of a subject.
fn reaches_data(below: &[Step]) -> bool {
    for (at, wanted) in ["subjects", "*", "data"].iter().enumerate() {
        match below.get(at) {
            Some(Step::Deep) => return true,
            None => return false,
            Some(Step::Name(name)) if *wanted == "*" => {
                if name.parse::<u32>().is_err() {
                    return false;
                }
            }
            Some(Step::Name(name)) if name != wanted => return false,
            Some(Step::Name(_) | Step::One) => {}
        }
    }
    true
}

/// Whether a value can ever stand where a pattern points that content is redacted at: else a policy would
/// be taken and do nothing.
fn reachable(steps: &[Step]) -> Result<(), String> {
    let Some((Step::Name(member), below)) = steps.split_first() else { return Ok(()) };
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
    let is_index = |step: &Step| match step {
        Step::Name(name) => name.parse::<u32>().is_ok(),
        Step::One | Step::Deep => true,
    };
    let listed = LISTS.contains(&member) || member == "constraints";
    match below {
        [step, ..] if listed && !is_index(step) => {
            Err(format!("names a member of {member}, which is a list: write /{member}/*/…"))
        }
        [_, Step::Name(id)] if LISTS.contains(&member) && id == "subtaskId" => {
            Err("points at what the broker works with: subtaskId is never redacted".to_owned())
        }
        // A reply's reason may be of any form.
        [Step::Name(_) | Step::One, ..] if TEXTS.contains(&member) && member != "reason" => {
            Err(format!("points below {member}, which is a text"))
        }
        [Step::Name(_) | Step::One, Step::Name(_) | Step::One, ..] if member == "constraints" => {
            Err("points below an item of constraints, which is a text".to_owned())
        }
        _ => Ok(()),
    }
}

/// What is left of the patterns one level further down, at `name`.
fn next<'a>(states: &[&'a [Step]], name: &str) -> Vec<&'a [Step]> {
    let mut further: Vec<&[Step]> = Vec::new();
    for &(mut state) in states {
        // `**` stands for this level, and for none: then what follows it must match.
        while let Some((Step::Deep, rest)) = state.split_first() {
            further.push(state);
            state = rest;
        }
        match state.split_first() {
            Some((Step::One, rest)) => further.push(rest),
            Some((Step::Name(wanted), rest)) if wanted == name => further.push(rest),
            _ => {}
        }
    }
    further.sort_unstable_by_key(|state| (state.as_ptr(), state.len()));
    further.dedup_by_key(|state| (state.as_ptr(), state.len()));
    further
}

fn replace(states: &[&[Step]], value: &mut Value, place: Place<'_>) -> bool {
    if states.is_empty() {
        return false;
    }
    if states.iter().any(|state| state.iter().all(|step| *step == Step::Deep)) {
        conceal(value, place);
        return true;
    }
    let mut found = false;
    match value {
        Value::Object(object) => {
            for (name, below) in object {
                found |= replace(&next(states, name), below, place.below(name));
            }
        }
        Value::Array(items) => {
            for (index, below) in items.iter_mut().enumerate() {
                found |= replace(&next(states, &index.to_string()), below, place.below(""));
            }
        }
        _ => {}
    }
    found
}

fn steps(pattern: &str) -> Result<Vec<Step>, String> {
    let rest = pattern
        .strip_prefix('/')
        .filter(|rest| !rest.is_empty())
        .ok_or_else(|| format!("'{pattern}' is no pointer such as /currentState/**/ssn"))?;
    let steps: Vec<_> = rest
        .split('/')
        .map(|step| match step {
            "*" => Step::One,
            "**" => Step::Deep,
            name => Step::Name(name.replace("~1", "/").replace("~0", "~")),
        })
        .collect();
    if steps.iter().all(|step| *step == Step::Deep) {
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
        Policy::parse(patterns).unwrap().redact_message(&mut message);
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
        let policy = Policy::parse(&["/checkpoint/*/ssn", "/result/ssn"]).unwrap();
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
            assert!(Policy::parse(&[wrong]).is_err(), "{wrong}");
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
            let told = Policy::parse(&[wrong]).unwrap_err();
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
            assert!(Policy::parse(&[right]).is_ok(), "{right}: {:?}", Policy::parse(&[right]));
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
        let policy = Policy::default().with_secrets(Treatment::Redact);
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
        assert!(!Policy::default().redact_message(&mut kept));
        assert_eq!(kept, message());
    }
}
