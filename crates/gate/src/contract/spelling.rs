//! The seed's spellings of a predicate, turned into CEL (seed 002 §3.3 and §5; ruling X16): `AND`,
//! `OR`, `NOT`, and `a contains b`. It works on words, not on meaning: an invalid predicate stays invalid.
//!
//! `NOT` reaches as far as in SQL, to the next `AND`, `OR` or closing bracket. `contains`, infix or as
//! a method, becomes a call of [`HOLDS`], which takes lists as well as texts.

/// The function that `contains` is translated to.
pub(super) const HOLDS: &str = "holds";

/// One word of a predicate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PredicateToken<'a> {
    pub(super) text: &'a str,
    /// An identifier or a keyword.
    pub(super) is_name: bool,
}

/// Splits into words; white space and comments go. `None` where a text has no end.
pub(super) fn words(source: &str) -> Option<Vec<PredicateToken<'_>>> {
    let bytes = source.as_bytes();
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(&first) = bytes.get(at) {
        let start = at;
        let mut is_name = false;
        match first {
            b if b.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += bytes[at..].iter().position(|b| *b == b'\n').unwrap_or(bytes.len() - at);
                continue;
            }
            b'\'' | b'"' => at = end_of_text(bytes, at)?,
            b if b.is_ascii_alphabetic() || b == b'_' => {
                at = skip(bytes, at, |b| b.is_ascii_alphanumeric() || b == b'_');
                // A prefix of a text, as in r'…' or b"…".
                if at - start <= 2 && matches!(bytes.get(at), Some(b'\'' | b'"')) {
                    at = end_of_text(bytes, at)?;
                } else {
                    is_name = true;
                }
            }
            b if b.is_ascii_digit() => {
                at = skip(bytes, at, |b| b.is_ascii_alphanumeric() || b == b'.');
                let exponent =
                    matches!(bytes[at - 1], b'e' | b'E') && !source[start..at].starts_with("0x");
                if exponent && matches!(bytes.get(at), Some(b'+' | b'-')) {
                    at = skip(bytes, at + 1, |b| b.is_ascii_digit());
                }
            }
            _ => {
                let two = source.get(at..at + 2).unwrap_or_default();
                at += if matches!(two, "&&" | "||" | "==" | "!=" | "<=" | ">=") {
                    2
                } else {
                    source[at..].chars().next().map_or(1, char::len_utf8)
                };
            }
        }
        words.push(PredicateToken { text: &source[start..at], is_name });
    }
    Some(words)
}

fn skip(bytes: &[u8], from: usize, also: impl Fn(u8) -> bool) -> usize {
    from + bytes[from..].iter().take_while(|b| also(**b)).count()
}

fn end_of_text(bytes: &[u8], start: usize) -> Option<usize> {
    let quote = bytes[start];
    let mut at = start + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b if b == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
    None
}

/// The words as CEL.
pub(super) fn translate(words: &[PredicateToken<'_>]) -> String {
    let mut out: Vec<String> = Vec::with_capacity(words.len());
    for (at, word) in words.iter().enumerate() {
        let member = at > 0 && words[at - 1].text == ".";
        out.push(match word.text {
            "AND" | "and" if word.is_name && !member => "&&".to_owned(),
            "OR" | "or" if word.is_name && !member => "||".to_owned(),
            "NOT" | "not" if word.is_name && !member => "NOT".to_owned(),
            "IN" if word.is_name && !member => "in".to_owned(),
            text => text.to_owned(),
        });
    }
    spell_contains(&mut out);
    spell_not(&mut out);
    out.join(" ")
}

/// `NOT x` becomes `!(x)`, from the last to the first, so that an inner one is done before an outer.
fn spell_not(words: &mut Vec<String>) {
    let mut at = words.len();
    while at > 0 {
        at -= 1;
        if words[at] != "NOT" {
            continue;
        }
        let mut depth = 0usize;
        let end = words[at + 1..]
            .iter()
            .position(|word| match word.as_str() {
                "(" | "[" | "{" => {
                    depth += 1;
                    false
                }
                ")" | "]" | "}" if depth == 0 => true,
                ")" | "]" | "}" => {
                    depth -= 1;
                    false
                }
                "&&" | "||" | "," | "?" | ":" => depth == 0,
                _ => false,
            })
            .map_or(words.len(), |offset| at + 1 + offset);
        words.insert(end, ")".to_owned());
        "!(".clone_into(&mut words[at]);
    }
}

/// `a contains b` and `a.contains(b)` become `holds(a, b)`.
fn spell_contains(words: &mut Vec<String>) {
    let mut at = 0;
    while at < words.len() {
        if words[at] != "contains" || at == 0 {
            at += 1;
            continue;
        }
        let method = words[at - 1] == "." && words.get(at + 1).is_some_and(|word| word == "(");
        let left_end = if method { at - 1 } else { at };
        let Some(left) = operand_before(words, left_end) else {
            at += 1;
            continue;
        };
        if method {
            // `a . contains (` becomes `holds ( a ,`; the bracket that closed the call still does.
            words.splice(at - 1..=at + 1, [",".to_owned()]);
        } else {
            let Some(right) = operand_after(words, at + 1) else {
                at += 1;
                continue;
            };
            words.insert(right, ")".to_owned());
            ",".clone_into(&mut words[at]);
        }
        words.splice(left..left, [HOLDS.to_owned(), "(".to_owned()]);
        at += 1;
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && !word.ends_with(['\'', '"'])
}

/// The start of the operand that ends before `end`: names with members, calls and indexes.
fn operand_before(words: &[String], end: usize) -> Option<usize> {
    let mut at = end;
    loop {
        let last = at.checked_sub(1)?;
        match words[last].as_str() {
            ")" | "]" => {
                at = opening(words, last)?;
                // The called or indexed name is the word before.
                if at > 0
                    && (is_name(&words[at - 1]) || matches!(words[at - 1].as_str(), ")" | "]"))
                {
                    continue;
                }
            }
            word if is_name(word) || word.ends_with(['\'', '"']) => at = last,
            _ => return None,
        }
        match at.checked_sub(1) {
            Some(dot) if words[dot] == "." => at = dot,
            _ => return Some(at),
        }
    }
}

fn opening(words: &[String], close: usize) -> Option<usize> {
    let mut depth = 0usize;
    (0..=close).rev().find(|at| match words[*at].as_str() {
        ")" | "]" => {
            depth += 1;
            false
        }
        "(" | "[" => {
            depth -= 1;
            depth == 0
        }
        _ => false,
    })
}

fn closing(words: &[String], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    (open..words.len()).find(|at| match words[*at].as_str() {
        "(" | "[" => {
            depth += 1;
            false
        }
        ")" | "]" => {
            depth = depth.saturating_sub(1);
            depth == 0
        }
        _ => false,
    })
}

/// The end of the operand that begins at `start`: one past its last word.
fn operand_after(words: &[String], start: usize) -> Option<usize> {
    let first = words.get(start)?;
    let mut at = match first.as_str() {
        "(" | "[" => closing(words, start)? + 1,
        "-" => start + 2,
        _ => start + 1,
    };
    while let Some(next) = words.get(at) {
        at = match next.as_str() {
            "." => at + 2,
            "(" | "[" if is_name(&words[at - 1]) || matches!(words[at - 1].as_str(), ")" | "]") => {
                closing(words, at)? + 1
            }
            _ => break,
        };
    }
    (at <= words.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cel(source: &str) -> String {
        translate(&words(source).unwrap()).replace(' ', "")
    }

    #[test]
    fn x16_the_seeds_spellings_become_cel() {
        for (seed, expected) in [
            ("state.a < 0.6 AND state.b == \"x\"", "state.a<0.6&&state.b==\"x\""),
            ("a OR NOT b", "a||!(b)"),
            ("NOT a == b AND c", "!(a==b)&&c"),
            ("NOT NOT a", "!(!(a))"),
            ("NOT (a OR b) AND c", "!((a||b))&&c"),
            ("target.domains contains 'billing'", "holds(target.domains,'billing')"),
            ("NOT target.domains contains 'b' OR c", "!(holds(target.domains,'b'))||c"),
            ("target.domains.contains('billing')", "holds(target.domains,'billing')"),
            ("a[0].b contains c.d[1] AND e", "holds(a[0].b,c.d[1])&&e"),
            ("f(x) contains (1)", "holds(f(x),(1))"),
            ("x in ['refund','cancel'] AND y", "xin['refund','cancel']&&y"),
            ("state.AND == 'AND'", "state.AND=='AND'"),
        ] {
            assert_eq!(cel(seed), expected, "{seed}");
        }
    }

    #[test]
    fn what_is_no_predicate_stays_none() {
        for odd in [
            "contains",
            "contains contains contains",
            "a contains",
            "NOT",
            ".contains(",
            "a.",
            ") contains (",
        ] {
            let _ = cel(odd);
        }
        assert!(words("'no end").is_none());
    }
}
