"""The builder, the measuring, the canonical form: pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import rfc8785
from broker import REPOSITORY

from handoffd import (
    AgentState,
    WindowExceededError,
    build_handoff_message,
    canonical,
    derived_execution_id,
    derived_id,
    estimate_tokens,
    measure_message,
    sign_message,
    step_digest,
    validate_handoff_message,
)

STATE = {"agent_id": "intake", "task": "Check clause 4.2"}
VECTOR = "sha256:307f9c751ead2d02299592e036f79a905fddc2c0b54b67dbe6d6338bde95c35a"


def test_two_fields_are_enough_for_a_valid_message() -> None:
    message = build_handoff_message(STATE, "legal")
    assert validate_handoff_message(message)
    assert message["toAgent"] == {"agentId": "legal"} and message["schemaVersion"] == "2.2"
    # Nothing was done yet, and the message says so; what is to be done is what remains.
    assert message["taskDescription"] == "INITIAL" and message["completedSubtasks"] == []
    assert message["remainingSubtasks"] == [{"subtaskId": "task", "description": "Check clause 4.2"}]
    assert message["taskSummary"] == "Check clause 4.2"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("legal", {"agentId": "legal"}),
        ("type:reviewer", {"agentType": "reviewer", "agentVersion": "*"}),
        ("capability:scoring", {"capability": "scoring"}),
        ({"agentType": "reviewer", "agentVersion": "^2"}, {"agentType": "reviewer", "agentVersion": "^2"}),
        ("a:b", {"agentId": "a:b"}),
    ],
)
def test_targets(target: object, expected: object) -> None:
    message = build_handoff_message(STATE, target)  # type: ignore[arg-type]
    assert message["toAgent"] == expected and validate_handoff_message(message)


def test_a_completed_subtask_has_the_id_of_its_content_at_every_hop() -> None:
    """Finding G4 of 0.3.0: an id by position let the fourth honest hop fail with LOOP_DETECTED."""

    def ids(*completed: str | dict[str, Any]) -> list[str]:
        state = AgentState(agent_id="intake", task="go on", completed=completed)
        return [one["subtaskId"] for one in build_handoff_message(state, "legal")["completedSubtasks"]]

    (read,), (write,) = ids("read"), ids("write")
    assert read != write and ids("write", "read") == [write, read]
    assert ids({"description": "read", "result": {"n": 2}}) != [read]
    assert ids("read", "read") == [read, f"{read}-2"]
    # The same as the doors' and the TypeScript SDK's.
    assert read == "done-4510fe93a2a93e68"


def test_what_is_missing_in_lists_is_filled_in() -> None:
    message = build_handoff_message(
        AgentState(
            agent_id="intake",
            task="Score it",
            completed=["Read it", {"subtaskId": "x", "result": 7, "note": None}],
            remaining=["Score it"],
            history=[
                "Hello",
                {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]},
                {"tool_call_id": "c1", "content": 5},
            ],
            tool_calls=[{"tool": "search", "input": {"q": "x"}, "output": "found " * 40}],
            context=["clause text"],
            state={"kept": None},
        ),
        "legal",
        {"tone": "formal", "budgetUSD": "2.50"},
    )
    assert validate_handoff_message(message), validate_handoff_message(message).details
    assert message["taskDescription"] == "Score it"
    assert [one["result"] for one in message["completedSubtasks"]] == [{}, {"value": 7}]
    assert "note" not in message["completedSubtasks"][1]
    assert message["currentState"] == {"kept": None}, "content keeps its nulls"
    assert message["conversationHistoryVerbatim"][1] == {"role": "assistant", "content": {"tool_calls": [{"id": "c1"}]}}
    assert message["conversationHistoryVerbatim"][2]["role"] == "tool"
    assert re.fullmatch("sha256:[0-9a-f]{64}", message["toolCallHistory"][0]["inputHash"])
    assert 40 <= message["toolCallHistory"][0]["outputTokens"] <= 160
    assert message["constraints"] == ["tone:formal", "budgetUSD:2.50"]


def test_null_members_are_left_out_and_the_parent_is_not() -> None:
    message = build_handoff_message({**STATE, "fields": {"reason": None, "priority": "high"}}, "legal")
    assert "reason" not in message and "checkpoint" not in message and message["priority"] == "high"
    assert message["parentHandoffId"] is None


def test_a_repeated_step_has_the_same_ids_and_another_has_others() -> None:
    def ids(**more: str) -> tuple[str, ...]:
        message = build_handoff_message({**STATE, **more}, "legal")
        assert validate_handoff_message(message)
        return message["taskId"], message["handoffId"], message["fromAgent"]["executionId"]

    assert ids(run="r", step="s") == ids(run="r", step="s")
    assert ids(run="r", step="s")[0] == ids(run="r", step="t")[0]
    assert ids(run="r", step="s")[1] != ids(run="r", step="t")[1]
    assert ids(step="s") == ids(step="s") != ids(step="t")
    assert ids(agent_id="other", run="r", step="s") != ids(run="r", step="s")
    assert not set(ids()) & set(ids())
    assert derived_id("a", "b") != derived_id("ab") and derived_execution_id("a")[14] == "4"


def test_every_turn_travels_and_what_a_limit_pushes_out_stands_in_an_extract() -> None:
    """Finding K6 of 0.3.0: of 803 turns 50 arrived, with an empty summary."""
    history = [f"Order {n} costs {n * 3} EUR, and must not be shipped." for n in range(803)]
    tools = {"cached_results": {"a": 1}, "active_calls": ["c"]}
    state = {**STATE, "history": history, "tool_state": tools}
    whole = build_handoff_message(state, "legal")
    assert [turn["content"] for turn in whole["conversationHistoryVerbatim"]] == history
    assert "metadata" not in whole and "historyStrategy" not in whole and whole["toolState"] == tools
    few = build_handoff_message(state, "legal", max_turns=50)
    assert [turn["content"] for turn in few["conversationHistoryVerbatim"]] == history[-50:]
    assert few["metadata"] == {"original_history_length": 803, "trimmed": True}
    assert few["historyStrategy"] == "summary" and few["toolState"] == {"active_calls": ["c"]}
    head, *lines = few["conversationHistorySummary"].split("\n")
    assert re.fullmatch(r"Extract of 753 earlier turns that do not fit: \d+ of 753 statements\.", head)
    assert len(lines) > 200 and all(line.startswith("user: Order ") for line in lines)
    small = build_handoff_message(state, "legal", max_bytes=40_000)
    assert len(json.dumps(small, ensure_ascii=False, separators=(",", ":")).encode()) <= 40_000
    assert len(small["conversationHistoryVerbatim"]) > 50 and len(small["conversationHistorySummary"]) > 500


def test_an_extract_keeps_what_weighs_before_what_is_said() -> None:
    from handoffd._condense import condense

    idle = [{"role": "user", "content": f"Well, nice weather, {'la ' * 20}indeed."} for _ in range(50)]
    weighty = [
        "Do not contact Jana.",
        "We went with Lisbon because of the price.",
        "不要联系他。",
        "Bitte nicht vor Freitag liefern.",
    ]
    turns = [*idle, *({"role": "assistant", "content": text} for text in weighty), *idle]
    extract = condense(turns, 300)
    assert all(f"assistant: {text}" in extract for text in weighty)
    assert [extract.index(text) for text in weighty] == sorted(extract.index(text) for text in weighty)
    assert len(extract.partition("\n")[2]) <= 300
    blocks = condense([{"role": "tool", "content": [{"type": "text", "text": "Total: 12 EUR"}, {"rows": ["a"]}]}])
    assert "tool: Total: 12 EUR" in blocks and "tool: a" in blocks


@pytest.mark.parametrize("task", ["", " \n"])
def test_a_handoff_without_a_task_is_refused(task: str) -> None:
    with pytest.raises(ValueError, match="without a task"):
        build_handoff_message({**STATE, "task": task}, "legal")


def test_the_digest_of_a_step_is_that_of_its_content_and_the_same_in_both_languages() -> None:
    state = {**STATE, "step": "s", "completed": ["Read it"], "state": {"clause": "4.2"}, "history": ["Hello"]}
    message = build_handoff_message(state, "legal", {"tone": "formal"})
    digest = message["extensions"]["handoffd"]["stepDigest"]
    assert digest == step_digest(message) == step_digest(build_handoff_message(state, "legal", {"tone": "formal"}))
    assert digest == VECTOR, "the same as in sdk/typescript/test/build.test.ts"
    for other in (
        {"state": {"clause": 4.3}},
        {"task": "Score it"},
        {"completed": ["x"]},
        {"remaining": ["x"]},
        {"history": ["Hi"]},
    ):
        assert step_digest(build_handoff_message({**state, **other}, "legal", {"tone": "formal"})) != digest
    assert step_digest(build_handoff_message(state, "legal", {"tone": "warm"})) != digest
    assert step_digest(build_handoff_message(state, "type:legal", {"tone": "formal"})) != digest
    assert "extensions" not in build_handoff_message(STATE, "legal"), "its id is used once"


def test_a_message_is_cut_to_the_receivers_window() -> None:
    history = ["word " * 200 for _ in range(40)]
    message = build_handoff_message({**STATE, "history": history}, "legal", window_tokens=4000)
    kept = len(message["conversationHistoryVerbatim"])
    assert 0 < kept < 40 and not measure_message(message).over(4000)
    more = {
        **message,
        "conversationHistoryVerbatim": [*message["conversationHistoryVerbatim"], *message["conversationHistoryVerbatim"][:2]],
    }
    assert measure_message(more).over(4000), "no more was cut than had to be"
    assert message["metadata"]["original_history_length"] == 40


def test_older_turns_are_condensed_until_the_message_fits_and_the_last_five_stay() -> None:
    history = [f"{at} " + "word " * 200 for at in range(40)]
    seen: list[int] = []

    def summarize(older: Sequence[Mapping[str, Any]]) -> str:
        seen.append(len(older))
        return f"{len(older)} turns were about words"

    state = {**STATE, "summary": "Before.", "history": history}
    message = build_handoff_message(state, "legal", window_tokens=2500, summarize=summarize)
    turns = message["conversationHistoryVerbatim"]
    assert not measure_message(message).over(2500) and len(turns) >= 5 and turns[-1]["content"] == history[-1]
    assert message["conversationHistorySummary"] == f"Before.\n{seen[-1]} turns were about words"
    assert seen[-1] + len(turns) == 40 and message["historyStrategy"] == "summary"
    # A summary that takes the room of turns pushes out more of them.
    wordy = build_handoff_message(state, "legal", window_tokens=4000, summarize=lambda older: "long " * 300)
    assert not measure_message(wordy).over(4000)
    with pytest.raises(WindowExceededError) as over:
        build_handoff_message(state, "legal", window_tokens=500)
    assert over.value.limit == 400 and over.value.tokens > 400


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError):
        build_handoff_message({**STATE, "tsk": "x"}, "legal")


def test_the_trace_of_opentelemetry_is_carried() -> None:
    from opentelemetry.sdk.trace import TracerProvider

    with TracerProvider().get_tracer("test").start_as_current_span("step") as span:
        message = build_handoff_message(STATE, "legal")
        assert message["traceparent"].split("-")[1] == f"{span.get_span_context().trace_id:032x}"
    assert build_handoff_message(STATE, "legal")["traceparent"] != message["traceparent"]


def test_estimates_are_the_brokers() -> None:
    # By the broker's table: sixty-fourths of a token by byte.
    assert estimate_tokens("") == 0
    assert estimate_tokens("hello world") == -(-(10 * 14 + 2) // 64)
    assert estimate_tokens("審査") == -(-(2 * 62) // 64)
    assert estimate_tokens('{"a_b":12}') == -(-(2 * 14 + 36 + 5 * 24 + 2 * 28) // 64)


@pytest.mark.parametrize("name", sorted(p.name for p in (REPOSITORY / "tests/vectors/jcs/input").glob("*.json")))
def test_the_canonical_form_is_that_of_the_published_vectors(name: str) -> None:
    folder = REPOSITORY / "tests" / "vectors" / "jcs"
    value = json.loads((folder / "input" / name).read_text())
    assert canonical.encode(value) == (folder / "output" / name).read_bytes().rstrip(b"\n")


@pytest.mark.parametrize(
    "value",
    [
        0.0,
        -0.0,
        1.0,
        1e21,
        1e20,
        123456789012345680000.0,
        1e-6,
        1e-7,
        5e-324,
        1.7976931348623157e308,
        0.1,
        -1.5e-9,
        333333333.33333329,
    ],
)
def test_numbers_are_written_as_another_library_writes_them(value: float) -> None:
    assert canonical.encode(value) == rfc8785.dumps(value)


def test_the_signature_is_that_of_the_documented_example() -> None:
    message = {
        "taskId": "7d9e0f1a-2b3c-4d5e-8f60-718293a4b5c6",
        "schemaVersion": "2.1",
        "costTracking": {"costSpentSoFarUSD": 0.10, "costBudgetRemainingUSD": 3.0e-1},
        "taskDescription": "Score §4.2",
    }
    signed = sign_message(message, "hss_only-for-this-page")
    page = (REPOSITORY / "docs" / "signing.md").read_text()
    assert signed["signature"] in page
    assert canonical.is_signed(signed, "hss_only-for-this-page")
    assert not canonical.is_signed({**signed, "taskId": "x"}, "hss_only-for-this-page")
