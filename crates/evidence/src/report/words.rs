//! Meanings of codes for a reader new to the product, and display of untrusted text.

use handoffd_domain::unseen;

/// Most bytes of one content on the page; the bundle has all of it.
const MOST_SHOWN: usize = 256 * 1024;

/// Meaning of a handoff's or task's status.
pub(super) fn status(code: &str) -> &'static str {
    match code {
        "PENDING" => "waiting for the receiver's answer",
        "ACCEPTED" => "the receiver took the task over",
        "INPUT_REQUIRED" => "the receiver asked something and waits for the answer",
        "COMPLETED" => "done",
        "REJECTED" => "the receiver refused; the task went back to the sender",
        "EXPIRED" => "no answer came in time; the task went back to the sender",
        "FAILED" => "it could not be delivered or carried out; the task went back to the sender",
        "DEAD_LETTERED" => "kept back for a person to decide",
        "CANCELED" => "called off",
        "NO_OP" => "handed to itself: nothing was to be done",
        "HANDING_OFF" => "on its way from one agent to the next",
        "RUNNING" => "an agent is working on it",
        "PENDING_HANDOFF" => "back with an agent that has to hand it over again",
        "ESCALATED" => "waiting for a person to decide",
        _ => "",
    }
}

/// Colour class of a status: `good`, `bad` or `open`.
pub(super) fn tone(code: &str) -> &'static str {
    match code {
        "ACCEPTED" | "COMPLETED" => "good",
        "REJECTED" | "EXPIRED" | "FAILED" | "DEAD_LETTERED" | "CANCELED" | "ESCALATED" => "bad",
        _ => "open",
    }
}

/// Meaning of a kind of record.
pub(super) fn kind(code: &str) -> &'static str {
    match code {
        "HANDOFF" => "An agent handed the task over",
        "REFUSED" => "The broker's checks refused a message",
        "NO_OP" => "An agent handed the task to itself",
        "DEAD_LETTERED" => "A message was kept back for a person to decide",
        "ACCEPTED" => "The receiver accepted",
        "TAKEN_OVER" => "Another worker of the receiver took over from one that was silent",
        "REJECTED" => "The receiver refused",
        "INPUT_REQUESTED" => "The receiver asked the sender a question",
        "INPUT_PROVIDED" => "The receiver's question was answered",
        "COMPLETED" => "The receiver finished",
        "FAILED" => "Delivery or the work itself failed",
        "EXPIRED" => "A deadline passed",
        "COMPRESSED" => "The message was shortened to fit its receiver",
        "CHUNK" => "A further piece of a message that comes in pieces",
        "SECOND_OPINION" => "A classifier was asked about the message",
        "STREAM_CLOSED" => "The last piece came: the message is whole",
        "RETURNED" => "The task went back to the agent that asked for its return",
        "GROUP_ENDED" => "A handoff to several receivers ended",
        "ROLLED_BACK" => "The task went back to the sender's last saved state",
        "CHECKPOINT" => "An agent saved its state",
        "TASK_COMPLETED" => "The task was declared done",
        _ => "",
    }
}

/// Untrusted text for display: invisible characters and those that change the text direction are replaced by their
/// names. The template escapes HTML.
pub(super) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (character, hidden) in unseen::each(text) {
        if hidden { name(character, &mut out) } else { out.push(character) }
    }
    out
}

fn name(character: char, out: &mut String) {
    use std::fmt::Write as _;
    // Writing into memory cannot fail.
    let _ = write!(out, "⟨U+{:04X}⟩", u32::from(character));
}

/// [`visible`] text, cut at the limit of the page.
pub(super) fn excerpt(text: &str) -> String {
    if text.len() <= MOST_SHOWN {
        return visible(text);
    }
    let end = (0..=MOST_SHOWN).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let rest = text.len() - end;
    format!(
        "{}\n… and {rest} bytes more; the files beside this page have all of it",
        visible(&text[..end])
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_or_turns_text_is_named() {
        assert_eq!(visible("a\u{202e}b\u{0}\nc\u{200b}"), "a⟨U+202E⟩b⟨U+0000⟩\nc⟨U+200B⟩");
        assert_eq!(visible("Žluťoučký 契約 👩\u{200d}👧"), "Žluťoučký 契約 👩\u{200d}👧");
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        let shown = excerpt(&"é".repeat(MOST_SHOWN));
        assert!(shown.len() < MOST_SHOWN + 200 && shown.contains("262144 bytes more"));
    }
}
