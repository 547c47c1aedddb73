//! A handoff as a message of SQS: body, attributes, group and deduplication id. Pure.

use serde_json::{Map, Value, json};

use super::super::text::{TextBody, attempt_text};
use handoffd_broker::transport::envelope::names;
use handoffd_broker::transport::{Attempt, Envelope};

/// Most attributes of a message.
const MAX_ATTRIBUTES: usize = 10;

/// Headers that a message leaves out: `webhook-id` has the handoff's id, and the deduplication id is that and the
/// attempt.
const IMPLIED: [&str; 2] = [names::HANDOFF_ID, names::DEDUPLICATION_ID];

/// Headers that a message goes without, first those named first, when it has more than [`MAX_ATTRIBUTES`].
const EXPENDABLE: [&str; 2] = [names::TRACESTATE, names::TRACEPARENT];

/// The input of `SendMessage`, and its size as SQS counts it: the body, and the name, type and value of each attribute.
#[must_use]
pub fn send_input(queue_url: &str, attempt: &Attempt) -> (Value, usize) {
    let TextBody { text, coding } = attempt_text(attempt, carried);
    let envelope = &attempt.envelope;
    let attributes = attributes(envelope, &attempt.body, coding.as_deref());
    let size = text.len()
        + attributes
            .iter()
            .map(|(name, value)| name.len() + "String".len() + value.len())
            .sum::<usize>();
    let attributes: Map<_, _> = attributes
        .into_iter()
        .map(|(name, value)| (name.to_owned(), json!({"DataType": "String", "StringValue": value})))
        .collect();
    let mut input = json!({
        "QueueUrl": queue_url,
        "MessageBody": text,
        "MessageAttributes": attributes,
    });
    if is_fifo(queue_url) {
        input["MessageGroupId"] = envelope.task_id.to_string().into();
        input["MessageDeduplicationId"] = envelope.deduplication_id().into();
    }
    (input, size)
}

fn attributes(
    envelope: &Envelope,
    body: &[u8],
    coding: Option<&str>,
) -> Vec<(&'static str, String)> {
    let mut attributes: Vec<(&'static str, String)> = envelope
        .headers(body)
        .into_iter()
        .filter(|(name, _)| !IMPLIED.contains(name) && *name != names::CONTENT_ENCODING)
        .map(|(name, value)| (name, value.into_owned()))
        // SQS refuses an empty value.
        .filter(|(_, value)| !value.is_empty())
        .collect();
    attributes.extend(coding.map(|coding| (names::CONTENT_ENCODING, coding.to_owned())));
    for name in EXPENDABLE {
        if attributes.len() > MAX_ATTRIBUTES {
            attributes.retain(|(kept, _)| *kept != name);
        }
    }
    attributes
}

/// Whether a queue keeps an order and drops repeats.
#[must_use]
pub fn is_fifo(queue_url: &str) -> bool {
    // By the letter, as the service has it.
    queue_url.strip_suffix(".fifo").is_some()
}

/// Characters of a message's text: those of XML 1.0.
const fn carried(character: char) -> bool {
    matches!(
        character,
        '\t' | '\n' | '\r' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..='\u{10FFFF}'
    )
}

/// The region in the name of an SQS server of AWS; `None` for other servers.
#[must_use]
pub fn region_of(host: &str) -> Option<&str> {
    let labels: Vec<_> = host.split('.').collect();
    if !labels.ends_with(&["amazonaws", "com"])
        && !labels.ends_with(&["amazonaws", "com", "cn"])
        && !labels.ends_with(&["api", "aws"])
    {
        return None;
    }
    let at = labels.iter().position(|label| matches!(*label, "sqs" | "sqs-fips" | "queue"))?;
    match (labels[at], at) {
        ("queue", 0) => Some("us-east-1"),
        ("queue", _) => Some(labels[at - 1]),
        _ => labels.get(at + 1).copied().filter(|label| label.contains('-')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_is_read_from_the_servers_of_aws_alone() {
        for (host, region) in [
            ("sqs.eu-west-1.amazonaws.com", Some("eu-west-1")),
            ("sqs-fips.us-gov-west-1.amazonaws.com", Some("us-gov-west-1")),
            ("sqs.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
            ("sqs.eu-central-1.api.aws", Some("eu-central-1")),
            ("vpce-0a1b-2c3d.sqs.us-east-1.vpce.amazonaws.com", Some("us-east-1")),
            ("ap-southeast-2.queue.amazonaws.com", Some("ap-southeast-2")),
            ("queue.amazonaws.com", Some("us-east-1")),
            ("sqs.eu-west-1.example.com", None),
            ("localhost", None),
            ("127.0.0.1", None),
        ] {
            assert_eq!(region_of(host), region, "{host}");
        }
    }

    #[test]
    fn two_characters_are_not_carried() {
        assert!(carried('é') && carried('\u{7f}') && carried('\u{1F600}'));
        assert!(!carried('\u{FFFE}') && !carried('\u{FFFF}') && !carried('\u{1}'));
    }
}
