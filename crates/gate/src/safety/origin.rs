//! The class of a value by its origin: who said it, as the formats of models and agents write it down.
//!
//! A tool's output counts as one at every place: in a turn of the user with a part of type `tool_result`
//! (Anthropic), in a `functionResponse` (Google), in a message with a `tool_call_id` (`OpenAI`), in a serialised
//! `ToolMessage` (`LangChain`), in `structuredContent` (MCP) or in an artifact (A2A).

use serde_json::{Map, Value};

use super::rules::FieldClass;

/// Roles of turns that tools speak in, in lower case without `_`, `-` and spaces.
fn is_tool_role(name: &str) -> bool {
    matches!(
        name,
        "tool"
            | "tools"
            | "function"
            | "functions"
            | "observation"
            | "ipython"
            | "toolresult"
            | "tooloutput"
            | "toolresponse"
            | "toolmessage"
            | "functionresponse"
            | "functionresult"
            | "functionoutput"
            | "environment"
            | "env"
            | "browser"
            | "python"
            | "interpreter"
            | "computer"
            | "search"
            | "retriever"
            | "mcp"
    )
}

/// Types of parts that hold what came from outside, besides those that [`is_output`] tells by their words.
fn is_output_type(name: &str) -> bool {
    matches!(
        name,
        "observation"
            | "resource"
            | "embeddedresource"
            | "resourcelink"
            | "searchresult"
            | "websearchresult"
            | "documentresult"
            | "artifact"
            | "artifactupdate"
            | "citation"
    )
}

/// Names of members whose values are outputs of tools.
fn is_output_member(name: &str) -> bool {
    matches!(
        name,
        "toolresult"
            | "toolresults"
            | "tooloutput"
            | "tooloutputs"
            | "toolresponse"
            | "toolresponses"
            | "toolmessage"
            | "toolmessages"
            | "functionresponse"
            | "functionresponses"
            | "functionresult"
            | "functioncalloutput"
            | "observation"
            | "observations"
            | "cachedresults"
            | "searchresults"
            | "structuredcontent"
            | "retrieveddocuments"
            | "retrievedcontext"
            | "artifacts"
            | "artifact"
            | "stdout"
            | "stderr"
            | "pagecontent"
            | "webpage"
            | "returndisplay"
    )
}

/// Members that only the answer to a call has.
fn is_answer_member(name: &str) -> bool {
    matches!(name, "toolcallid" | "tooluseid" | "callid" | "functioncallid" | "iserror")
}

/// Longest name that is compared, in bytes.
const LONGEST: usize = 40;

/// A name in lower case, without `_`, `-`, `.` and spaces; empty if it is too long for any.
struct PlainName {
    bytes: [u8; LONGEST],
    length: usize,
}

impl PlainName {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

fn plain(name: &str) -> PlainName {
    let mut plain = PlainName { bytes: [0; LONGEST], length: 0 };
    if name.len() > LONGEST {
        return plain;
    }
    for byte in name.bytes().filter(|byte| !matches!(byte, b'_' | b'-' | b'.' | b' ')) {
        plain.bytes[plain.length] = byte.to_ascii_lowercase();
        plain.length += 1;
    }
    plain
}

/// Whether a part's type names the output of a tool: `tool_result`, `function_call_output`, `ToolMessage`.
fn is_output(name: &str) -> bool {
    let name = plain(name);
    let name = name.as_str();
    let caller = ["tool", "function", "call", "mcp"].iter().any(|word| name.contains(word));
    let output = ["result", "output", "response", "return", "message"];
    (caller && output.iter().any(|word| name.ends_with(word))) || is_output_type(name)
}

/// The class of an object's members, if the object itself is in a value of class `around`. Everything within a
/// tool's output is a tool's output.
pub(super) fn of_object(members: &Map<String, Value>, around: FieldClass) -> FieldClass {
    if around == FieldClass::ToolOutput {
        return around;
    }
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    // Roles of `OpenAI` and most others; the author of AutoGen and A2A; the types of `LangChain`.
    let role = text("role").or_else(|| text("author")).map(plain);
    let typed = ["type", "kind", "lc_type"].into_iter().filter_map(text);
    let speaks = |name: &str| is_tool_role(name);
    let speaker = members.contains_key("content") || members.contains_key("parts");
    let by_type = |name: &str| is_output(name) || (speaker && speaks(plain(name).as_str()));
    let by_class = || {
        let path = members.get("id").and_then(Value::as_array)?;
        path.last()?.as_str().filter(|name| is_output(name))
    };
    if role.as_ref().is_some_and(|role| speaks(role.as_str()))
        || typed.into_iter().any(by_type)
        || members.contains_key("lc") && by_class().is_some()
        || is_answer(members)
    {
        return FieldClass::ToolOutput;
    }
    let turn = speaker || members.contains_key("text");
    match role.as_ref().map(PlainName::as_str) {
        Some("user" | "human") if turn && around == FieldClass::Data => FieldClass::UserTurn,
        _ => around,
    }
}

/// Whether an object answers a call: it has the call's id, and no call.
fn is_answer(members: &Map<String, Value>) -> bool {
    if members.len() < 2 || members.contains_key("arguments") || members.contains_key("args") {
        return false;
    }
    let says = ["content", "output", "result", "response", "structuredContent"];
    says.iter().any(|name| members.contains_key(*name))
        && members.keys().any(|name| is_answer_member(plain(name).as_str()))
}

/// Whether a name begins like one of [`is_output_member`]: most do not.
fn may_be_output(name: &[u8]) -> bool {
    const BEGINS: [[u8; 2]; 10] =
        [*b"to", *b"fu", *b"ob", *b"ca", *b"se", *b"st", *b"re", *b"pa", *b"we", *b"ar"];
    // Shortest of the names, without joints.
    name.len() >= 6 && BEGINS.contains(&[name[0] | 0x20, name[1] | 0x20])
}

/// The class of a member's value, where its object's members are of class `class`.
pub(super) fn of_member(name: &str, class: FieldClass) -> FieldClass {
    if class == FieldClass::ToolOutput || !may_be_output(name.as_bytes()) {
        return class;
    }
    if is_output_member(plain(name).as_str()) { FieldClass::ToolOutput } else { class }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tools_output_is_one_in_every_format() {
        for value in [
            json!({"role": "tool", "content": "x"}),
            json!({"role": "Tool", "content": "x"}),
            json!({"role": "function", "content": "x"}),
            json!({"role": "observation", "content": "x"}),
            json!({"role": "ipython", "content": "x"}),
            json!({"role": "tool_result", "content": "x"}),
            json!({"role": "environment", "content": "x"}),
            json!({"type": "tool_result", "tool_use_id": "a", "content": "x"}),
            json!({"type": "tool-result", "toolName": "a", "output": "x"}),
            json!({"type": "function_call_output", "call_id": "a", "output": "x"}),
            json!({"type": "mcp_tool_result", "content": "x"}),
            json!({"type": "web_search_tool_result", "content": "x"}),
            json!({"type": "tool", "content": "x"}),
            json!({"type": "ToolMessage", "content": "x"}),
            json!({"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "ToolMessage"], "kwargs": {}}),
            json!({"content": [{"type": "text", "text": "x"}], "isError": false}),
            json!({"tool_call_id": "a", "content": "x"}),
            json!({"type": "resource", "resource": {"text": "x"}}),
        ] {
            let members = value.as_object().expect("an object");
            assert_eq!(of_object(members, FieldClass::Data), FieldClass::ToolOutput, "{value}");
        }
        for name in ["functionResponse", "tool_result", "cached_results", "structuredContent"] {
            assert_eq!(of_member(name, FieldClass::UserTurn), FieldClass::ToolOutput, "{name}");
        }
    }

    #[test]
    fn what_is_said_and_what_is_called_keep_their_class() {
        for (value, class) in [
            (json!({"role": "assistant", "content": "x"}), FieldClass::Data),
            (json!({"role": "user", "content": "x"}), FieldClass::UserTurn),
            (json!({"role": "user", "name": "x"}), FieldClass::Data),
            (json!({"type": "tool_use", "id": "a", "name": "x", "input": {}}), FieldClass::Data),
            (
                json!({"type": "function", "function": {"name": "x", "arguments": "{}"}}),
                FieldClass::Data,
            ),
            (json!({"type": "text", "text": "x"}), FieldClass::Data),
            (json!({"call_id": "a", "arguments": "x"}), FieldClass::Data),
            (json!({"tool": "x", "version": "1"}), FieldClass::Data),
        ] {
            let members = value.as_object().expect("an object");
            assert_eq!(of_object(members, FieldClass::Data), class, "{value}");
        }
        assert_eq!(of_member("result", FieldClass::Task), FieldClass::Task);
    }
}
