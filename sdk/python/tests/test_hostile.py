"""What a network, a proxy or a broker may do wrong: broken connections, answers of another kind, restarts."""

from __future__ import annotations

import email.utils
import gzip
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from broker import Broker
from liars import Saying, answer, lying, reset

from handoffd import AnswerError, AsyncClient, Client, Handoff, ProblemError, RetryPolicy, TransportError, Worker
from handoffd.errors import OverloadedError

FAST = RetryPolicy(base=0.01)
BROKEN: dict[str, Saying] = {
    "closed at once": b"",
    "reset": reset,
    "no http": b"220 mail.example.org ESMTP\r\n",
    "within the head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "within the body": answer(200, b'{"items"', content_length="14"),
    "within a chunk": b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\n{"items"',
}


@pytest.mark.parametrize("kind", BROKEN)
def test_an_answer_that_breaks_off_is_asked_for_again_where_that_is_safe(kind: str) -> None:
    with lying([BROKEN[kind], BROKEN[kind]]) as (url, seen), Client(url, "k", retries=FAST) as client:
        assert client.agents.list().items == [] and len(seen) == 3
    with lying([BROKEN[kind]]) as (url, seen), Client(url, "k", retries=FAST) as client:
        with pytest.raises(TransportError) as lost:
            client.keys.create(role="auditor")
        assert lost.value.sent and len(seen) == 1


async def test_the_async_client_takes_broken_answers_alike() -> None:
    with lying(list(BROKEN.values())) as (url, seen):
        async with AsyncClient(url, "k", retries=FAST) as client:
            assert (await client.agents.list()).items == [] and len(seen) == len(BROKEN) + 1


@pytest.mark.parametrize(
    "said",
    [
        answer(200, b"<html>Please log in</html>", content_type="text/html"),
        answer(200, b"[]"),
        answer(200, b"null"),
        answer(200, b'{"items": 7}'),
        answer(200, b'{"items": [{"agentId": {}}]}'),
        answer(200, b'{"items": ["\xff"]}'),
        answer(200, b""),
        answer(204),
        answer(200, b"no gzip", content_encoding="gzip"),
        answer(200, gzip.compress(b'{"items": []}')[:15], content_encoding="gzip"),
        answer(302, location="http://127.0.0.1:1/"),
        answer(304),
    ],
)
def test_an_answer_of_another_kind_is_an_error_of_the_package(said: bytes) -> None:
    with lying([said]) as (url, seen), Client(url, "secret-key", retries=FAST) as client:
        with pytest.raises(AnswerError) as told:
            client.agents.list()
        assert len(seen) == 1 and "secret-key" not in str(told.value) and "log in" not in str(told.value)


def test_a_redirection_is_not_followed_and_deletes_nothing() -> None:
    with lying([]) as (other, strangers), lying([answer(307, location=f"{other}/agents/a")]) as (url, seen):
        with Client(url, "k", retries=FAST) as client, pytest.raises(AnswerError):
            client.agents.delete("a")
        assert len(seen) == 1 and not strangers


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>", b"[]", b"7", b'{"code": 7}', b'{"code": "SCHEMA_INVALID", "failures": 7, "requestId": 7}',
        b'{"code": "SCHEMA_INVALID", "failures": [7, {"pointer": 7}]}', b'{"detail": {}, "failures": {"a": 1}}', b"\xff",
    ],
)  # fmt: skip
def test_a_problem_of_another_form_is_still_a_problem(body: bytes) -> None:
    with lying([answer(422, body, content_type="application/problem+json")]) as (url, _), Client(url, "k") as client:
        with pytest.raises(ProblemError) as told:
            client.agents.list()
        assert told.value.status == 422 and told.value.code and str(told.value)


@pytest.mark.parametrize("after", ["\xb2", "-1", "1e3", "soon", "9" * 400, "Fri, 31 Dec 99999999999999999999 00:00:00 GMT", ""])
def test_a_retry_after_of_another_form_is_none_of_the_brokers(after: str) -> None:
    with lying([answer(503, b"{}", retry_after=after)]) as (url, seen), Client(url, "k", retries=FAST) as client:
        try:
            assert client.agents.list().items == [] and len(seen) == 2
        except ProblemError as told:
            assert told.retry_after == float("inf") and len(seen) == 1


def test_a_retry_after_by_date_is_waited_for() -> None:
    busy = b'{"code": "OVERLOADED"}'
    soon = email.utils.formatdate(time.time() + 2, usegmt=True)
    with lying([answer(429, busy, retry_after=soon)]) as (url, seen), Client(url, "k", retries=FAST) as client:
        begun = time.time()
        # Nothing was done, so that a request without an id of its own is sent again, too.
        with pytest.raises(AnswerError):
            client.keys.create(role="auditor")
        assert len(seen) == 2 and time.time() - begun > 0.9
    late = email.utils.formatdate(time.time() + 3600, usegmt=True)
    with lying([answer(429, busy, retry_after=late)]) as (url, seen), Client(url, "k") as client:
        with pytest.raises(OverloadedError):
            client.agents.list()
        assert len(seen) == 1


def test_a_broker_that_never_answers_is_given_up() -> None:
    held = threading.Event()
    with lying([lambda _: held.wait(20) and None] * 2) as (url, seen):
        with Client(url, "k", timeout=0.3, retries=RetryPolicy(attempts=2, base=0.01)) as client:
            threading.Timer(0.6, held.set).start()
            with pytest.raises(TransportError) as away:
                client.agents.list()
        assert away.value.sent and len(seen) >= 1


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://127.0.0.1", "http://", "", "/handoffs", "http://[::1"])
def test_a_url_that_is_none_is_the_callers_error_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDOFFD_URL", url or "nothing")
    with pytest.raises(ValueError, match="http://"):
        Client(url or None)


def test_a_key_may_have_a_line_end_and_nothing_else_that_no_key_has() -> None:
    with lying([]) as (url, seen), Client(url, " hok_abc\n") as client:
        client.agents.list()
        assert b"\r\nauthorization: bearer hok_abc\r\n" in seen[0].lower()
    for key in ("hok_a\nx: y", "hok_\xe9", "hok_a b", "hok_\x00"):
        with pytest.raises(ValueError, match="characters") as told:
            Client("http://127.0.0.1:1", key)
        assert "hok_" not in str(told.value)


def test_a_wait_goes_on_over_a_restart_of_the_broker(tmp_path: Path) -> None:
    broker = Broker(tmp_path).start()
    with Client.local(broker.url, data_dir=broker.data_dir) as admin, ThreadPoolExecutor(2) as waiting:
        with admin.enroll("b") as receiver, admin.enroll("a", handoff_targets=["b"]) as sender:
            sent = sender.hand_off("b", "Check it")
            ended = waiting.submit(sender.handoffs.wait_ended, sent.handoff_id, timeout=60)
            new = waiting.submit(sender.hand_off_and_wait, "b", "And this", timeout=60)
            while len(admin.handoffs.list().items) < 2:
                time.sleep(0.05)
            time.sleep(0.3)
            broker.kill()
            time.sleep(1)
            assert not ended.done() and not new.done()
            broker.start()
            worker = Worker(receiver, lambda handoff: handoff.task, poll=1)
            thread = worker.start()
            assert (ended.result(60).result, new.result(60).result) == ("Check it", "And this")
            worker.stop()
            thread.join(30)
    broker.stop()


def test_a_verdict_waits_for_a_broker_that_is_away(tmp_path: Path) -> None:
    """The client gives up at once here, so that only the worker's own patience brings the result."""
    broker = Broker(tmp_path).start()
    impatient = RetryPolicy(attempts=1)
    with Client.local(broker.url, data_dir=broker.data_dir) as admin:
        with admin.enroll("b") as enrolled, admin.enroll("a", handoff_targets=["b"]) as sender:
            coming: list[threading.Timer] = []

            def work(handoff: Handoff) -> str:
                broker.kill()
                coming.append(threading.Timer(3, broker.start))
                coming[0].start()
                return handoff.task

            receiver = Client(broker.url, enrolled.api_key, agent_id="b", retries=impatient)
            sent = sender.hand_off("b", "Once")
            worker = Worker(receiver, work, poll=1)
            thread = worker.start()
            done = sender.handoffs.wait_ended(sent.handoff_id, timeout=60)
            assert (done.status, done.result, done.attempts) == ("COMPLETED", "Once", 1)
            worker.stop()
            thread.join(30)
            coming[0].join()
            receiver.close()
    broker.stop()


def test_a_worker_outlives_a_proxy_in_the_brokers_place() -> None:
    """Logins, gateways and defects in place of an inbox end no worker; then the broker answers."""
    wrong = [
        answer(200, b"<html>", content_type="text/html"), answer(500, b"{}"), answer(502, b"bad gateway"), answer(302),
    ]  # fmt: skip
    item = {"items": [], "returns": [], "questions": []}
    with lying([*wrong, answer(200, json.dumps(item).encode())]) as (url, seen):
        client = Client(url, "k", agent_id="b", retries=RetryPolicy(attempts=1))
        worker = Worker(client, lambda _: 1, poll=0, adopt=False)
        thread = worker.start()
        until = time.monotonic() + 30
        while len(seen) <= len(wrong) and time.monotonic() < until:
            time.sleep(0.05)
        assert len(seen) > len(wrong) and thread.is_alive()
        worker.stop()
        thread.join(30)
        client.close()
