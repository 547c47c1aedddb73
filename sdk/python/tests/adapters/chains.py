"""Runs with two handoffs one after the other: what the first brought back is in the second's snapshot and history."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pairs import Pair
from working import Working, asynchronous

from handoffd import AsyncClient, Client, Handoff, WaitTimeoutError, Worker

MARK = "[CONTEXT FROM PREVIOUS AGENT"
SAID = 'Legal says: {"risk": "first"} / {"risk": "second"}'


class Script:
    """What the model does, by the results that it has so far: two transfers, then it repeats what came back."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def next(self, results: list[str]) -> tuple[str, dict[str, str]] | str:
        """A call's id and its arguments, or the final text."""
        self.seen = results
        if len(results) == 2:
            return f"Legal says: {' / '.join(results)}"
        return f"c{len(results) + 1}", {"task": ("first", "second")[len(results)], "reason": "r"}

    def saw_guarded_turns(self) -> bool:
        return len(self.seen) == 2 and all(text.count(MARK) == 1 and f'|   "risk": "{task}"' in text
                                           for text, task in zip(self.seen, ("first", "second"), strict=True))  # fmt: skip


async def goes_on(pair: Pair, script: Script, go: Callable[[AsyncClient, str, float], Awaitable[Any]]) -> None:
    """Stops while the second handoff is open, and goes on from what was committed with it."""
    held = threading.Event()

    def receive(handoff: Handoff) -> dict[str, str]:
        assert handoff.task == "first" or held.wait(60)
        return {"risk": handoff.task}

    run = str(uuid.uuid4())
    with Working(Worker(pair.receiver, receive, poll=2)):
        async with asynchronous(pair.sender) as client:
            with pytest.raises(WaitTimeoutError):
                await go(client, run, 2)
            held.set()
            done = await go(client, run, 30)
            again = await go(client, run, 30)
    assert done.output == again.output == SAID
    assert script.saw_guarded_turns()


async def hands_on(pair: Pair, third: Client, script: Script, worker: Worker) -> None:
    """A worker's agent hands its task on twice; the conversation goes along, and no mark of the broker does."""
    messages: list[dict[str, Any]] = []

    def receive(handoff: Handoff) -> dict[str, str]:
        messages.append(handoff.message)
        return {"risk": handoff.task}

    with Working(worker), Working(Worker(third, receive, poll=2)):
        async with asynchronous(pair.sender) as client:
            said = [{"role": "user", "content": "May we sign?"}]
            sent = await client.hand_off(pair.to, "Check clause 4.2", history=said, budget_usd=5)
            ended = await client.handoffs.wait_ended(sent.handoff_id, timeout=60)
    assert (ended.status, ended.result) == ("COMPLETED", SAID)
    assert script.saw_guarded_turns()
    assert [one["parentHandoffId"] for one in messages] == [sent.handoff_id] * 2
    for message in messages:
        turns = message["conversationHistoryVerbatim"]
        assert turns[0] == said[0] and MARK not in str(message)
        assert "Check clause 4.2" in str(turns[1]["content"])
    assert '{"risk": "first"}' in str(messages[1]["conversationHistoryVerbatim"]).replace('\\\\"', '"')
