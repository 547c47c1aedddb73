"""Kills a framework's process before, during and after its handoff."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from pairs import Pair

from handoffd import Handoff, Worker

HERE = Path(__file__).parent
ROUNDS = int(os.environ.get("HANDOFFD_CRASHES", "3"))
"""Runs of the crash case; 20 for the documentation's figures."""


@dataclass
class Receiver:
    """The agent at the other side: it waits for `release`, and counts what it carries out."""

    held: bool = False
    carried_out: list[str] = field(default_factory=list)
    messages: list[dict[str, object]] = field(default_factory=list)
    begun: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)

    def __call__(self, handoff: Handoff) -> dict[str, str]:
        self.messages.append(handoff.message)
        self.begun.set()
        if self.held:
            assert self.release.wait(240)
        self.carried_out.append(handoff.task_id)
        return {"risk": "low"}


class Sender:
    """The framework's process."""

    def __init__(self, script: str, pair: Pair, run: str) -> None:
        given = [pair.sender.url, pair.sender.api_key, pair.sender.agent_id, pair.to, run]
        command = [str(part) for part in [sys.executable, HERE / script, *given]]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.said = self.process.stdout
        assert self.said.readline() == "ready\n"

    def kill(self) -> bool:
        """Kills it; whether it was still at work."""
        self.process.kill()
        return self.process.wait(10) == -9

    def output(self) -> object:
        said = self.said.read()
        assert self.process.wait(120) == 0
        return json.loads(said.splitlines()[-1])


SAID = 'Legal says: {"risk": "low"}'
"""The output of a run whose model repeats what it was given: data, without marks."""


def guarded(text: object) -> bool:
    """Whether it is the receiver's result between the broker's marks."""
    return isinstance(text, str) and "[CONTEXT FROM PREVIOUS AGENT" in text and '|   "risk": "low"' in text


def crash_case(script: str, pair: Pair, round_: int) -> tuple[int, str]:
    """One run with crashes: at a random moment before the handoff (every other round), while the receiver works, and at a random
    moment after the receiver is done. Carried out once, nothing lost. How often it was killed, and the task."""
    dice = random.Random(round_)
    receiver = Receiver(held=True)
    worker = Worker(pair.receiver, receiver, poll=2)
    thread = worker.start()
    run, killed = f"run-{uuid.uuid4()}", 0
    try:
        if round_ % 2:
            early = Sender(script, pair, run)
            time.sleep(dice.uniform(0, 0.2))
            killed += early.kill()
        waiting = Sender(script, pair, run)
        assert receiver.begun.wait(180)
        time.sleep(dice.uniform(0, 0.3))
        killed += waiting.kill()
        receiver.release.set()
        late = Sender(script, pair, run)
        time.sleep(dice.uniform(0, 0.6))
        killed += late.kill()
        last = Sender(script, pair, run)
        output = last.output()
    finally:
        receiver.release.set()
        worker.stop()
        thread.join(40)
    assert output == SAID
    assert len(receiver.carried_out) == 1, "the handoff was carried out once"
    task = pair.sender.tasks.get(receiver.carried_out[0])
    assert task.status == "COMPLETED"
    handoffs = list(pair.sender.handoffs.iterate(task_id=task.task_id))
    assert [one.status for one in handoffs] == ["COMPLETED"]
    assert pair.sender.tasks.trace(task.task_id).verification.ok
    assert killed >= 1
    return killed, task.task_id
