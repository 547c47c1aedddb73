"""One message to several receivers, at a real broker."""

from __future__ import annotations

import uuid

import pytest
from test_worker import working

from handoffd import Client, Worker
from handoffd.errors import ForbiddenError


def test_one_message_to_many_gathers_results_in_order(admin: Client) -> None:
    names = [f"r{n}-{uuid.uuid4().hex[:6]}" for n in range(3)]
    receivers = [admin.enroll(name) for name in names]
    sender = admin.enroll(f"s-{uuid.uuid4().hex[:6]}", handoff_targets=names)
    with (
        working(Worker(receivers[0], lambda _: "a", poll=2)),
        working(Worker(receivers[1], lambda _: "b", poll=2)),
        working(Worker(receivers[2], lambda _: "c", poll=2)),
    ):
        sent = sender.hand_off_to_many(names, "Check it", budget_usd=0.1)
        done = sender.handoffs.wait_ended(sent.handoff_id, timeout=30)
    assert (done.status, done.result) == ("COMPLETED", ["a", "b", "c"])
    turn = sender.handoffs.result_prompt(sent.handoff_id)
    assert [turn.index(f"by agent {name} ") for name in names] == sorted(turn.index(f"by agent {name} ") for name in names)
    with pytest.raises(ForbiddenError) as refused:
        sender.hand_off_to_many([names[0], "nobody-may"], "Check it")
    assert any(one.pointer.startswith("/receiverList/1") for one in refused.value.failures)
