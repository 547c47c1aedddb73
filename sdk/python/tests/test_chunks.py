"""Messages that come in pieces, at a real broker."""

from __future__ import annotations

import pytest
from pairs import Pair
from test_worker import ended, working

from handoffd import Handoff, Worker
from handoffd.errors import ConflictError


def test_a_stream_is_closed_at_its_end_and_aborted_by_an_error(pair: Pair) -> None:
    def handler(handoff: Handoff) -> list[object]:
        handoff.accept()
        return [[chunk.seq, bool(chunk.close)] for chunk in handoff.chunks()]

    with working(Worker(pair.receiver, handler, poll=2)):
        with pair.sender.open_stream(pair.to, "Read it") as stream:
            stream.turn("user", "Page one.")
            stream.send(
                append={"/conversationHistoryVerbatim": [{"role": "user", "content": "Page two."}]},
                set={"/currentState/pages": 2},
            )
        assert stream.ended and ended(pair, stream.sent.handoff_id).result == [[1, False], [2, False], [3, True]]
    with pytest.raises(KeyError), pair.sender.open_stream(pair.to, "Read it") as broken:
        broken.turn("user", "Page one.")
        raise KeyError("no page two")
    assert ended(pair, broken.sent.handoff_id).status in ("FAILED", "CANCELED", "REJECTED", "EXPIRED")


def test_chunks_reach_the_handler_in_order_and_the_close_makes_a_message(pair: Pair) -> None:
    def handler(handoff: Handoff) -> list[object]:
        handoff.accept()
        return [[chunk.seq, bool(chunk.close)] for chunk in handoff.chunks()]

    sender = pair.sender
    with working(Worker(pair.receiver, handler, poll=2)):
        sent = sender.hand_off(pair.to, "Read it", fields={"stream": {"open": True}})
        turn = {"role": "user", "content": "Page one."}
        said = [{"seq": n, "append": {"/conversationHistoryVerbatim": [turn]}} for n in (1, 2)]
        taken = sender.handoffs.append_chunks(sent.handoff_id, said)
        assert (taken.taken, taken.expected_seq) == (2, 3)
        again = sender.handoffs.append_chunks(sent.handoff_id, said)
        assert (again.taken, again.replayed) == (0, 2)
        with pytest.raises(ConflictError):
            sender.handoffs.append_chunks(sent.handoff_id, [{"seq": 9, "set": {"/currentState/pages": 1}}])
        sender.handoffs.append_chunk(sent.handoff_id, seq=3, set={"/currentState/pages": 2}, close=True)
        done = ended(pair, sent.handoff_id)
    assert done.result == [[1, False], [2, False], [3, True]]
    assert [one.seq for one in sender.handoffs.read_chunks(sent.handoff_id, after=1)] == [2, 3]
