//! W3C Trace Context, level 2: `traceparent` and `tracestate`, read and written.
//!
//! Whatever cannot be read counts as absent (§3.2, §4.3): a trace context is never an error to who
//! sends it.

use std::fmt;

use serde::Deserialize;

/// The flag of a caller that may have recorded the trace (§3.2.2.5.1).
const SAMPLED: u8 = 0b01;
/// The flag of a trace whose id is random (§3.2.2.5.2).
const RANDOM: u8 = 0b10;
/// The flags that level 2 defines. Others are sent as 0 (§3.2.2.5.3).
const KNOWN_FLAGS: u8 = SAMPLED | RANDOM;
/// Members of a list, at most (§3.3.1.1).
const MAX_MEMBERS: usize = 32;
/// Characters of a key, and of a value, at most (§3.3.1.3).
const MAX_TEXT: usize = 256;
/// Characters of a whole state that are sent on. The Recommendation asks for 512 at least; common
/// servers take 8 KiB of headers in all.
pub const MAX_STATE: usize = 4096;
/// Members above this go first where a state is too long (§3.3.1.5).
const LARGE_MEMBER: usize = 128;

/// A `traceparent` of version 00.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; not all zero.
    pub trace_id: [u8; 16],
    /// The span under which one works; not all zero.
    pub parent_id: [u8; 8],
    /// Known flags only.
    pub flags: u8,
}

impl TraceParent {
    /// Of these parts; none where an id is all zero.
    #[must_use]
    pub fn new(trace_id: [u8; 16], parent_id: [u8; 8], flags: u8) -> Option<Self> {
        let valid = trace_id != [0; 16] && parent_id != [0; 8];
        valid.then_some(Self { trace_id, parent_id, flags: flags & KNOWN_FLAGS })
    }

    /// Reads a header's value. Of a later version, what version 00 has of it (§3.2.2.1).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = trimmed(text);
        let (head, rest) = text.split_at_checked(55)?;
        let mut parts = head.split('-');
        let [version] = bytes::<1>(parts.next()?)?;
        let known = match version {
            0xff => false,
            0 => rest.is_empty(),
            _ => rest.is_empty() || rest.starts_with('-'),
        };
        let trace_id = bytes(parts.next()?)?;
        let parent_id = bytes(parts.next()?)?;
        let [flags] = bytes::<1>(parts.next()?)?;
        let whole = known && parts.next().is_none();
        whole.then(|| Self::new(trace_id, parent_id, flags)).flatten()
    }

    /// With what `other` says of the trace, where it is the same: how its id was made stays known, whatever
    /// a span between them is told.
    #[must_use]
    pub fn of_trace(self, other: &Self) -> Self {
        let same = self.trace_id == other.trace_id;
        Self { flags: self.flags | if same { other.flags & RANDOM } else { 0 }, ..self }
    }

    /// Its caller may have recorded it.
    #[must_use]
    pub const fn sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The trace's id in 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id_hex(&self) -> String {
        hex::encode(self.trace_id)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, parent) = (hex::encode(self.trace_id), hex::encode(self.parent_id));
        write!(f, "00-{trace}-{parent}-{:02x}", self.flags)
    }
}

/// Exactly `N` bytes in lower-case hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut found = [0; N];
    let lower = !text.bytes().any(|b| b.is_ascii_uppercase());
    (lower && hex::decode_to_slice(text, &mut found).is_ok()).then_some(found)
}

/// Without optional white space around it (RFC 9110 §5.6.3).
fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

/// Reads the values of `tracestate` headers as one list, in their order. Empty if one member is
/// malformed or there are too many (§3.3.1). A list that is too long loses whole members
/// (§3.3.1.5).
#[must_use]
pub fn tracestate<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    let mut members = Vec::new();
    let all = values.into_iter().flat_map(|value| value.split(','));
    for member in all.map(trimmed).filter(|member| !member.is_empty()) {
        if members.len() == MAX_MEMBERS || !is_member(member) {
            return String::new();
        }
        members.push(member);
    }
    shortened(members).join(",")
}

fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else { return false };
    let sizes = 1..=MAX_TEXT;
    let leads = key.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let in_key = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-*/@".contains(&b);
    let in_value = |b: u8| (0x20..=0x7e).contains(&b) && b != b',' && b != b'=';
    leads
        && sizes.contains(&key.len())
        && sizes.contains(&value.len())
        && key.bytes().all(in_key)
        && value.bytes().all(in_value)
}

/// The large members go first, then those at the end; each from the right.
fn shortened(mut members: Vec<&str>) -> Vec<&str> {
    let length = |members: &[&str]| {
        members.iter().map(|member| member.len() + 1).sum::<usize>().saturating_sub(1)
    };
    while length(&members) > MAX_STATE {
        let large = members.iter().rposition(|member| member.len() > LARGE_MEMBER);
        members.remove(large.unwrap_or(members.len() - 1));
    }
    members
}

/// A position in a trace, with what vendors say of it. The two travel as a pair and are never mixed
/// with those of another place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    pub parent: TraceParent,
    /// `tracestate` as it is sent on; empty for none.
    pub state: String,
}

impl TraceContext {
    /// Of a request's headers. None unless there is exactly one `traceparent`, and a valid one; a state
    /// without a parent counts for nothing.
    #[must_use]
    pub fn of_headers<'a>(
        parents: impl IntoIterator<Item = &'a str>,
        states: impl IntoIterator<Item = &'a str>,
    ) -> Option<Self> {
        let mut parents = parents.into_iter();
        let parent = TraceParent::parse(parents.next()?)?;
        parents.next().is_none().then(|| Self { parent, state: tracestate(states) })
    }

    /// Of a message's members.
    #[must_use]
    pub fn of_message(traceparent: &str, state: Option<&str>) -> Option<Self> {
        Self::of_headers([traceparent], state)
    }

    /// The context in a body that has not been checked yet. Its spans belong under it from the
    /// first stage on.
    #[must_use]
    pub fn peek(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Members<'a> {
            #[serde(borrow)]
            traceparent: std::borrow::Cow<'a, str>,
            #[serde(borrow)]
            tracestate: Option<std::borrow::Cow<'a, str>>,
        }
        let members: Members<'_> = serde_json::from_slice(body).ok()?;
        Self::of_message(&members.traceparent, members.tracestate.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "12345678901234567890123456789012";
    const PARENT: &str = "1234567890123456";

    fn parse(text: &str) -> Option<String> {
        TraceParent::parse(text).map(|parent| parent.to_string())
    }

    #[test]
    fn a_traceparent_is_read_as_the_recommendation_says() {
        let known = format!("00-{TRACE}-{PARENT}-01");
        assert_eq!(parse(&known).as_ref(), Some(&known));
        assert_eq!(parse(&format!("\t {known} \t")).as_ref(), Some(&known));
        for later in ["cc", "01", "fe"] {
            assert_eq!(parse(&format!("{later}-{TRACE}-{PARENT}-01")).as_ref(), Some(&known));
            let more = format!("{later}-{TRACE}-{PARENT}-01-what-the-future-will-be-like");
            assert_eq!(parse(&more).as_ref(), Some(&known));
        }
        // Sampled and random stay, the others are not ours to send.
        for (flags, sent) in [("00", "00"), ("02", "02"), ("03", "03"), ("ff", "03"), ("08", "00")]
        {
            let sent = format!("00-{TRACE}-{PARENT}-{sent}");
            assert_eq!(parse(&format!("00-{TRACE}-{PARENT}-{flags}")), Some(sent));
        }
    }

    #[test]
    fn that_an_id_is_random_stays_with_the_trace() {
        let at = |trace: &str, flags: &str| {
            TraceParent::parse(&format!("00-{trace}-{PARENT}-{flags}")).unwrap()
        };
        let other = TRACE.replace('1', "2");
        assert_eq!(at(TRACE, "00").of_trace(&at(TRACE, "03")), at(TRACE, "02"));
        assert_eq!(at(TRACE, "01").of_trace(&at(TRACE, "02")), at(TRACE, "03"));
        assert_eq!(at(TRACE, "01").of_trace(&at(&other, "03")), at(TRACE, "01"));
        assert!(at(TRACE, "01").sampled() && !at(TRACE, "02").sampled());
    }

    #[test]
    fn what_is_no_traceparent_counts_as_absent() {
        let zeros = "0".repeat(32);
        for text in [
            String::new(),
            format!("00-{TRACE}-{PARENT}"),
            format!("00-{TRACE}-{PARENT}-01-"),
            format!("00-{TRACE}-{PARENT}-01."),
            format!("00-{TRACE}-{PARENT}-1"),
            format!("00-{TRACE}-{PARENT}-0G"),
            format!("cc-{TRACE}-{PARENT}-01.later"),
            format!("ff-{TRACE}-{PARENT}-01"),
            format!("0-{TRACE}-{PARENT}-01"),
            format!("000-{TRACE}-{PARENT}-01"),
            format!(".0-{TRACE}-{PARENT}-01"),
            format!("00-{zeros}-{PARENT}-01"),
            format!("00-{TRACE}-{}-01", &zeros[..16]),
            format!("00-{}-{PARENT}-01", TRACE.replace('1', "A")),
            format!("00-{TRACE}1-{PARENT}-01"),
            format!("00-{TRACE}-{PARENT}-0é"),
            format!("00_{TRACE}-{PARENT}-01"),
        ] {
            assert_eq!(parse(&text), None, "{text}");
        }
    }

    #[test]
    fn several_states_are_one_list_in_their_order() {
        assert_eq!(
            tracestate(["foo=1,bar=2", "", " rojo= 1\t,, congo=2 "]),
            "foo=1,bar=2,rojo= 1,congo=2"
        );
        assert_eq!(tracestate(["foo=1", "foo=2"]), "foo=1,foo=2");
        let long = format!("{}={}", "k".repeat(256), "v".repeat(256));
        assert_eq!(tracestate([long.as_str()]), long);
        for key in ["foo@", "foo@@bar", "0", "a_-*/@b"] {
            let member = format!("{key}=~ !");
            assert_eq!(tracestate([member.as_str()]), member);
        }
    }

    #[test]
    fn one_malformed_member_voids_the_state() {
        let long = format!("{}=1", "k".repeat(257));
        let value = format!("k={}", "v".repeat(257));
        for member in [
            "foo",
            "=1",
            "foo=",
            "foo =1",
            "FOO=1",
            "foo.bar=1",
            "@foo=1",
            "foo=a=b",
            "foo=é",
            &long,
            &value,
        ] {
            assert_eq!(tracestate(["ok=1", member]), "", "{member}");
        }
        let many =
            |count: usize| (0..count).map(|n| format!("k{n}=1")).collect::<Vec<_>>().join(",");
        assert_eq!(tracestate([many(32).as_str()]), many(32));
        assert_eq!(tracestate([many(33).as_str()]), "");
    }

    #[test]
    fn what_is_too_long_loses_whole_members_the_large_ones_first() {
        let member = |n: usize, size: usize| format!("k{n:02}={}", "v".repeat(size - 4));
        // Ten large ones and twenty small ones: 10·256 + 20·100 + 29 commas.
        let all: Vec<_> = (0..30).map(|n| member(n, if n % 3 == 0 { 256 } else { 100 })).collect();
        let kept = tracestate([all.join(",").as_str()]);
        assert!(kept.len() <= MAX_STATE && kept.len() > MAX_STATE - 257, "{}", kept.len());
        let lost: Vec<_> = all.iter().filter(|member| !kept.contains(member.as_str())).collect();
        assert_eq!(lost, [&all[24], &all[27]]);
        let small: Vec<_> = (0..32).map(|n| member(n, 260)).collect();
        assert_eq!(tracestate([small.join(",").as_str()]), small[..15].join(","));
    }

    #[test]
    fn a_context_is_a_pair_or_nothing() {
        let (one, other) = (format!("00-{TRACE}-{PARENT}-01"), format!("00-{TRACE}-{PARENT}-00"));
        let found = TraceContext::of_headers([one.as_str()], ["a=1", "b=2"]).unwrap();
        assert_eq!((found.parent.to_string(), found.state.as_str()), (one.clone(), "a=1,b=2"));
        assert_eq!(TraceContext::of_headers([one.as_str(), &other], ["a=1"]), None);
        assert_eq!(TraceContext::of_headers([], ["a=1"]), None);
        let body = format!(r#"{{"a":[1,{{}}],"traceparent":"{one}","tracestate":"a=1"}}"#);
        assert_eq!(
            TraceContext::peek(body.as_bytes()).map(|found| found.state),
            Some("a=1".to_owned())
        );
        for body in ["", "[]", "{}", r#"{"traceparent":7}"#, r#"{"traceparent":"no"}"#] {
            assert_eq!(TraceContext::peek(body.as_bytes()), None, "{body}");
        }
    }
}
