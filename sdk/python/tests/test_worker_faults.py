"""Workers whose handlers err, whose tasks are cancelled, or whose broker a proxy hides."""

from __future__ import annotations

import asyncio
import datetime
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from broker import Broker
from liars import lying
from pairs import Pair
from proxy import proxying
from test_worker import ended, working

from handoffd import AnswerError, AsyncClient, Client, Fail, Handoff, Reject, RetryPolicy, TransportError, Worker
from handoffd.adapters._core import BrokerRun, Spent
from handoffd.errors import ConflictError, LeaseLostError, ProblemError, StaleLeaseError, problem_error
from handoffd.worker import AsyncHandoff


def until(condition: Callable[[], object], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(condition())


def left_behind(pair: Pair, interval_ms: int = 50) -> str:
    """A handoff that a worker accepted before it died."""
    sent = pair.sender.hand_off(pair.to, "Check it")
    (item,) = pair.receiver.handoffs.inbox(pair.to, wait=5, max=1).items
    pair.receiver.handoffs.accept(item.handoff_id, fencing_token=item.fencing_token, heartbeat_interval_ms=interval_ms)
    return sent.handoff_id


def test_a_cancelled_task_holds_up_no_adoption(pair: Pair) -> None:
    older, newer = left_behind(pair), left_behind(pair)
    pair.sender.tasks.cancel(pair.sender.handoffs.get(newer).task_id, reason="not needed", grace_ms=60_000)
    with working(Worker(pair.receiver, lambda _: "adopted", heartbeat=0.2)):
        assert ended(pair, older, 15).result == "adopted"


def test_a_worker_that_another_one_replaced_can_do_nothing_to_the_handoff(pair: Pair, admin: Client) -> None:
    """Finding K1 of 0.3.0: two workers held one token."""
    handoff_id = left_behind(pair)
    assert pair.sender.agent_id
    admin.allowlist.add_target(pair.to, pair.sender.agent_id)
    before = pair.receiver.handoffs.get(handoff_id)

    def handler(handoff: Handoff) -> str:
        handoff.save({"by": "the new one"})
        return handoff.execution_id

    with working(Worker(pair.receiver, handler, heartbeat=0.2)):
        run = ended(pair, handoff_id, 60).result
    token = before.fencing_token
    assert pair.sender.handoffs.get(handoff_id).fencing_token > token
    verdicts = pair.receiver.handoffs
    for late in (verdicts.heartbeat, verdicts.complete, verdicts.fail):
        with pytest.raises(StaleLeaseError):
            late(handoff_id, fencing_token=token)
    with pytest.raises(StaleLeaseError):
        pair.receiver.tasks.put_checkpoint(before.task_id, run, {"by": "the old one"}, handoff_id=handoff_id, fencing_token=token)
    with pytest.raises(StaleLeaseError):
        pair.receiver.hand_off(
            pair.sender.agent_id,
            "Go on",
            task_id=before.task_id,
            parent_handoff_id=handoff_id,
            completed=["x"],
            fencing_token=token,
        )
    assert pair.receiver.restore(before.task_id, run) == {"by": "the new one"}


def test_a_neighbour_with_a_shorter_interval_leaves_a_healthy_holder_alone(pair: Pair) -> None:
    begun, looks, runs = threading.Event(), threading.Semaphore(0), []

    def handler(handoff: Handoff) -> str:
        runs.append(handoff.handoff_id)
        begun.set()
        for _ in range(30):
            assert looks.acquire(timeout=60)
        return "done"

    neighbour = Worker(pair.receiver, handler, heartbeat=0.02)
    look = neighbour._is_left_behind

    def counted(handoff: Any) -> bool:
        looks.release()
        return look(handoff)

    neighbour._is_left_behind = counted  # type: ignore[method-assign]
    with working(Worker(pair.receiver, handler, heartbeat=5)):
        sent = pair.sender.hand_off(pair.to, "Check it")
        assert begun.wait(60)
        with working(neighbour):
            assert ended(pair, sent.handoff_id, 60).result == "done"
    assert len(runs) == 1


def raising(error: BaseException) -> Callable[[Handoff], None]:
    def handler(_: Handoff) -> None:
        raise error

    return handler


def spending(usd: float, tokens: int = 0) -> Callable[[Handoff], None]:
    return lambda handoff: handoff.spend(usd, prompt_tokens=tokens)


@pytest.mark.parametrize(
    ("handler", "code"),
    [
        (raising(ValueError("bad \ud800 char")), "HANDLER_ERROR"),
        (raising(Fail("BIG", "x" * 11_000_000)), "BIG"),
        (raising(Fail("A", "\udc80")), "A"),
        (raising(Reject("B", "\udc80" * 600)), "B"),
        (spending(-0.5), "HANDLER_ERROR"),
        (spending(float("nan")), "HANDLER_ERROR"),
        (spending(0.1, -3), "HANDLER_ERROR"),
        # More than the broker takes: it refuses the completion, and the failure with the same cost.
        (spending(1e12), "HANDLER_ERROR"),
    ],
)
def test_a_verdict_that_cannot_be_told_in_full_ends_the_handoff(
    pair: Pair, handler: Callable[[Handoff], None], code: str
) -> None:
    with working(Worker(pair.receiver, handler, heartbeat=0.2)):
        done = ended(pair, pair.sender.hand_off(pair.to, "Check it").handoff_id, 15)
    assert (done.status, (done.reason or "").split(":")[0], done.attempts) == ("FAILED", code, 1)


@pytest.mark.parametrize("details", [{"t": datetime.datetime.now()}, "x" * 11_000_000, {"rate": float("nan")}])
def test_a_rejection_whose_details_cannot_be_told_is_told_by_its_code(pair: Pair, details: object) -> None:
    with working(Worker(pair.receiver, lambda _: 1, decide=raising(Reject("R", details)))):
        done = ended(pair, pair.sender.hand_off(pair.to, "Check it").handoff_id, 15)
    assert (done.status, done.reason) == ("REJECTED", "R")


@pytest.mark.parametrize("figures", [{"usd": -0.5}, {"usd": float("inf")}, {"prompt_tokens": -3}, {"completion_tokens": -1}])
def test_spend_refuses_bad_figures(pair: Pair, figures: dict[str, float]) -> None:
    seen: list[object] = []

    def handler(handoff: Handoff) -> str:
        handoff.spend(0.25)
        with pytest.raises(ValueError, match=next(iter(figures))) as refused:
            handoff.spend(**figures)  # type: ignore[arg-type]
        seen.append(refused)
        return "done"

    with working(Worker(pair.receiver, handler)):
        sent = pair.sender.hand_off(pair.to, "Check it", budget_usd=1)
        assert ended(pair, sent.handoff_id).result == "done" and seen
    cost = pair.sender.tasks.cost(sent.task_id)
    assert cost.sums and cost.sums.spent_usd == 0.25


async def cancelled_within(_: AsyncHandoff) -> None:
    inner = asyncio.create_task(asyncio.sleep(5))
    inner.cancel()
    await inner


@pytest.mark.parametrize("accept_within", [0.0, 5.0])
@pytest.mark.parametrize(
    "handler",
    [
        raising(TransportError("another service", sent=False)),
        raising(AnswerError("another service")),
        raising(problem_error(503, {"code": "UNAVAILABLE"})),
        raising(StaleLeaseError(409, {"code": "STALE_LEASE"})),
        cancelled_within,
    ],
)
def test_what_a_handler_raises_is_its_own(pair: Pair, handler: Callable[[Handoff], None], accept_within: float) -> None:
    worker = Worker(pair.receiver, handler, heartbeat=0.2, accept_within=accept_within)
    with working(worker):
        done = ended(pair, pair.sender.hand_off(pair.to, "Check it").handoff_id, 10)
    assert (done.status, (done.reason or "").split(":")[0], done.attempts) == ("FAILED", "HANDLER_ERROR", 1)


def behind(url: str, pair: Pair) -> Client:
    return Client(url, pair.receiver.api_key, agent_id=pair.to, retries=RetryPolicy(attempts=1))


@pytest.mark.parametrize(("path", "status"), [("/complete", 404), ("/complete", 403), ("/complete", 400), ("/inbox", 404)])
def test_a_proxys_page_neither_ends_a_worker_nor_throws_a_result_away(pair: Pair, path: str, status: int) -> None:
    with proxying(pair.receiver.url, path, status) as (url, own):
        with behind(url, pair) as client, working(Worker(client, lambda _: "precious")):
            done = ended(pair, pair.sender.hand_off(pair.to, "Check it").handoff_id, 20)
        assert (done.status, done.result, len(own)) == ("COMPLETED", "precious", 1)


def test_a_proxys_limit_on_a_body_fails_the_handoff(pair: Pair) -> None:
    with proxying(pair.receiver.url, "/complete", 413, times=99) as (url, _), behind(url, pair) as client:
        with working(Worker(client, lambda _: "large")):
            done = ended(pair, pair.sender.hand_off(pair.to, "Check it").handoff_id, 20)
    assert (done.status, (done.reason or "").split(":")[0]) == ("FAILED", "HANDLER_ERROR")


def test_another_caller_still_gets_the_error_of_a_proxys_page(pair: Pair) -> None:
    with proxying(pair.receiver.url, "/inbox", 404) as (url, _), behind(url, pair) as client:
        with pytest.raises(ProblemError) as page:
            client.handoffs.inbox(pair.to)
    assert page.value.code == "HTTP_404"


def test_a_handoff_is_left_where_its_own_call_meets_no_broker(pair: Pair) -> None:
    runs: list[bool] = []

    def handler(handoff: Handoff) -> str:
        runs.append(handoff.resumed)
        handoff.save({"step": 1})
        return "done"

    with proxying(pair.receiver.url, "PUT .*/checkpoints/", 502) as (url, own), behind(url, pair) as client:
        with working(Worker(client, handler, heartbeat=0.2)):
            done = ended(pair, pair.sender.hand_off(pair.to, "Check it").handoff_id, 20)
    assert (done.status, done.result, runs, len(own)) == ("COMPLETED", "done", [False, True], 1)


def test_a_defect_of_the_broker_that_a_handler_meets_fails_the_handoff(pair: Pair) -> None:
    def handler(handoff: Handoff) -> None:
        handoff.save({"step": 1})

    problem = b'{"code": "INTERNAL", "status": 500}'
    with proxying(pair.receiver.url, "PUT .*/checkpoints/", 500, 99, problem) as (url, _), behind(url, pair) as client:
        with working(Worker(client, handler)):
            done = ended(pair, pair.sender.hand_off(pair.to, "Check it").handoff_id, 20)
    assert (done.status, (done.reason or "").split(":")[0]) == ("FAILED", "HANDLER_ERROR")


@pytest.mark.parametrize("plain", [True, False])
def test_a_handler_finishes_within_the_grace_of_a_cancellation(pair: Pair, plain: bool) -> None:
    begun = threading.Event()

    def on_thread(_: Handoff) -> str:
        begun.set()
        time.sleep(1.5)
        return "in the grace"

    async def coroutine(_: AsyncHandoff) -> str:
        begun.set()
        await asyncio.sleep(1.5)
        return "in the grace"

    with working(Worker(pair.receiver, on_thread if plain else coroutine, heartbeat=0.2)):
        sent = pair.sender.hand_off(pair.to, "Check it")
        assert begun.wait(10)
        pair.sender.tasks.cancel(sent.task_id, reason="not needed", grace_ms=20_000)
        done = ended(pair, sent.handoff_id, 10)
    assert (done.status, done.result) == ("COMPLETED", "in the grace")


def test_the_end_of_the_grace_ends_the_handler(pair: Pair) -> None:
    begun, lost = threading.Event(), threading.Event()

    def handler(handoff: Handoff) -> None:
        begun.set()
        for _ in range(400):
            time.sleep(0.05)
            try:
                handoff.check()
            except LeaseLostError:
                lost.set()
                raise

    with working(Worker(pair.receiver, handler, heartbeat=0.2)):
        sent = pair.sender.hand_off(pair.to, "Check it")
        assert begun.wait(10)
        pair.sender.tasks.cancel(sent.task_id, reason="not needed", grace_ms=700)
        assert not lost.wait(0.5), "the grace runs"
        assert lost.wait(15)
    assert ended(pair, sent.handoff_id).status == "CANCELED"


def test_an_open_question_is_told_once_at_a_time(tmp_path: Path) -> None:
    asked: list[int] = []

    def answer(item: object) -> str:
        asked.append(item.number)
        time.sleep(3.5)
        return f"answer {len(asked)}"

    broker = Broker(tmp_path, HANDOFFD_DELIVERY__CLAIM_TTL_MS="1000").start()
    with Client.local(broker.url, data_dir=broker.data_dir) as admin:
        with admin.enroll("b") as b, admin.enroll("a", handoff_targets=["b"]) as a:
            with working(Worker(a, lambda _: 1, on_question=answer)), working(Worker(b, lambda one: one.ask("Which?"))):
                assert a.hand_off_and_wait("b", "Check it", timeout=30).result == "answer 1"
    broker.stop()
    assert asked == [1]


def test_a_worker_answers_who_asks_while_its_only_handler_waits_for_that_agent(admin: Client) -> None:
    def delegate(handoff: Handoff) -> object:
        return boss.hand_off_and_wait("full-downstream", "Which clause?", timeout=60).result

    with (
        admin.enroll("full-downstream") as downstream,
        admin.enroll("full-boss", handoff_targets=["full-downstream"]) as boss,
        admin.enroll("full-sender", handoff_targets=["full-boss"]) as sender,
        working(Worker(boss, delegate, on_question=lambda item: f"{item.question} 4.2")),
        working(Worker(downstream, lambda one: one.ask("Which?"))),
    ):
        assert sender.hand_off_and_wait("full-boss", "Check it", timeout=60).result == "Which? 4.2"


def test_plain_handlers_are_at_work_at_once_beyond_the_processors(pair: Pair) -> None:
    count = (os.cpu_count() or 1) + 8
    meet = threading.Barrier(count, timeout=20)
    with working(Worker(pair.receiver, lambda _: meet.wait() >= 0, concurrency=count)):
        sent = [pair.sender.hand_off(pair.to, f"Check {n}") for n in range(count)]
        assert [ended(pair, one.handoff_id).result for one in sent] == [True] * count


def test_a_stop_does_not_wait_for_a_handler_after_the_grace(pair: Pair) -> None:
    begun, release = threading.Event(), threading.Event()

    def handler(_: Handoff) -> None:
        begun.set()
        release.wait(30)

    worker = Worker(pair.receiver, handler, grace=0.2, poll=1)
    thread = worker.start()
    pair.sender.hand_off(pair.to, "Check it")
    assert begun.wait(10)
    worker.stop()
    thread.join(10)
    assert not thread.is_alive()
    release.set()


def test_a_thread_gives_what_its_function_raises(pair: Pair) -> None:
    with working(Worker(pair.receiver, raising(StopIteration("odd")))):
        done = ended(pair, pair.sender.hand_off(pair.to, "Check it").handoff_id, 10)
    assert (done.status, (done.reason or "").split(":")[0]) == ("FAILED", "HANDLER_ERROR")


@pytest.mark.parametrize(("poll", "wait"), [(0.5, 1), (1.4, 1), (0, 1), (2, 2)])
def test_a_poll_waits_for_a_second_at_least(poll: float, wait: int) -> None:
    with lying([]) as (url, seen), Client(url, "k", agent_id="b") as client:
        worker = Worker(client, lambda _: 1, poll=poll, adopt=False)
        thread = worker.start()
        assert until(lambda: seen)
        worker.stop()
        thread.join(20)
    assert f"wait={wait}&".encode() in seen[0].splitlines()[0]


def test_an_idempotency_key_holds_for_one_message(pair: Pair) -> None:
    pair.sender.hand_off(pair.to, "Check it", idempotency_key="k-1")
    with pytest.raises(ConflictError) as used:
        pair.sender.hand_off(pair.to, "Check it", idempotency_key="k-1")
    assert used.value.status == 422
    assert "within this call" in (Client.hand_off.__doc__ or "")


async def test_a_run_relays_no_figure_below_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.1 and 0.2 less 0.3 is a little above zero, and the other way round a little below."""

    async def known(_: BrokerRun) -> dict[str, float]:
        return {"spent": 0.3, "prompt": 1, "completion": 1}

    told: dict[str, float] = {}
    handoff = SimpleNamespace(
        spent_usd=0.1 + 0.2, prompt_tokens=2, completion_tokens=1, spend=lambda usd, **more: told.update(more, usd=usd)
    )
    monkeypatch.setattr(BrokerRun, "_known_cost", known)
    async with AsyncClient("http://127.0.0.1:1", "k", agent_id="a") as client:
        run = BrokerRun(client, "run", framework="none")
        run.calls = {"c1": "h1"}
        await run.relay(handoff, Spent())  # type: ignore[arg-type]
    assert told == {"usd": 0.0, "prompt_tokens": 0, "completion_tokens": 0}
