//! Redaction by policy (seed 000 §6.2): values that are never to be kept, whoever sends them, named by
//! JSON pointers with `*` for one level and `**` for any number of them.
//!
//! It is applied to a message once the gate has judged it and before anything is made of it: what is
//! stored, delivered, compared and committed to is the redacted message. So the log shows what the
//! receiver saw, and no hash that is kept was taken over the value.

use serde_json::{Value, json};

use super::personal::CONTENT_MEMBERS;

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
}

/// What stands where a value was redacted.
#[must_use]
pub fn redacted() -> Value {
    json!({ "$redacted": "policy" })
}

/// Whether a value is what redaction leaves.
#[must_use]
pub fn is_redacted(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.len() == 1 && object.contains_key("$redacted"))
}

impl Policy {
    /// Reads the patterns.
    ///
    /// # Errors
    /// A sentence that names the first pattern that is none.
    pub fn parse<S: AsRef<str>>(patterns: &[S]) -> Result<Self, String> {
        let parsed = patterns.iter().map(|pattern| steps(pattern.as_ref()));
        Ok(Self { patterns: parsed.collect::<Result<_, _>>()? })
    }

    /// Replaces what the policy names in a message, within the members that hold content and the data of
    /// `personalDataPayload`; says whether it found any.
    pub fn redact_message(&self, message: &mut Value) -> bool {
        if self.patterns.is_empty() {
            return false;
        }
        let mut found = false;
        for member in CONTENT_MEMBERS {
            found |= self.redact_at(&[member], message.get_mut(member));
        }
        let subjects = message.pointer_mut("/personalDataPayload/subjects");
        for (index, subject) in
            subjects.and_then(Value::as_array_mut).into_iter().flatten().enumerate()
        {
            let path = ["personalDataPayload", "subjects", &index.to_string(), "data"];
            found |= self.redact_at(&path, subject.get_mut("data"));
        }
        found
    }

    /// Replaces what the policy names in a checkpoint that came by itself: as in a message's
    /// `/checkpoint`.
    pub fn redact_checkpoint(&self, state: &mut Value) {
        self.redact_at(&["checkpoint"], Some(state));
    }

    /// Replaces what the policy names in what somebody said: a reply, an output. Pointers count from its
    /// root.
    pub fn redact_words(&self, words: &mut serde_json::Map<String, Value>) {
        for (name, value) in words {
            self.redact_at(&[name], Some(value));
        }
    }

    /// Redacts at and below a value that stands at `path`.
    fn redact_at(&self, path: &[&str], value: Option<&mut Value>) -> bool {
        let Some(value) = value else { return false };
        let mut states: Vec<&[Step]> = self.patterns.iter().map(Vec::as_slice).collect();
        for name in path {
            states = next(&states, name);
        }
        replace(&states, value)
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

fn replace(states: &[&[Step]], value: &mut Value) -> bool {
    if states.is_empty() {
        return false;
    }
    if states.iter().any(|state| state.iter().all(|step| *step == Step::Deep)) {
        *value = redacted();
        return true;
    }
    let mut found = false;
    match value {
        Value::Object(object) => {
            for (name, below) in object {
                found |= replace(&next(states, name), below);
            }
        }
        Value::Array(items) => {
            for (index, below) in items.iter_mut().enumerate() {
                found |= replace(&next(states, &index.to_string()), below);
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

    fn applied(patterns: &[&str], mut message: Value) -> Value {
        Policy::parse(patterns).unwrap().redact_message(&mut message);
        message
    }

    #[test]
    fn patterns_reach_as_deep_as_they_say() {
        let message = || {
            json!({ "currentState": {
                "ssn": 1, "a": { "ssn": 2, "b": [{ "ssn": 3 }, { "other": 4 }] }, "a/b": { "x": 5 },
            } })
        };
        let gone = redacted();
        let deep = applied(&["/currentState/**/ssn"], message());
        assert_eq!(deep["currentState"]["ssn"], gone);
        assert_eq!(deep["currentState"]["a"]["ssn"], gone);
        assert_eq!(deep["currentState"]["a"]["b"], json!([{ "ssn": gone }, { "other": 4 }]));
        let one = applied(&["/currentState/*/ssn"], message());
        assert_eq!(
            (&one["currentState"]["ssn"], &one["currentState"]["a"]["ssn"]),
            (&json!(1), &gone)
        );
        let exact = applied(&["/currentState/a~1b/x", "/currentState/a/b/1"], message());
        assert_eq!(
            (&exact["currentState"]["a/b"]["x"], &exact["currentState"]["a"]["b"][1]),
            (&gone, &gone)
        );
        let all = applied(&["/currentState/a/**"], message());
        assert_eq!(all["currentState"]["a"], gone);
        assert_eq!(applied(&["/**/nothing"], message()), message());
    }

    #[test]
    fn what_the_broker_works_with_stays() {
        let message = json!({
            "taskId": "t", "fromAgent": { "agentId": "a" }, "checkpoint": { "agentId": 1 },
            "personalDataPayload": { "subjects": [{ "subjectId": "s", "data": { "subjectId": 1, "x": 2 } }] },
        });
        let done = applied(&["/**/agentId", "/**/subjectId", "/taskId"], message);
        assert_eq!((&done["taskId"], &done["fromAgent"]["agentId"]), (&json!("t"), &json!("a")));
        assert_eq!(done["checkpoint"]["agentId"], redacted());
        let subject = &done["personalDataPayload"]["subjects"][0];
        assert_eq!(
            (&subject["subjectId"], &subject["data"]["subjectId"]),
            (&json!("s"), &redacted())
        );
    }

    #[test]
    fn a_checkpoint_by_itself_and_words_are_redacted_too() {
        let policy = Policy::parse(&["/checkpoint/*/ssn", "/result/ssn"]).unwrap();
        let mut state = json!({ "a": { "ssn": 1 } });
        policy.redact_checkpoint(&mut state);
        assert_eq!(state["a"]["ssn"], redacted());
        let mut words = json!({ "result": { "ssn": 1, "x": 2 } });
        policy.redact_words(words.as_object_mut().unwrap());
        assert_eq!(words["result"], json!({ "ssn": redacted(), "x": 2 }));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for wrong in ["", "/", "currentState", "/**", "/**/**"] {
            assert!(Policy::parse(&[wrong]).is_err(), "{wrong}");
        }
    }
}
