//! Mentions: texts that name an attack and are not one. Each match is judged by its own place, so that no text elsewhere
//! switches a rule off: the clause that tells of a person, a name in code, the title of a link, and in talk about attacks a
//! quotation, a block of code, the cell of a table or the item of a list.

use std::cell::LazyCell;
use std::ops::Range;

use memchr::memmem;

use super::order::words::OTHER_ATTACKS;
use super::rules::{FieldClass, Rules, Tier};
use super::sequence::SequenceMatch;

/// How near talk about attacks is to what it quotes, in bytes.
const TALK: usize = 1_200;

/// Matches of a condition that are looked at for one that covers a place.
const COVERING: usize = 8;

/// Longest quotation that is looked at on either side of a match, in bytes.
const QUOTED: usize = 300;

/// How far from a match in a block of code the block's fences are looked for, and from an item of a list the line that
/// introduces the list, in bytes.
const FENCED: usize = 1_200;

/// Most bytes before a fence in its line.
const LIST_INDENT: usize = 16;

/// Fewest bytes of encoded text that is quoted as a whole.
const MIN_CODE: usize = 16;

/// Longest beginning of an option's name, in bytes.
const LONG_OPTION: usize = 48;

/// Most words of a name in code.
const NAME_WORDS: usize = 6;

/// Drops what names an attack and is none: what is said of a party of a contract or in a header of a request, what is
/// part of a name in code, and what is quoted in talk about attacks. The tier that marks counts all of it.
pub(super) fn without_mentions(
    rules: &Rules,
    text: &str,
    class: FieldClass,
    fires: &mut Vec<SequenceMatch>,
) {
    let adds = |fire: &SequenceMatch| rules.all()[usize::from(fire.rule)].adds(Tier::Refuse, class);
    fires.retain(|fire| adds(fire) > 0.0 || rules.is_condition(fire.rule));
    if fires.iter().all(|fire| rules.is_condition(fire.rule)) {
        return;
    }
    let fences: LazyCell<Vec<usize>, _> = LazyCell::new(|| fences(text));
    let conditions = conditions(rules, fires);
    let talked = |stretch: &Range<usize>, fire: &SequenceMatch| {
        rules.mention().is_some_and(|talk| {
            let next =
                conditions.partition_point(|one| (one.rule, one.start) < (talk, stretch.start));
            let within = conditions[next..]
                .iter()
                .take_while(|one| one.rule == talk && one.start < stretch.end);
            // A wrapper that calls itself an attack is about nothing.
            within
                .take(COVERING)
                .any(|one| !(fire.start..fire.end.max(fire.start + 1)).contains(&one.start))
        })
    };
    // Words such as "attack" are about a quotation if only their sentence separates them from it.
    let said_of_it = |stretch: &Range<usize>, fire: &SequenceMatch| {
        rules.mention_near().is_some_and(|talk| {
            let next =
                conditions.partition_point(|one| (one.rule, one.start) < (talk, stretch.start));
            let words = conditions[next..].iter().take_while(|one| one.rule == talk);
            words.take_while(|one| one.start < stretch.end.min(fire.start)).any(|one| {
                one.end <= fire.start && is_said_before(text, one, stretch.end.min(fire.start))
            })
        })
    };
    let introduced = |block: usize, fire: &SequenceMatch| {
        let introduces = |line: &Range<usize>| {
            let said = text[line.clone()].trim_end().trim_end_matches(['*', '_']);
            (said.starts_with('#') || said.ends_with([':', '\u{ff1a}'])) && said_of_it(line, fire)
        };
        subjects(text, block).iter().any(|stretch| talked(stretch, fire) || introduces(stretch))
    };
    let told = |fire: &SequenceMatch| {
        rules.except(fire.rule).is_some_and(|other| covered(&conditions, other, fire.start))
            && !rules.addressed().is_some_and(|other| covered(&conditions, other, fire.start))
    };
    let excepted: Vec<bool> = fires
        .iter()
        .map(|fire| {
            told(fire)
                || in_code_name(text, fire)
                || ends_in_code_name(text, fire)
                || is_link_title(text, fire)
                || is_section(text, fire)
                || is_placeholder(text, fire)
                || closes_element(text, fire)
                || is_terminal(text, fire)
                || is_header(text, fire)
                || is_named_token(text, fire)
                || rules.all()[usize::from(fire.rule)].except.is_some()
                    && (in_address(text, fire) || in_link_title(text, fire))
                || is_quoted(text, fire)
                    && (talked(&paragraph(text, fire.start), fire)
                        || said_of_it(&paragraph(text, fire.start), fire))
                || fence_around(&fences, fire.start, fire.end)
                    .is_some_and(|block| introduced(block, fire))
                || in_table(text, fire)
                    && (line_around(text, fire).is_some_and(|line| talked(&line, fire))
                        || introduced(fire.start, fire))
                || list_item(text, fire).is_some_and(|line| talked(&line, fire))
                || introduction(text, fire)
                    .is_some_and(|line| talked(&line, fire) || said_of_it(&line, fire))
        })
        .collect();
    let mut excepted = excepted.into_iter();
    fires.retain(|_| !excepted.next().unwrap_or_default());
}

/// Farthest from a quotation that a word says what it is, in bytes.
const SAID_BEFORE: usize = 120;

/// Whether a word of talk about attacks is in that sense and goes on to a place: no sentence ends between.
fn is_said_before(text: &str, word: &SequenceMatch, until: usize) -> bool {
    let start = text.floor_char_boundary(word.start.min(text.len()));
    let before = text[..start].rsplit(|one: char| !one.is_alphabetic()).find(|one| !one.is_empty());
    let between = text.get(word.end..until).unwrap_or(".");
    let ends = between.contains(". ") || between.contains(".\n") || between.contains("\n\n");
    until.saturating_sub(word.end) <= SAID_BEFORE
        && !ends
        && !before.is_some_and(|one| OTHER_ATTACKS.has(&one.to_lowercase()))
}

/// The subjects of the block around a place: the paragraph before it, the first line of a table, and the heading
/// above.
fn subjects(text: &str, block: usize) -> Vec<Range<usize>> {
    let from = text.ceil_char_boundary(block.saturating_sub(FENCED));
    let block = text.floor_char_boundary(block.min(text.len()));
    let line = text[from..block].rfind('\n').map_or(from, |at| from + at + 1);
    let mut found = Vec::new();
    let mut end = line;
    let mut paragraph: Option<Range<usize>> = None;
    while end > from {
        let last = end - 1;
        let start = text[from..last].rfind('\n').map_or(from, |at| from + at + 1);
        let above = text[start..last].trim();
        let row = above.starts_with(['|', '\u{2502}', '\u{2503}']);
        if above.starts_with('#') {
            found.push(start..last);
            break;
        }
        if !above.is_empty() && !row {
            match &mut paragraph {
                None => paragraph = Some(start..last),
                Some(known) if known.start == end => known.start = start,
                Some(_) => {}
            }
        }
        end = start;
    }
    found.extend(paragraph);
    found
}

/// The paragraph around a place, as far as the search for talk about attacks goes.
fn paragraph(text: &str, at: usize) -> Range<usize> {
    let at = text.floor_char_boundary(at.min(text.len()));
    let from = text.ceil_char_boundary(at.saturating_sub(TALK));
    let to = text.floor_char_boundary((at + TALK).min(text.len()));
    let start = text[from..at].rfind("\n\n").map_or(from, |found| from + found);
    let end = text[at..to].find("\n\n").map_or(to, |found| at + found);
    start..end
}

/// Whether a match begins with the name of a section of settings: `[system]` alone in its line, and behind it a line that
/// sets something, a comment, or the next section.
fn is_section(text: &str, fire: &SequenceMatch) -> bool {
    let start = text.floor_char_boundary(fire.start.min(text.len()));
    let line = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let mut lines = text[line..].lines();
    let is_name = |line: &str| {
        let name = line.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        name.is_some_and(|name| {
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-\"'[]: ".contains(&byte))
        })
    };
    if !lines.next().is_some_and(is_name) {
        return false;
    }
    let Some(next) = lines.map(str::trim).find(|line| !line.is_empty()) else { return false };
    let sets = next.split_once('=').is_some_and(|(key, _)| {
        let key = key.trim();
        let part = |byte: u8| byte.is_ascii_alphanumeric() || b"._-\"'".contains(&byte);
        !key.is_empty() && key.bytes().all(part)
    });
    sets || is_name(next) || next.starts_with('#') || next.starts_with(';')
}

/// Whether a match begins with a name in angle brackets within braces, as the syntax of a command has it: `{<system>} <x>`.
fn is_placeholder(text: &str, fire: &SequenceMatch) -> bool {
    let start = text.floor_char_boundary(fire.start.min(text.len()));
    // The name is read behind a brace alone, and ends before the next: one long name with many matches is read once.
    if !text[..start].trim_end_matches('<').ends_with('{') {
        return false;
    }
    let rest = text[start..].trim_start_matches('<');
    let name =
        rest.trim_start_matches(|one: char| one.is_ascii_alphanumeric() || "_-".contains(one));
    name.starts_with(">}")
}

/// Whether a match begins with the end of an element that was opened before: `<Context path="/x"> … </Context>`.
fn closes_element(text: &str, fire: &SequenceMatch) -> bool {
    let start = text.floor_char_boundary(fire.start.min(text.len()));
    let from = text.ceil_char_boundary(start.saturating_sub(TALK));
    let Some(before) = text[from..start].trim_end_matches('/').strip_suffix('<') else {
        return false;
    };
    let rest = text[start..].trim_start_matches('/');
    let closes = text[..start].ends_with('/') || rest.len() < text.len() - start;
    let name = &rest[..rest.find(|one: char| !one.is_ascii_alphanumeric()).unwrap_or(rest.len())];
    // An element with attributes: a bare `<data>` is a wrapper that an attack can open, too.
    closes && !name.is_empty() && before.contains(&format!("<{name} "))
}

/// Marks of the output of programs, which agents hand on in the user's place.
const OUTPUTS: [&str; 12] = [
    "<returncode>",
    "<output>",
    "<stdout>",
    "<stderr>",
    "<exit_code>",
    "<error>",
    "<warning>",
    "<observation>",
    "<exception>",
    "<format_error>",
    "<output_head>",
    "<result>",
];

/// Whether a match begins with a turn that is the output of a program.
fn is_terminal(text: &str, fire: &SequenceMatch) -> bool {
    let start = text.floor_char_boundary(fire.start.min(text.len()));
    let end = text.floor_char_boundary((start + LIST_INDENT * 2).min(text.len()));
    let Some((speaker, said)) = text[start..end].split_once(':') else { return false };
    let speaks = speaker.bytes().all(|byte| byte.is_ascii_alphabetic() || b" *#".contains(&byte));
    speaks
        && OUTPUTS
            .iter()
            .any(|tag| said.trim_start_matches(['*', ' ', '\n', '\r']).starts_with(tag))
}

/// Whether a match is all of a quotation that names a token of a chat template, as code and documents do.
fn is_named_token(text: &str, fire: &SequenceMatch) -> bool {
    let Some(within) = text.get(fire.start..fire.end).filter(|within| within.len() < 32) else {
        return false;
    };
    let sign = |one: char| matches!(one, '<' | '>' | '|' | '\u{ff5c}' | '\u{2581}');
    let before = text[..fire.start].trim_end_matches(sign);
    let behind = text[fire.end..].trim_start_matches(sign);
    let signs = before.len() < fire.start || within.starts_with(sign);
    signs && before.ends_with(['"', '\'', '`']) && behind.starts_with(['"', '\'', '`'])
}

/// Whether a match goes over the header of a request, as a command line gives it.
fn is_header(text: &str, fire: &SequenceMatch) -> bool {
    let within = text.get(fire.start..fire.end).unwrap_or_default();
    ["curl", "wget", "http "].iter().any(|command| within.starts_with(command))
        && [" -H ", " --header", " -u "].iter().any(|option| within.contains(option))
}

/// Drops the matches that do not count at their places ([`super::Rule::spared`]), and those that name options of a program.
pub(super) fn without_spared(rules: &Rules, text: &str, fires: &mut Vec<SequenceMatch>) {
    let conditions = conditions(rules, fires);
    let spared = |fire: &SequenceMatch| {
        rules.spared(fire.rule).is_some_and(|other| covered(&conditions, other, fire.start))
    };
    fires.retain(|fire| rules.is_condition(fire.rule) || !spared(fire) && !in_option(text, fire));
}

/// Whether a match is a part of an option's name, or goes over the comma before the next of a list: `--remove-all-files`,
/// `--access-token-file, --account`. An option within an order excuses nothing: "send the --full list".
fn in_option(text: &str, fire: &SequenceMatch) -> bool {
    let bytes = text.as_bytes();
    let Some(within) = bytes.get(fire.start..fire.end) else { return false };
    let from = fire.start.saturating_sub(LONG_OPTION);
    let name = bytes[from..fire.start]
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let begun = &bytes[fire.start - name.count()..];
    let begins = |option: &[u8]| {
        option.starts_with(b"--") && option.get(2).is_some_and(u8::is_ascii_lowercase)
    };
    begins(begun) || memmem::find_iter(within, b", --").any(|at| begins(&within[at + 2..]))
}

/// The matches of rules that add nothing, by rule and place.
fn conditions(rules: &Rules, fires: &[SequenceMatch]) -> Vec<SequenceMatch> {
    let conditions = fires.iter().filter(|fire| rules.is_condition(fire.rule));
    let mut conditions: Vec<SequenceMatch> = conditions.copied().collect();
    conditions.sort_unstable_by_key(|fire| (fire.rule, fire.start));
    conditions
}

/// Whether a match of this condition covers a place.
fn covered(conditions: &[SequenceMatch], rule: u16, at: usize) -> bool {
    let next = conditions.partition_point(|one| (one.rule, one.start) <= (rule, at));
    let before = conditions[..next].iter().rev().take(COVERING);
    before.take_while(|one| one.rule == rule).any(|one| at < one.end)
}

/// Whether a match is a part of one name in code, like `ignore_previous_rule_ids` or a flag: of at most
/// [`NAME_WORDS`] words, with a sign of code beside it.
fn in_code_name(text: &str, fire: &SequenceMatch) -> bool {
    let bytes = text.as_bytes();
    let part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let Some(within) = bytes.get(fire.start..fire.end) else { return false };
    if within.is_empty()
        || !within.iter().all(part)
        || !within.contains(&b'_') && !within.contains(&b'-')
    {
        return false;
    }
    let start = bytes[..fire.start].iter().rposition(|byte| !part(byte)).map_or(0, |at| at + 1);
    let end = bytes[fire.end..].iter().position(|byte| !part(byte));
    let end = end.map_or(bytes.len(), |at| fire.end + at);
    let words = bytes[start..end].split(|byte| matches!(byte, b'_' | b'-'));
    if words.filter(|word| !word.is_empty()).count() > NAME_WORDS {
        return false;
    }
    let before = start.checked_sub(1).map(|at| bytes[at]);
    let after = bytes.get(end).copied();
    let member = after == Some(b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_alphanumeric);
    let key = after == Some(b':') && !bytes[start..end].contains(&b'-');
    matches!(before, Some(b'.' | b'(' | b'"' | b'\'' | b'`' | b'$' | b'@' | b'/' | b'['))
        || member
        || key
        || matches!(after, Some(b'(' | b'=' | b'"' | b'\'' | b'`' | b';' | b'[' | b']'))
        || bytes[end..].trim_ascii_start().starts_with(b"=")
}

/// Whether a match goes over signs of code into a name of several words, like `show(text=system_prompt)` or
/// `list[str], system_prompt: str`: code passes values and orders nothing.
fn ends_in_code_name(text: &str, fire: &SequenceMatch) -> bool {
    let bytes = text.as_bytes();
    let part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let Some(within) = bytes.get(fire.start..fire.end) else { return false };
    let start = within.iter().rposition(|byte| !part(byte)).map_or(0, |at| at + 1);
    let name = &within[start..];
    let signs = within[..start].iter().any(|byte| matches!(byte, b'=' | b'(' | b'[' | b']' | b'{'));
    let words = name.split(|byte| *byte == b'_').filter(|word| !word.is_empty()).count();
    signs
        && (2..=NAME_WORDS).contains(&words)
        && !bytes.get(fire.end..).is_some_and(|rest| rest.first().is_some_and(part))
}

/// Whether a match is the one word of a link's title: a bracket that an address follows opens no part of a prompt.
fn is_link_title(text: &str, fire: &SequenceMatch) -> bool {
    let bytes = text.as_bytes();
    let (Some(within), Some(behind)) = (bytes.get(fire.start..fire.end), bytes.get(fire.end..))
    else {
        return false;
    };
    let word = within.strip_prefix(b"[").unwrap_or(within);
    let opened = word.len() < within.len() || fire.start > 0 && bytes[fire.start - 1] == b'[';
    opened
        && word.iter().all(u8::is_ascii_alphanumeric)
        && [&b"](http"[..], b"](./", b"](../"].iter().any(|link| behind.starts_with(link))
}

/// Whether a match is in one cell of a table's row: a column separator before it and one behind it in its line.
fn in_table(text: &str, fire: &SequenceMatch) -> bool {
    let Some(line) = line_around(text, fire) else { return false };
    let (before, within) = (&text[line.start..fire.start], &text[fire.start..fire.end]);
    let column = |sign: char| matches!(sign, '|' | '\u{2502}' | '\u{2503}');
    before.trim_start().starts_with(column)
        && !within.contains(column)
        && text[fire.end..line.end].contains(column)
}

/// The list item around a match, if the list has another item beside it.
fn list_item(text: &str, fire: &SequenceMatch) -> Option<Range<usize>> {
    let line = line_around(text, fire)?;
    let from = text.ceil_char_boundary(line.start.saturating_sub(FENCED));
    let to = text.floor_char_boundary((line.end + FENCED).min(text.len()));
    let before = text[from..line.start].lines().rfind(|other| !other.trim().is_empty());
    let behind = text[line.end..to].lines().find(|other| !other.trim().is_empty());
    let beside = before.is_some_and(is_item) || behind.is_some_and(is_item);
    (beside && is_item(&text[line.clone()])).then_some(line)
}

/// The line that introduces the list whose item a match is in: a heading, or a line that ends with a colon.
fn introduction(text: &str, fire: &SequenceMatch) -> Option<Range<usize>> {
    let line = line_around(text, fire)?;
    if !is_item(&text[line.clone()]) {
        return None;
    }
    let from = text.ceil_char_boundary(line.start.saturating_sub(FENCED));
    let mut end = line.start;
    while end > from {
        end -= 1;
        let start = text[from..end].rfind('\n').map_or(from, |at| from + at + 1);
        let above = &text[start..end];
        if above.trim().is_empty() || is_item(above) || above.starts_with([' ', '\t']) {
            end = start;
            continue;
        }
        let plain = above.trim_end().trim_end_matches(['*', '_']);
        let introduces = above.starts_with('#') || plain.ends_with([':', '\u{ff1a}']);
        return introduces.then_some(start..end);
    }
    None
}

/// Whether a line is an item of a list.
fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    let number = line.trim_start_matches(|sign: char| sign.is_ascii_digit());
    let numbered =
        number.len() < line.len() && (number.starts_with(". ") || number.starts_with(") "));
    numbered || ["- ", "* ", "+ ", "\u{2022} "].iter().any(|sign| line.starts_with(sign))
}

/// The line that contains a match as a whole, of which at most [`FENCED`] bytes are looked at on either side.
fn line_around(text: &str, fire: &SequenceMatch) -> Option<Range<usize>> {
    text.get(fire.start..fire.end).filter(|within| !within.contains('\n'))?;
    let from = text.ceil_char_boundary(fire.start.saturating_sub(FENCED));
    let to = text.floor_char_boundary((fire.end + FENCED).min(text.len()));
    let start = text[from..fire.start].rfind('\n').map(|at| from + at + 1);
    let end = text[fire.end..to].find('\n').map_or(to, |at| fire.end + at);
    start.or((from == 0).then_some(0)).map(|start| start..end)
}

/// Whether a match begins within the path of an address: what a page is called sends nothing.
fn in_address(text: &str, fire: &SequenceMatch) -> bool {
    let start = text.floor_char_boundary(fire.start.min(text.len()));
    let from = text.floor_char_boundary(start.saturating_sub(QUOTED));
    let token = text[from..start]
        .rsplit(|sign: char| sign.is_whitespace() || "<>()\"'`".contains(sign))
        .next();
    let address = token.and_then(|token| token.split_once("://"));
    address.is_some_and(|(_, rest)| rest.contains('/') && !rest.contains(['?', '#', '%']))
}

/// Whether a match goes from the title of a Markdown link into its address: what a title tells of goes nowhere, and
/// the address is the page that tells it.
fn in_link_title(text: &str, fire: &SequenceMatch) -> bool {
    let bytes = text.as_bytes();
    let Some(within) = bytes.get(fire.start..fire.end) else { return false };
    let Some(seam) = memmem::rfind(within, b"](") else { return false };
    let from = fire.start.saturating_sub(QUOTED);
    let mut depth = 1_i32;
    for (at, byte) in bytes[from..fire.start + seam].iter().enumerate().rev() {
        match byte {
            b']' => depth += 1,
            b'[' => depth -= 1,
            b'\n' if bytes[from..from + at].ends_with(b"\n") => return false,
            _ => {}
        }
        if depth == 0 {
            return from + at < fire.start;
        }
    }
    false
}

/// Whether a match is within quotation marks or the title of a link, or in a quoted line.
fn is_quoted(text: &str, fire: &SequenceMatch) -> bool {
    let start = text.floor_char_boundary(fire.start.min(text.len()));
    let from = text.floor_char_boundary(start.saturating_sub(QUOTED));
    let before = &text[from..start];
    let line = before.rfind('\n').map_or(before, |at| &before[at + 1..]);
    if fire.end <= fire.start + 1 {
        return is_quoted_code(line, &text[start..]);
    }
    let end = text.floor_char_boundary(fire.end.clamp(start, text.len()));
    let after = &text[end..text.ceil_char_boundary((end + QUOTED).min(text.len()))];
    let odd = |sign: char| line.matches(sign).count() % 2 == 1 && after.contains(sign);
    let open = |open: char, close: char| {
        let last = |sign: char| line.rfind(sign);
        last(open).is_some_and(|at| last(close).is_none_or(|closed| closed < at))
            && after.contains(close)
    };
    line.trim_start().starts_with('>')
        || odd('"')
        || opened(line) && after.contains(['"', '\u{201d}', '\u{201c}'])
        || in_single_quotes(line, after)
        || odd('`')
        || open('\u{201c}', '\u{201d}')
        || open('\u{ab}', '\u{bb}')
        || open('\u{300c}', '\u{300d}')
        || open('\u{300e}', '\u{300f}')
        || open('\u{201e}', '\u{201c}')
        || open('\u{2018}', '\u{2019}')
        || open('[', ']') && after.find(']').is_some_and(|at| after[at..].starts_with("]("))
}

/// Whether the last quotation mark before a place opens a quotation: it is before a word and not behind one. Marks of both forms
/// close it, since texts mix them.
fn opened(line: &str) -> bool {
    let mark = line.char_indices().rev().find(|(_, sign)| is_double_quote(*sign));
    mark.is_some_and(|(at, sign)| {
        let behind = !line[..at].ends_with(|before: char| !before.is_whitespace() && before != '(');
        behind && !line[at + sign.len_utf8()..].starts_with(char::is_whitespace)
    })
}

const fn is_double_quote(sign: char) -> bool {
    matches!(sign, '"' | '\u{201c}' | '\u{201d}' | '\u{201e}')
}

/// Whether a place is between single quotation marks and none of them is an apostrophe. A prefix like that of a raw string may
/// precede the first.
fn in_single_quotes(line: &str, after: &str) -> bool {
    let opens = |at: usize| {
        let before = &line[..at];
        let raw = before.strip_suffix(['r', 'b', 'f', 'u']);
        !raw.unwrap_or(before).ends_with(char::is_alphanumeric)
    };
    let opening = line.char_indices().rev().find(|(at, sign)| *sign == '\'' && opens(*at));
    let closes = after
        .char_indices()
        .any(|(at, sign)| sign == '\'' && !after[at + 1..].starts_with(char::is_alphanumeric));
    closes && opening.is_some_and(|(at, _)| !line[at + 1..].contains("' "))
}

/// Whether encoded text that begins here is all of a quotation: the marks are right before and right behind its one
/// word. A text that a form finds elsewhere (a link, unseen characters) is not quoted for a reader.
fn is_quoted_code(line: &str, text: &str) -> bool {
    let Some(mark) = line.chars().next_back().filter(|sign| matches!(sign, '"' | '\'' | '`'))
    else {
        return false;
    };
    let length = text.bytes().take(2 * QUOTED).take_while(|byte| is_code_byte(*byte)).count();
    length >= MIN_CODE && text[length..].starts_with(mark)
}

/// Whether a byte is one of base64, of either alphabet, or of hexadecimal digits.
const fn is_code_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=')
}

/// The positions of the fences of code blocks: first in their lines, behind nothing but spaces and the sign of a list's item.
fn fences(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let first = |at: &usize| {
        let before = bytes[at.saturating_sub(LIST_INDENT)..*at].iter().rev();
        let sign = before.clone().find(|byte| !matches!(byte, b' ' | b'\t' | b'-' | b'*' | b'>'));
        sign.map_or(*at <= LIST_INDENT, |sign| *sign == b'\n')
    };
    memmem::find_iter(bytes, b"```").filter(first).collect()
}

/// The beginning of the code block around a match, if both of its fences are near.
fn fence_around(fences: &[usize], start: usize, end: usize) -> Option<usize> {
    let before = fences.partition_point(|at| *at < start);
    let near = |at: &&usize| at.abs_diff(start) <= FENCED;
    // As many fences close a block as open one: the odd one is open.
    let open = fences[..before].last().filter(near).filter(|_| before % 2 == 1)?;
    let closes = fences.get(before).is_some_and(|at| *at >= end && at - end <= FENCED);
    closes.then_some(*open)
}
