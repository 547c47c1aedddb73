"""Where a conversation is cut (finding D2 of 0.3.0)."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from handoffd import AgentState, build_handoff_message
from handoffd._exchanges import Exchanges

REPOSITORY = Path(__file__).parents[3]
CASES: list[dict[str, Any]] = json.loads((REPOSITORY / "tests/vectors/turn_cuts.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_conversation_is_cut_where_the_broker_cuts_it(case: dict[str, Any]) -> None:
    exchanges = Exchanges(case["turns"])
    assert [exchanges.cut(place) for place in range(len(case["turns"]) + 1)] == case["cuts"]


def _conversation(form: str, dice: random.Random) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    """A loop of an agent in one of three wire forms, and the places of each call and its result."""
    turns: list[dict[str, Any]] = []
    pairs: list[tuple[int, int]] = []
    for step in range(dice.randint(1, 10)):
        turns.append({"role": "user", "content": f"do {step}"})
        ids = [f"c{dice.choice([0, step])}-{call}" for call in range(dice.randint(0, 3))]
        if not ids or len(set(ids)) < len(ids):
            turns.append({"role": "assistant", "content": "done"})
            continue
        calls: dict[str, int] = {}
        if form == "items":
            for one in ids:
                calls[one] = len(turns)
                turns.append({"role": "assistant", "content": {"type": "function_call", "call_id": one, "name": "f"}})
        else:
            calls = dict.fromkeys(ids, len(turns))
            blocks = [{"type": "tool_use", "id": one, "name": "f", "input": {}} for one in ids]
            chat = {"content": "", "tool_calls": [{"id": one, "type": "function"} for one in ids]}
            turns.append({"role": "assistant", **(chat if form == "chat" else {"content": blocks})})
        dice.shuffle(ids)
        if form == "blocks":
            pairs += [(calls[one], len(turns)) for one in ids]
            turns.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": one} for one in ids]})
        else:
            for one in ids:
                pairs.append((calls[one], len(turns)))
                turns.append({"role": "tool", "tool_call_id": one, "content": "x"})
    return turns, pairs


@pytest.mark.parametrize("form", ["chat", "blocks", "items"])
def test_no_message_has_a_result_without_its_call(form: str) -> None:
    for seed in range(200):
        dice = random.Random(seed)
        turns, pairs = _conversation(form, dice)
        most = dice.randint(1, len(turns))
        message = build_handoff_message(AgentState(agent_id="a", task="t", history=turns), "b", max_turns=most)
        first = len(turns) - len(message["conversationHistoryVerbatim"])
        assert all((call < first) == (result < first) for call, result in pairs), (seed, most)
        assert message["conversationHistoryVerbatim"] == turns[first:]
        later = range(len(turns) - most, len(turns))
        if any(all((call < place) == (result < place) for call, result in pairs) for place in later):
            assert first >= len(turns) - most, "no more turns than were asked for"
