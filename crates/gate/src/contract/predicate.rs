//! Predicates: CEL behind a guard (ruling X16). This is the one place that knows the crate.
//!
//! CEL has no cost limit, and its parser recurses: unguarded, a formula can end the process or run
//! for hours. So a predicate is held to a size before it is parsed, to a shape after, and may see only
//! so much of a message: [`MAX_SOURCE`], [`MAX_WORDS`], [`MAX_NODES`], [`MAX_DEPTH`], [`MAX_VALUES`],
//! [`MAX_BYTES`]. Loops cannot nest or build lists, and regular expressions are refused. An accepted predicate takes
//! milliseconds at worst.

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, IdedExpr};
use cel::objects::{Key, Map};
use cel::{Context, Env, ExecutionError, Program, Value as Cel};
use serde_json::Value;

use super::spelling::{HOLDS, translate, words};

/// The longest predicate, in bytes.
pub const MAX_SOURCE: usize = 1_024;
/// The most words (names, literals, signs) in it.
pub const MAX_WORDS: usize = 300;
/// The deepest brackets in it.
const MAX_BRACKETS: usize = 24;
/// The most nodes of its syntax tree, loops written out.
pub const MAX_NODES: usize = 256;
/// The deepest such tree.
pub const MAX_DEPTH: usize = 48;
/// The most values of a message that one evaluation may see.
pub const MAX_VALUES: usize = 4_096;
/// The most text of a message that one evaluation may see, in bytes.
pub const MAX_BYTES: usize = 65_536;

/// The roots that a predicate may refer to: `state` (`currentState`), `payload` (the message by the contract's names), `message`
/// (as sent), `source` and `target` (the agents as registered).
pub const ROOTS: [&str; 5] = ["state", "payload", "message", "source", "target"];

/// Functions that a predicate may call, with the operators.
const FUNCTIONS: [&str; 9] =
    [HOLDS, "size", "startsWith", "endsWith", "int", "uint", "double", "string", "has"];

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// Why a text is not a predicate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PredicateError {
    /// The text exceeds a limit.
    #[error("the predicate is too large: {0}")]
    TooLarge(String),
    /// The text is not valid CEL.
    #[error("the predicate cannot be read: {0}")]
    Syntax(String),
    /// The predicate reads an unknown root.
    #[error(
        "the predicate speaks of `{0}`; it may speak of state, payload, message, source and target"
    )]
    Unknown(String),
    /// The predicate uses a forbidden function or form.
    #[error("the predicate uses `{0}`, which is not allowed here")]
    Forbidden(String),
}

/// Values of the five roots in one evaluation.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// `currentState`.
    pub state: &'a Value,
    /// The message by the contract's names.
    pub payload: &'a Value,
    /// The message as sent.
    pub message: &'a Value,
    pub source: &'a Value,
    pub target: &'a Value,
}

/// A compiled predicate: a pure, bounded function of [`Facts`].
pub struct Predicate {
    program: Program,
    /// Which parts of the facts it reads: a root and members below it.
    reads: BTreeSet<Vec<String>>,
}

impl std::fmt::Debug for Predicate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Predicate").field("reads", &self.reads).finish_non_exhaustive()
    }
}

impl Predicate {
    /// Reads a predicate in CEL or in the seed's spelling.
    ///
    /// # Errors
    /// [`PredicateError`], with what is wrong.
    pub fn compile(source: &str) -> Result<Self, PredicateError> {
        if source.len() > MAX_SOURCE {
            return Err(PredicateError::TooLarge(format!("at most {MAX_SOURCE} bytes")));
        }
        let unreadable = |why: &str| PredicateError::Syntax(why.to_owned());
        let words = words(source).ok_or_else(|| unreadable("a text has no end"))?;
        if words.is_empty() {
            return Err(unreadable("it is empty"));
        }
        if words.len() > MAX_WORDS {
            return Err(PredicateError::TooLarge(format!("at most {MAX_WORDS} words")));
        }
        let mut depth = 0usize;
        for word in &words {
            match word.text {
                "(" | "[" | "{" | "?" => depth += 1,
                ")" | "]" | "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > MAX_BRACKETS {
                return Err(PredicateError::TooLarge(format!(
                    "brackets at most {MAX_BRACKETS} deep"
                )));
            }
        }
        let text = translate(&words);
        // The parser is a dependency: if it panics on a text, the gate refuses that text as malformed.
        let parsed = catch_unwind(AssertUnwindSafe(|| ENVIRONMENT.compile(&text)))
            .map_err(|_| unreadable("it is malformed"))?;
        let program = parsed.map_err(|errors| unreadable(&first_line(&errors.to_string())))?;
        let mut guard = PredicateGuard::default();
        guard.walk(program.expression(), 0, None)?;
        Ok(Self { program, reads: guard.reads })
    }

    /// Members of a root that the predicate reads.
    #[must_use]
    pub fn reads_of(&self, root: &str) -> Vec<String> {
        self.reads
            .iter()
            .filter(|path| path.first().is_some_and(|first| first == root))
            .filter_map(|path| path.get(1).cloned())
            .collect()
    }

    /// Evaluates the predicate.
    ///
    /// # Errors
    /// A sentence: a value is missing, has the wrong type, or is too large.
    pub fn holds(&self, facts: &Facts<'_>) -> Result<bool, String> {
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        context.add_function(HOLDS, holds).map_err(|err| err.to_string())?;
        let mut left = Allowance { values: MAX_VALUES, bytes: MAX_BYTES };
        for root in ROOTS {
            let value = match root {
                "state" => facts.state,
                "payload" => facts.payload,
                "message" => facts.message,
                "source" => facts.source,
                _ => facts.target,
            };
            let paths: Vec<&[String]> = self
                .reads
                .iter()
                .filter(|path| path.first().is_some_and(|first| first == root))
                .map(|path| &path[1..])
                .collect();
            if !paths.is_empty() {
                let value = pruned(value, &paths, &mut left)
                    .ok_or("what it reads of the message is too large to evaluate")?;
                context.add_variable_from_value(root, value);
            }
        }
        match catch_unwind(AssertUnwindSafe(|| self.program.execute(&context))) {
            Ok(Ok(Cel::Bool(answer))) => Ok(answer),
            Ok(Ok(_)) => Err("it does not come to true or false".to_owned()),
            Ok(Err(ExecutionError::NoSuchKey(key))) => Err(format!("`{key}` does not exist")),
            Ok(Err(_)) => Err("a value is not of the kind that it compares with".to_owned()),
            Err(_) => Err("it cannot be evaluated".to_owned()),
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

/// `holds(list, item)`, `holds(text, part)`, `holds(map, key)`.
#[expect(clippy::needless_pass_by_value, reason = "the shape that a CEL function has")]
fn holds(whole: Cel, part: Cel) -> Result<bool, ExecutionError> {
    match (&whole, &part) {
        (Cel::List(items), _) => Ok(items.contains(&part)),
        (Cel::String(text), Cel::String(part)) => Ok(text.contains(part.as_str())),
        (Cel::Map(map), Cel::String(key)) => {
            Ok(map.map.contains_key(&Key::String(Arc::clone(key))))
        }
        (Cel::Null, _) => Ok(false),
        _ => Err(ExecutionError::UnsupportedTargetType { target: Cel::Null }),
    }
}

/// Walks a syntax tree: how large, how deep, what it reads, what it calls.
#[derive(Default)]
struct PredicateGuard {
    nodes: usize,
    bound: Vec<String>,
    reads: BTreeSet<Vec<String>>,
}

type ExpressionSize = Result<(), PredicateError>;

impl PredicateGuard {
    /// `looping` is the accumulator of the enclosing loop.
    fn walk(&mut self, expr: &IdedExpr, depth: usize, looping: Option<&str>) -> ExpressionSize {
        self.nodes += 1;
        if self.nodes > MAX_NODES || depth > MAX_DEPTH {
            return Err(PredicateError::TooLarge(format!(
                "at most {MAX_NODES} parts, {MAX_DEPTH} deep"
            )));
        }
        if let Some(path) = self.path_of(&expr.expr)? {
            self.reads.insert(path);
            return Ok(());
        }
        let next = depth + 1;
        match &expr.expr {
            Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Ok(()),
            Expr::Select(select) => self.walk(&select.operand, next, looping),
            Expr::List(list) => {
                list.elements.iter().try_for_each(|one| self.walk(one, next, looping))
            }
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.walk(&entry.key, next, looping)?;
                    self.walk(&entry.value, next, looping)
                }
                EntryExpr::StructField(field) => self.walk(&field.value, next, looping),
            }),
            Expr::Struct(made) => Err(PredicateError::Forbidden(made.type_name.clone())),
            Expr::Call(call) => {
                let name = call.func_name.as_str();
                let operator = name.contains(['_', '@']);
                // A sum in a loop could grow with each step; the loop's own counter may.
                let counts = call.args.iter().any(|arg| matches!(arg.expr, Expr::Literal(_)));
                if (!operator && !FUNCTIONS.contains(&name))
                    || (name == "_+_" && looping.is_some() && !counts)
                {
                    return Err(PredicateError::Forbidden(name.trim_matches('_').to_owned()));
                }
                if let Some(target) = &call.target {
                    self.walk(target, next, looping)?;
                }
                call.args.iter().try_for_each(|arg| self.walk(arg, next, looping))
            }
            Expr::Comprehension(inner) => self.walk_loop(inner, next, looping),
        }
    }

    fn walk_loop(
        &mut self,
        inner: &ComprehensionExpr,
        depth: usize,
        looping: Option<&str>,
    ) -> ExpressionSize {
        if looping.is_some() {
            return Err(PredicateError::Forbidden("a loop inside a loop".to_owned()));
        }
        if matches!(inner.accu_init.expr, Expr::List(_) | Expr::Map(_)) {
            return Err(PredicateError::Forbidden("map or filter".to_owned()));
        }
        // The range is evaluated once, but a loop in it would multiply all the same.
        self.walk(&inner.iter_range, depth, Some(&inner.accu_var))?;
        let before = self.bound.len();
        self.bound.push(inner.iter_var.clone());
        self.bound.extend(inner.iter_var2.clone());
        self.bound.push(inner.accu_var.clone());
        for part in [&inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result] {
            self.walk(part, depth, Some(&inner.accu_var))?;
        }
        self.bound.truncate(before);
        Ok(())
    }

    /// `state.a.b` as its segments; `None` for anything else, and for what a loop binds.
    fn path_of(&self, expr: &Expr) -> Result<Option<Vec<String>>, PredicateError> {
        let mut segments = Vec::new();
        let mut at = expr;
        loop {
            match at {
                Expr::Select(select) => {
                    // `has(a.b)` reads `a.b` just as well.
                    segments.push(select.field.clone());
                    at = &select.operand.expr;
                }
                Expr::Ident(name) if self.bound.contains(name) => return Ok(None),
                Expr::Ident(name) if ROOTS.contains(&name.as_str()) => {
                    segments.push(name.clone());
                    segments.reverse();
                    // Deeper members come with the one above them.
                    segments.truncate(MAX_DEPTH);
                    return Ok(Some(segments));
                }
                Expr::Ident(name) => return Err(PredicateError::Unknown(name.clone())),
                _ => return Ok(None),
            }
        }
    }
}

/// How much of a message may still be looked at.
struct Allowance {
    values: usize,
    bytes: usize,
}

impl Allowance {
    fn take(&mut self, bytes: usize) -> Option<()> {
        self.values = self.values.checked_sub(1)?;
        self.bytes = self.bytes.checked_sub(bytes)?;
        Some(())
    }
}

/// Just the named parts of a value; `None` when they are too large.
fn pruned(value: &Value, paths: &[&[String]], left: &mut Allowance) -> Option<Cel> {
    if paths.iter().any(|path| path.is_empty()) {
        return whole(value, left);
    }
    let Some(object) = value.as_object() else { return whole(value, left) };
    left.take(0)?;
    let mut members: HashMap<Key, Cel> = HashMap::new();
    let heads: BTreeSet<&String> = paths.iter().filter_map(|path| path.first()).collect();
    for head in heads {
        let Some(member) = object.get(head) else { continue };
        let below: Vec<&[String]> =
            paths.iter().filter(|path| path.first() == Some(head)).map(|path| &path[1..]).collect();
        members.insert(Key::from(head.clone()), pruned(member, &below, left)?);
    }
    Some(Cel::Map(Map { map: Arc::new(members) }))
}

fn whole(value: &Value, left: &mut Allowance) -> Option<Cel> {
    left.take(value.as_str().map_or(0, str::len))?;
    Some(match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Cel::Int(whole),
            (None, Some(large)) => Cel::UInt(large),
            (None, None) => Cel::Float(number.as_f64()?),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => {
            let items = items.iter().map(|item| whole(item, left)).collect::<Option<Vec<_>>>()?;
            Cel::List(Arc::new(items))
        }
        Value::Object(object) => {
            let mut members = HashMap::new();
            for (name, member) in object {
                left.take(name.len())?;
                members.insert(Key::from(name.clone()), whole(member, left)?);
            }
            Cel::Map(Map { map: Arc::new(members) })
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn ask(source: &str, state: &Value, target: &Value) -> Result<bool, String> {
        let none = Value::Null;
        Predicate::compile(source).map_err(|err| err.to_string())?.holds(&Facts {
            state,
            payload: &none,
            message: &none,
            source: &none,
            target,
        })
    }

    #[test]
    fn c12_the_seeds_predicates_mean_what_they_say() {
        let state = json!({"intent": "refund", "confidence": 0.75, "domain": "billing", "n": 1});
        let target = json!({"domains": ["billing", "orders"]});
        for (source, expected) in [
            ("state.confidence < 0.6 AND state.domain == \"billing\"", false),
            ("state.intent == 'refund' AND state.confidence >= 0.7", true),
            ("state.intent in ['refund','cancel'] AND state.confidence >= 0.7", true),
            ("target.domains contains 'billing'", true),
            ("NOT target.domains contains 'legal'", true),
            ("target.domains.exists(d, d == 'orders')", true),
            ("state.n >= 0.7", true),
            ("state.n == 1", true),
            ("has(state.missing) OR state.domain.startsWith('bill')", true),
            ("has(state.missing) AND state.missing == 1", false),
            ("size(target.domains) == 2 ? true : false", true),
        ] {
            assert_eq!(ask(source, &state, &target), Ok(expected), "{source}");
        }
    }

    #[test]
    fn what_cannot_be_said_is_an_error_and_not_a_no() {
        let (state, target) = (json!({"a": "x"}), json!({}));
        for source in ["state.b == 1", "state.a < 3", "state.a", "target.domains contains 'x'"] {
            assert!(ask(source, &state, &target).is_err(), "{source}");
        }
    }

    #[test]
    fn what_a_predicate_may_not_do_is_refused_when_it_is_read() {
        let deep = format!("{}true{}", "(".repeat(40), ")".repeat(40));
        let long = vec!["true"; 200].join(" AND ");
        let nested = "state.a.all(x, state.b.all(y, x == y))";
        for source in [
            "",
            "state.",
            "'open",
            "other.x == 1",
            "state.a.map(x, x) == []",
            nested,
            "state.a.filter(x, true) == []",
            "matches(state.a, 'x')",
            "state.a.all(x, [x] + [x] == [])",
            "user()",
            "state ==",
            &deep,
            &long,
            &"a".repeat(2_000),
        ] {
            assert!(Predicate::compile(source).is_err(), "{source}");
        }
    }

    #[test]
    fn a_large_state_costs_only_what_is_read_of_it() {
        let state = json!({"small": 1, "large": vec!["x"; 100_000]});
        assert_eq!(ask("state.small == 1", &state, &Value::Null), Ok(true));
        assert!(
            ask("size(state.large) > 1", &state, &Value::Null).unwrap_err().contains("too large")
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 300, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_a_predicate_or_an_error(source in "\\PC{0,200}") {
            let _ = ask(&source, &json!({"a": [1, "b", {"c": null}]}), &json!({}));
        }

        #[test]
        fn any_heap_of_words_is_a_predicate_or_an_error(picked in prop::collection::vec(0usize..32, 0..80)) {
            const WORDS: [&str; 32] = [
                "state", "target", ".", ".a", ".b", "(", ")", "[", "]", "AND", "OR", "NOT", "contains",
                "in", "==", "<", "!", "-", "1", "2.5e3", "'x'", ",", "?", ":", "true", "{", "}", "+", "*",
                ".all(x,", ".exists(y,", "size(",
            ];
            let source = picked.iter().map(|at| WORDS[*at]).collect::<Vec<_>>().join(" ");
            let _ = ask(&source, &json!({"a": [1, "b", {"c": null}], "b": "text"}), &json!({}));
        }
    }
}
