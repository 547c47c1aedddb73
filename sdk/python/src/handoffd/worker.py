"""`Worker`: takes an agent's handoffs from its inbox, and answers for each."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import datetime
import inspect
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
import uuid
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast

import httpx2

from ._async.client import AsyncClient
from ._async.transport import AsyncTransport
from ._guarded import Turn, replaced
from ._sent import Sent
from ._sync.client import Client
from ._task import task_of
from .building import AgentState, StateFields, derived_execution_id
from .errors import (
    AnswerError,
    ConflictError,
    Fail,
    ForbiddenError,
    HandoffdError,
    InternalError,
    LeaseLostError,
    MaxIterationsError,
    NotFoundError,
    ProblemError,
    Reject,
    SafetyViolationError,
    StaleLeaseError,
    TransportError,
    UnauthenticatedError,
)
from .validation import validate_handoff_message

if TYPE_CHECKING:
    from . import models
else:
    from ._lazy import models

T = TypeVar("T")

log = logging.getLogger("handoffd.worker")

HEARTBEAT_S: Final = 15.0
"""Seconds between heartbeats at most; a third of the lease where that is less."""
ADOPT_HEARTBEATS: Final = 4
"""Intervals that the holder of a handoff misses before the broker gives it to another worker of the agent."""
BACKOFF_S: Final = 2.0
"""Seconds between polls while the broker does not answer."""
POLL_ANSWER_S: Final = 20
"""Seconds for which one request waits for an answer."""
HANDLER_ERROR: Final = "HANDLER_ERROR"
"""The code of a failure by any other exception of a handler."""
VERDICT_CHARS: Final = 500
"""Characters of a handler's words that a verdict carries at most."""
RESULT_REFUSED: Final = "RESULT_REFUSED"
"""The code of a failure by a result that the broker's safety rules refuse."""
HANDED_ON: Final = "HANDED_ON"
"""The broker's reason of a handoff that is completed because its receiver handed the task on."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A handler may return this in place of a bare result."""

    result: Any = None
    """Any JSON."""
    iterations: int | None = None
    """Rounds that it took."""
    conversation_summary: str | None = None
    """The conversation in condensed form."""


class _OwnTransport(AsyncTransport):
    """The transport of a worker's client. It knows its own errors from those of a handler's other clients."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.raised: weakref.WeakSet[Exception] = weakref.WeakSet()

    async def call(self, *args: Any, **named: Any) -> httpx2.Response:
        try:
            return await super().call(*args, **named)
        except _AWAY as error:
            self.raised.add(error)
            raise


class _OwnClient(AsyncClient):
    """A worker's client."""

    _transport_class = _OwnTransport


class _HandlerError(Exception):
    """A handler raised its cause. From the worker's own call the same error would leave the handoff to another worker."""


class _Work:
    """One handoff at this worker."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        handoff_id: str,
        task_id: str,
        message: dict[str, Any],
        fencing_token: int,
        attempt: int,
        traceparent: str | None,
        accepted: bool,
        answer_by: float | None,
        interval: float,
    ) -> None:
        self.client = client
        self.interval = interval
        self.handoff_id, self.task_id, self.message = handoff_id, task_id, message
        self.fencing_token, self.attempt, self.traceparent = fencing_token, attempt, traceparent
        self.accepted = accepted
        self.resumed = accepted
        self.answer_by = answer_by
        self.asking = False
        self.cancelled = threading.Event()
        self._withdrawn = False
        self._lost: str | None = None
        self.lease: float | None = None
        self.execution_id = derived_execution_id("worker", client.agent_id or "", handoff_id)
        cost = message.get("costTracking") or {}
        tokens = cost.get("tokenSpent") or {}
        self.spent_usd = float(cost.get("costSpentSoFarUSD") or 0)
        self.budget_usd = float(cost.get("costBudgetRemainingUSD") or 0)
        self.prompt_tokens = int(tokens.get("prompt") or 0)
        self.completion_tokens = int(tokens.get("completion") or 0)
        self.spent_here = False
        self._accepting = asyncio.Lock()

    @property
    def lost(self) -> str | None:
        return self._lost

    @lost.setter
    def lost(self, why: str | None) -> None:
        self._lost = why
        if why is not None:
            self.cancelled.set()

    @property
    def withdrawn(self) -> bool:
        """Whether its task was cancelled, and a grace runs in which it may still be completed."""
        return self._withdrawn

    @withdrawn.setter
    def withdrawn(self, is_withdrawn: bool) -> None:
        self._withdrawn = is_withdrawn
        if is_withdrawn:
            self.cancelled.set()

    def check(self) -> None:
        if self.lost:
            raise LeaseLostError(f"handoff {self.handoff_id}: {self.lost}")

    async def accept(self) -> None:
        async with self._accepting:
            if self.accepted:
                return
            self.check()
            view = await self.client.handoffs.accept(
                self.handoff_id, fencing_token=self.fencing_token, heartbeat_interval_ms=interval_ms(self.interval)
            )
            self.note_lease(view)
            self.accepted = True

    def note_lease(self, view: models.HandoffView) -> None:
        if view.deadline_at is not None:
            now = datetime.datetime.now(datetime.UTC)
            self.lease = max(0.1, (view.deadline_at - now).total_seconds())

    def beat_every(self) -> float:
        """Seconds between heartbeats."""
        return min(self.interval, self.lease / 3) if self.lease else self.interval

    def spend(self, usd: float, prompt_tokens: int, completion_tokens: int) -> None:
        for name, figure in (("usd", usd), ("prompt_tokens", prompt_tokens), ("completion_tokens", completion_tokens)):
            if not math.isfinite(figure) or figure < 0:
                raise ValueError(f"{name} is a finite number from 0: {figure}")
        self.spent_usd = round(self.spent_usd + usd, 9)
        self.budget_usd = round(self.budget_usd - usd, 9)
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        self.spent_here = True

    def cost(self) -> dict[str, Any] | None:
        """The spending so far, cumulative; none if this agent spent nothing."""
        if not self.spent_here:
            return None
        tokens = {"prompt": self.prompt_tokens, "completion": self.completion_tokens}
        return {"costSpentSoFarUSD": self.spent_usd, "tokenSpent": tokens}

    async def prompt(self, turns: int | None, max_tokens: int | None) -> str:
        return await self.client.handoffs.prompt(self.handoff_id, turns=turns, max_tokens=max_tokens)

    async def prompt_messages(self, turns: int | None, max_tokens: int | None) -> list[dict[str, str]]:
        view = await self.client.handoffs.prompt_messages(self.handoff_id, turns=turns, max_tokens=max_tokens)
        return [{"role": turn.role, "content": turn.content} for turn in view.messages]

    def plain(self, value: Any) -> Any:
        """JSON with the task in place of the guarded prompt of this handoff: the broker refuses its marks in a message."""
        return replaced(value, {Turn("prompt", self.handoff_id): task_of(self.message)})

    async def save(self, state: Mapping[str, Any]) -> None:
        self.check()
        await self.accept()
        await self.client.tasks.put_checkpoint(
            self.task_id, self.execution_id, state, handoff_id=self.handoff_id, fencing_token=self.fencing_token
        )

    async def restore(self) -> dict[str, Any] | None:
        return await self.client.restore(self.task_id, self.execution_id)

    def state_for(self, task: str, **state: Any) -> AgentState:
        defaults: dict[str, Any] = {
            "agent_id": self.client.agent_id,
            "agent_version": self.client.agent_version,
            "task": task,
            "task_id": self.task_id,
            "parent_handoff_id": self.handoff_id,
            "execution_id": self.execution_id,
            "spent_usd": self.spent_usd,
            "budget_usd": self.budget_usd,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "traceparent": self.traceparent,
            "state": self.message.get("currentState") or {},
            "completed": self.message.get("completedSubtasks") or [done_before(self.handoff_id, self.message)],
        }
        said = {name: self.message.get(name) for name in ("conversationId", "userId")}
        return AgentState(**{**defaults, **state, "fields": {**said, **(state.get("fields") or {})}})

    async def ask(self, question: Any, schema: Mapping[str, Any] | None, within: float | None) -> Any:
        await self.accept()
        handoffs, said = self.client.handoffs, self.plain(question)
        self.asking = True
        try:
            view = await handoffs.get(self.handoff_id)
            before = view.asked
            # A worker that takes the handoff up again has the answer that came meanwhile.
            if not (self.resumed and before is not None and before.question == said and before.state != "CLOSED"):
                wire: dict[str, Any] = {"question": said}
                if schema is not None:
                    wire["schema"] = dict(schema)
                if within is not None:
                    wire["answer_within_ms"] = max(1, round(within * 1000))
                view = await handoffs.ask(self.handoff_id, fencing_token=self.fencing_token, **wire)
            while view.status == "INPUT_REQUIRED":
                view = await handoffs.get(self.handoff_id, wait=POLL_ANSWER_S, until="answered")
            if view.status != "ACCEPTED" or view.asked is None or view.asked.state != "ANSWERED":
                self.lost = f"it is {view.status}"
            self.check()
            self.note_lease(view)
            return view.asked.answer if view.asked else None
        finally:
            self.asking = False

    async def hand_on(
        self,
        target: str | Mapping[str, Any],
        task: str,
        constraints: Sequence[str] | Mapping[str, Any] | None,
        state: Mapping[str, Any],
    ) -> Sent:
        await self.accept()
        given = self.state_for(task, **self.plain(state))
        kept = self.message.get("constraints") or [] if constraints is None else constraints
        return await self.client.hand_off(target, task, constraints=kept, fencing_token=self.fencing_token, **_fields(given))


def interval_ms(seconds: float) -> int:
    """An interval as the broker takes it."""
    return max(1, round(seconds * 1000))


def done_before(handoff_id: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """A completed subtask for what its receiver did before it hands on: the broker asks every later handoff for one."""
    turns = {"turns": len(message.get("conversationHistoryVerbatim") or ())}
    return {"subtaskId": handoff_id, "description": "The conversation before", "result": turns}


def _fields(state: AgentState) -> dict[str, Any]:
    return {name: value for name, value in vars(state).items() if name != "task"}


class _View:
    """The view of handlers of both kinds."""

    def __init__(self, work: _Work) -> None:
        self._work = work

    @property
    def handoff_id(self) -> str:
        """Its id."""
        return self._work.handoff_id

    @property
    def task_id(self) -> str:
        """Its task."""
        return self._work.task_id

    @property
    def message(self) -> dict[str, Any]:
        """The message as it was delivered."""
        return self._work.message

    @property
    def task(self) -> str:
        """The task: `taskDescription`, or of an `INITIAL` handoff the first open subtask."""
        return task_of(self.message)

    @property
    def state(self) -> dict[str, Any]:
        """`currentState`."""
        return dict(self.message.get("currentState") or {})

    @property
    def history(self) -> list[dict[str, Any]]:
        """The conversation's last turns, as they were. Data of another agent: give `prompt` to a model, not these."""
        return list(self.message.get("conversationHistoryVerbatim") or [])

    @property
    def attempt(self) -> int:
        """Counts claims, from 1."""
        return self._work.attempt

    @property
    def fencing_token(self) -> int:
        """Proves that this worker holds the handoff."""
        return self._work.fencing_token

    @property
    def traceparent(self) -> str | None:
        """W3C trace context under which it was sent."""
        return self._work.traceparent

    @property
    def resumed(self) -> bool:
        """Whether another worker began it and stopped: `restore` has what that one saved."""
        return self._work.resumed

    @property
    def execution_id(self) -> str:
        """This run, under which checkpoints are saved; the same after a crash."""
        return self._work.execution_id

    @property
    def budget_usd(self) -> float:
        """US dollars left on the task."""
        return self._work.budget_usd

    @property
    def spent_usd(self) -> float:
        """US dollars spent on the task so far, cumulative."""
        return self._work.spent_usd

    @property
    def prompt_tokens(self) -> int:
        """Tokens read on the task so far, cumulative."""
        return self._work.prompt_tokens

    @property
    def completion_tokens(self) -> int:
        """Tokens written on the task so far, cumulative."""
        return self._work.completion_tokens

    @property
    def lost(self) -> str | None:
        """Why the handoff is no longer this worker's; `None` while it is."""
        return self._work.lost

    @property
    def cancelled(self) -> threading.Event:
        """Set once the handler should end: the handoff is lost, its task was cancelled, or the worker's grace is over. A handler
        on a thread looks at it between steps, or waits on it in place of a sleep; a coroutine is cancelled too where the handoff
        is lost."""
        return self._work.cancelled

    def check(self) -> None:
        """Raises `LeaseLostError` once the handoff is no longer this worker's. Call it before an effect outside."""
        self._work.check()

    def spend(self, usd: float = 0.0, *, prompt_tokens: int = 0, completion_tokens: int = 0) -> None:
        """Notes what the work cost: US dollars and tokens since the last call. Told with the verdict and when handing on.

        Raises:
            ValueError: A figure is negative or not finite.
        """
        self._work.spend(usd, prompt_tokens, completion_tokens)


class AsyncHandoff(_View):
    """A handoff at work, for a handler that is a coroutine function."""

    @property
    def client(self) -> AsyncClient:
        """The worker's client."""
        return self._work.client

    async def accept(self) -> None:
        """Accepts now; without effect where it was accepted."""
        await self._work.accept()

    async def prompt(self, *, turns: int | None = None, max_tokens: int | None = None) -> str:
        """The context as one guarded text for a model's user turn; arguments as for `handoffs.prompt`."""
        return await self._work.prompt(turns, max_tokens)

    async def prompt_messages(self, *, turns: int | None = None, max_tokens: int | None = None) -> list[dict[str, str]]:
        """The same as `{role, content}`."""
        return await self._work.prompt_messages(turns, max_tokens)

    async def save(self, state: Mapping[str, Any]) -> None:
        """Stores this run's state durably; a worker that resumes gets it from `restore`."""
        await self._work.save(state)

    async def restore(self) -> dict[str, Any] | None:
        """The last state that this run saved; `None` if it saved none."""
        return await self._work.restore()

    async def ask(self, question: Any, *, schema: Mapping[str, Any] | None = None, within: float | None = None) -> Any:
        """Asks the sender, or a person, and waits for the answer; no lease runs meanwhile.

        Args:
            question: A text, or any JSON. The safety rules read it.
            schema: A JSON Schema that the answer has to fit.
            within: Seconds until the handoff expires without an answer; the broker's setting unless said.

        Returns:
            The answer: data of another agent. `handoffs.question_prompt` has it as a guarded turn for a model.

        Raises:
            LeaseLostError: The handoff ended meanwhile.
            SafetyViolationError: The question is refused.
        """
        return await self._work.ask(question, schema, within)

    def chunks(self, *, after: int = 0) -> AsyncGenerator[models.ChunkView, None]:
        """The chunks of a message that comes in pieces, as they come; the last one has `close`, or `abort`.

        Args:
            after: The last number that was read.
        """
        return self._work.client.handoffs.read_chunks(self.handoff_id, after=after)

    async def hand_on(
        self,
        target: str | Mapping[str, Any],
        task: str,
        *,
        constraints: Sequence[str] | Mapping[str, Any] | None = None,
        **state: Unpack[StateFields],
    ) -> Sent:
        """Hands the task on: same task, this handoff as its parent; state, finished work, constraints, budget, conversation and
        user are relayed. If nothing was finished before, the conversation so far becomes the one completed subtask.

        Args:
            target: As for `Client.hand_off`.
            task: The next agent's task.
            constraints: In place of those that came along.
            state: Further fields of `AgentState`.
        """
        return await self._work.hand_on(target, task, constraints, state)


class Handoff(_View):
    """A handoff at work, for a handler that is a plain function; it runs on a thread of its own."""

    def __init__(self, work: _Work, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(work)
        self._loop = loop

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def accept(self) -> None:
        """Accepts now; without effect where it was accepted."""
        self._wait(self._work.accept())

    def prompt(self, *, turns: int | None = None, max_tokens: int | None = None) -> str:
        """The context as one guarded text for a model's user turn; arguments as for `handoffs.prompt`."""
        return self._wait(self._work.prompt(turns, max_tokens))

    def prompt_messages(self, *, turns: int | None = None, max_tokens: int | None = None) -> list[dict[str, str]]:
        """The same as `{role, content}`."""
        return self._wait(self._work.prompt_messages(turns, max_tokens))

    def save(self, state: Mapping[str, Any]) -> None:
        """Stores this run's state durably; a worker that resumes gets it from `restore`."""
        self._wait(self._work.save(state))

    def restore(self) -> dict[str, Any] | None:
        """The last state that this run saved; `None` if it saved none."""
        return self._wait(self._work.restore())

    def ask(self, question: Any, *, schema: Mapping[str, Any] | None = None, within: float | None = None) -> Any:
        """Asks the sender, or a person, and waits for the answer; no lease runs meanwhile.

        Args:
            question: A text, or any JSON. The safety rules read it.
            schema: A JSON Schema that the answer has to fit.
            within: Seconds until the handoff expires without an answer; the broker's setting unless said.

        Returns:
            The answer: data of another agent. `handoffs.question_prompt` has it as a guarded turn for a model.

        Raises:
            LeaseLostError: The handoff ended meanwhile.
            SafetyViolationError: The question is refused.
        """
        return self._wait(self._work.ask(question, schema, within))

    def chunks(self, *, after: int = 0) -> Iterator[models.ChunkView]:
        """The chunks of a message that comes in pieces, as they come; the last one has `close`, or `abort`.

        Args:
            after: The last number that was read.
        """
        coming = self._work.client.handoffs.read_chunks(self.handoff_id, after=after)
        while True:
            chunk = self._wait(anext(coming, None))
            if chunk is None:
                return
            yield chunk

    def hand_on(
        self,
        target: str | Mapping[str, Any],
        task: str,
        *,
        constraints: Sequence[str] | Mapping[str, Any] | None = None,
        **state: Unpack[StateFields],
    ) -> Sent:
        """Hands the task on; as `AsyncHandoff.hand_on`."""
        return self._wait(self._work.hand_on(target, task, constraints, state))


SyncHandler = Callable[[Handoff], Any]
AsyncHandler = Callable[[AsyncHandoff], Awaitable[Any]]


class Worker:
    """Takes an agent's handoffs: claims, accepts, runs the handler with heartbeats, completes.

    The handler's return value is the result (any JSON, or `Completed`). It says no by exception: `Reject` before the
    acceptance rejects with that code, after it fails with that code; `Fail` fails with its code; any other exception fails
    with `HANDLER_ERROR`. Each rolls the task back as the edge's contract says. If the broker is away, an error of the
    handoff's methods or of its `client` fails nothing: the handoff is left for another worker.

    A worker that dies leaves accepted handoffs behind. The broker hears of each worker by its heartbeats, and gives a handoff
    whose holder missed four of its own intervals to another worker of the agent, under a new fencing token: the handler runs
    again with `resumed`, and `restore` gives what was saved. Of several such workers one gets it. A worker that was only cut
    off can do nothing to the handoff any more: its verdicts, its `save` and its `hand_on` are refused (`StaleLeaseError`).
    Only completion is exactly once; an effect outside belongs behind `check` and an id derived from `handoff_id`.

    Args:
        client: The agent's client, with `agent_id`.
        handler: Called with each handoff: a coroutine function with an `AsyncHandoff`, a plain one, on a thread, with a
            `Handoff`.
        decide: Called before the acceptance; raises `Reject`, or returns.
        concurrency: Handoffs at work at once.
        accept_within: Seconds for which the handler may still reject: it starts first, and the worker accepts when they are
            over, or when the handler returns. 0: accepted before the handler starts.
        required_state: Members that `currentState` must hold; a message without them is rejected with `INCOMPLETE_CONTEXT`.
        heartbeat: Seconds between heartbeats; `HEARTBEAT_S` unless said, a third of the lease where that is less. The broker is
            told, and lets another worker take over after four of them without a word.
        adopt: Take up what a worker of this agent left behind.
        poll: Whole seconds for which one poll waits, 1 to 60. A stop waits for the poll under way.
        on_return: Called with each task that came back (`returnTo`), on a thread if it is not a coroutine function. An
            exception that it raises is logged, and the task comes again.
        on_question: Called with each question of a receiver to this agent, which sent it a handoff; what it returns is the
            answer. On a thread if it is not a coroutine function. Without it questions wait for another process.
        grace: Seconds that a stop leaves to handlers; what is unfinished then is left for another worker.

    Raises:
        HandoffdError: The client has no `agent_id`.
    """

    def __init__(
        self,
        client: Client | AsyncClient,
        handler: SyncHandler | AsyncHandler,
        *,
        decide: SyncHandler | AsyncHandler | None = None,
        concurrency: int = 1,
        accept_within: float = 0.0,
        required_state: Sequence[str] = (),
        heartbeat: float | None = None,
        adopt: bool = True,
        poll: float = 10.0,
        on_return: Callable[[models.ReturnItem], Any] | None = None,
        on_question: Callable[[models.QuestionItem], Any] | None = None,
        grace: float = 30.0,
    ) -> None:
        if client.agent_id is None:
            raise HandoffdError("a worker needs the client's agent_id")
        self.agent_id = client.agent_id
        self.worker_id = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._given = client
        self._handler, self._decide = handler, decide
        self._on_return, self._on_question = on_return, on_question
        self._concurrency, self._accept_within = concurrency, accept_within
        self._required_state = required_state
        self._adopt, self._poll, self._grace = adopt, poll, grace
        self._held: dict[str, _Work] = {}
        self._beat_s = heartbeat if heartbeat is not None else HEARTBEAT_S
        self._running: set[asyncio.Task[None]] = set()
        self._answering: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._returning: dict[str, asyncio.Task[None]] = {}
        self._hears = on_return is not None or on_question is not None
        self._hearing: asyncio.Task[None] | None = None
        self._stop: asyncio.Event | None = None
        self._now: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = threading.Event()

    def run(self) -> None:
        """Works until `stop`, SIGTERM or SIGINT (where called on the main thread). The first signal lets handlers finish within
        `grace`; a second one ends at once, and leaves the handoffs to another worker.

        If the process has set up no logging, the worker's logger (`handoffd.worker`) writes to standard error: from warnings
        on, what went wrong; with `logging.INFO`, each handoff.

        Raises:
            UnauthenticatedError, ForbiddenError: The key is not this agent's.
            ConflictError: The agent takes its handoffs by webhook.
        """
        _log_by_default()
        asyncio.run(self.run_async(signals=threading.current_thread() is threading.main_thread()))

    def start(self) -> threading.Thread:
        """Works on a thread of its own, until `stop`."""
        thread = threading.Thread(target=self.run, name=f"handoffd-{self.agent_id}", daemon=True)
        thread.start()
        return thread

    def _signalled(self) -> None:
        if self._stopping.is_set() and self._now is not None:
            log.warning(
                "%s: a second signal: ends at once; %d handoffs are left for another worker", self.agent_id, len(self._held)
            )
            self._now.set()
            return
        if self._held:
            log.warning("%s: stops when %d handoffs are done; a second signal ends at once", self.agent_id, len(self._held))
        self.stop()

    def stop(self) -> None:
        """Claims no more, and ends when handlers are done or `grace` is over. Callable from any thread."""
        self._stopping.set()
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)

    async def run_async(self, *, signals: bool = False) -> None:
        """The same on this event loop.

        Args:
            signals: Stop at SIGTERM and SIGINT.
        """
        self._loop, self._stop, self._now = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        if self._stopping.is_set():
            return
        if signals and sys.platform != "win32":
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self._signalled)
        given = self._given
        client = _OwnClient(
            given.url,
            given.api_key,
            agent_id=self.agent_id,
            agent_version=given.agent_version,
            signing_secret=given.signing_secret,
            timeout=given.timeout,
            retries=given.retries,
        )
        async with client:
            adopter = asyncio.create_task(self._adopt_left_behind(client)) if self._adopt else None
            try:
                await self._claim(client)
            finally:
                if adopter is not None:
                    adopter.cancel()
                await self._wind_down()

    async def _claim(self, client: AsyncClient) -> None:
        assert self._stop is not None
        stopped = asyncio.create_task(self._stop.wait())
        try:
            while not self._stop.is_set():
                free = self._concurrency - len(self._running)
                if free <= 0:
                    if self._hears and self._hearing is None:
                        self._hearing = asyncio.create_task(self._hear(client))
                    heard = () if self._hearing is None else (self._hearing,)
                    await asyncio.wait({stopped, *self._running, *heard}, return_when=asyncio.FIRST_COMPLETED)
                    continue
                poll = asyncio.create_task(client.handoffs.inbox(self.agent_id, wait=max(1, round(self._poll)), max=free))
                await asyncio.wait({stopped, poll}, return_when=asyncio.FIRST_COMPLETED)
                if not poll.done():
                    # Handoffs that it claims would else lie until the claim ends.
                    await self._wait_for({poll}, self._poll + BACKOFF_S)
                if not poll.done():
                    poll.cancel()
                    with contextlib.suppress(asyncio.CancelledError, HandoffdError):
                        await poll
                    return
                try:
                    inbox = poll.result()
                except _AWAY as error:
                    if not _is_away(error):
                        raise
                    log.warning("%s: the broker does not answer: %s", self.agent_id, type(error).__name__)
                    await asyncio.wait({stopped}, timeout=BACKOFF_S)
                    continue
                for item in inbox.items:
                    self._begin(self._work_of(client, item))
                self._take_words(client, inbox)
        finally:
            stopped.cancel()
            if self._hearing is not None:
                self._hearing.cancel()

    async def _hear(self, client: AsyncClient) -> None:
        """Polls for returns and questions alone while all places are taken: a handler may wait for the agent that asks."""
        try:
            self._take_words(client, await client.handoffs.inbox(self.agent_id, wait=max(1, round(self._poll)), max=0))
        except _AWAY as error:
            if _is_away(error):
                log.warning("%s: the broker does not answer: %s", self.agent_id, type(error).__name__)
                await asyncio.sleep(BACKOFF_S)
            else:
                # An older broker has no such poll. A refusal of all polls ends the worker at the next one.
                self._hears = False
        finally:
            self._hearing = None

    def _take_words(self, client: AsyncClient, inbox: models.InboxView) -> None:
        """Takes an inbox's returns and questions, which are about handoffs that this agent sent."""
        for returned in inbox.returns or ():
            self._take_back(returned)
        for asked in inbox.questions or ():
            self._take_question(client, asked)

    def _work_of(self, client: AsyncClient, item: models.InboxItem) -> _Work:
        now = datetime.datetime.now(datetime.UTC)
        due = min(item.claimed_until, item.verdict_by) if item.verdict_by else item.claimed_until
        return _Work(
            client,
            handoff_id=item.handoff_id,
            task_id=item.task_id,
            message=dict(item.message),
            fencing_token=item.fencing_token,
            attempt=item.attempt,
            traceparent=item.traceparent,
            accepted=False,
            answer_by=time.monotonic() + (due - now).total_seconds(),
            interval=self._beat_s,
        )

    def _begin(self, work: _Work) -> None:
        if work.handoff_id in self._held:
            return
        self._held[work.handoff_id] = work
        task = asyncio.create_task(self._answer(work))
        self._running.add(task)

        def ended(done: asyncio.Task[None]) -> None:
            self._running.discard(done)
            self._held.pop(work.handoff_id, None)
            if not done.cancelled() and done.exception() is not None:
                log.error("%s: handoff %s", self.agent_id, work.handoff_id, exc_info=done.exception())

        task.add_done_callback(ended)

    async def _answer(self, work: _Work) -> None:
        try:
            if not work.accepted:
                await self._judge(work)
                if self._accept_within <= 0:
                    await work.accept()
            outcome = await self._handled(work)
            await self._complete(work, outcome)
        except Reject as refused:
            await self._refuse(work, refused)
        except (LeaseLostError, StaleLeaseError) as gone:
            log.warning("%s: handoff %s is another's: %s", self.agent_id, work.handoff_id, gone)
        except Fail as failed:
            await self._fail(work, failed.code, failed.message)
        except asyncio.CancelledError:
            log.warning("%s: handoff %s left for another worker", self.agent_id, work.handoff_id)
            raise
        except Exception as error:
            if _is_away(error):
                # Not the handler's failure: the lease runs out, or another worker takes it up.
                log.error("%s: handoff %s is left: the broker does not answer: %s", self.agent_id, work.handoff_id, error)
                return
            raised = error.__cause__ if isinstance(error, _HandlerError) else error
            log.error("%s: handoff %s failed", self.agent_id, work.handoff_id, exc_info=raised)
            await self._fail(work, HANDLER_ERROR, f"{type(raised).__name__}: {raised}")

    async def _judge(self, work: _Work) -> None:
        # The broker's safety rules have passed it.
        checked = validate_handoff_message(work.message, required_state=self._required_state, scan=False)
        if not checked:
            details = {"failures": [one.to_json() for one in checked.failures]}
            raise Reject(checked.reason or "SCHEMA_INVALID", details)
        if self._decide is not None:
            await self._call(self._decide, work)

    async def _call(self, function: SyncHandler | AsyncHandler, work: _Work) -> Any:
        assert self._loop is not None
        try:
            if _is_coroutine(function):
                return await cast(AsyncHandler, function)(AsyncHandoff(work))
            return await _on_thread(cast(SyncHandler, function), Handoff(work, self._loop))
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The worker cancelled nothing: a task that the handler waits for was cancelled.
            raise _HandlerError from cancelled
        except _AWAY as error:
            # A defect of the broker meets the handler again.
            left = _is_own(work.client, error) and not isinstance(error, InternalError)
            if left or not (_is_away(error) or isinstance(error, StaleLeaseError)):
                raise
            raise _HandlerError from error

    async def _handled(self, work: _Work) -> Any:
        """Runs the handler while heartbeats go out; ends early where the handoff is lost."""
        with _trace_context(work.traceparent):
            handling = asyncio.create_task(self._call(self._handler, work))
        beating = asyncio.create_task(self._beat(work))
        try:
            await asyncio.wait({handling, beating}, return_when=asyncio.FIRST_COMPLETED)
            if not handling.done() and work.lost is None and beating.exception() is None:
                # It was handed on: no lease runs, and the handler ends in its own time.
                await asyncio.wait({handling})
            if not handling.done():
                # A thread cannot be cancelled; its handler sees `lost`.
                handling.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await handling
                work.check()
                await beating
            return handling.result()
        finally:
            beating.cancel()
            handling.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await beating

    async def _beat(self, work: _Work) -> None:
        """Accepts in time, then extends the lease; returns when the handoff is lost, or was handed on."""
        if not work.accepted:
            within = self._accept_within
            if work.answer_by is not None:
                within = min(within, (work.answer_by - time.monotonic()) / 2)
            await asyncio.sleep(max(0.0, within))
        while True:
            try:
                if work.asking:
                    # No lease runs while the sender is asked.
                    pass
                elif work.accepted:
                    view = await self._extended(work)
                    if view.status not in ("ACCEPTED", "INPUT_REQUIRED"):
                        if not _is_handed_on(view):
                            work.lost = f"it is {view.status}"
                        return
                else:
                    await work.accept()
            except (StaleLeaseError, ConflictError, NotFoundError) as gone:
                if work.asking:
                    continue
                work.lost = gone.code
                return
            except _AWAY as error:
                log.warning("%s: heartbeat of %s: %s", self.agent_id, work.handoff_id, error)
            await asyncio.sleep(work.beat_every())

    async def _extended(self, work: _Work) -> models.HandoffView:
        """The handoff with its lease extended, or as it is if it has no lease to extend: it was handed on, or its task was
        cancelled and the grace runs, in which this worker may still complete or fail it."""
        handoffs = work.client.handoffs
        if work.withdrawn:
            return await handoffs.get(work.handoff_id)
        try:
            view = await handoffs.heartbeat(
                work.handoff_id, fencing_token=work.fencing_token, heartbeat_interval_ms=interval_ms(work.beat_every())
            )
        except ConflictError:
            view = await handoffs.get(work.handoff_id)
            work.withdrawn = view.status == "ACCEPTED" and view.fencing_token == work.fencing_token
            if not work.withdrawn and not _is_handed_on(view):
                raise
            return view
        work.note_lease(view)
        return view

    async def _complete(self, work: _Work, outcome: Any) -> None:
        done = outcome if isinstance(outcome, Completed) else Completed(outcome)
        said: dict[str, Any] = {"result": work.plain(done.result), "iterations": done.iterations, "cost_tracking": work.cost()}
        said["conversation_summary"] = work.plain(done.conversation_summary)
        said = {name: value for name, value in said.items() if value is not None}
        try:
            await self._until_answered(
                work, lambda: work.client.handoffs.complete(work.handoff_id, fencing_token=work.fencing_token, **said)
            )
        except SafetyViolationError as refused:
            # The broker reads what goes back into a model; the handoff is as it was.
            places = ", ".join(one.pointer for one in refused.failures)
            await self._fail(work, RESULT_REFUSED, places)
        except MaxIterationsError as over:
            await self._fail(work, over.code, f"{done.iterations} rounds")
        except ConflictError as conflict:
            # Handed on and settled by its acceptance, or withdrawn: the broker's word counts.
            log.info("%s: handoff %s was settled before: %s", self.agent_id, work.handoff_id, conflict.detail)

    async def _until_answered(self, work: _Work, say: Callable[[], Awaitable[object]]) -> None:
        """Repeats a verdict while the broker is away: work that is done is not thrown away. The broker refuses it once the lease
        has ended."""
        while True:
            try:
                await say()
                return
            except _AWAY as error:
                # A defect of the broker meets the same verdict again.
                if not _is_away(error) or isinstance(error, InternalError):
                    raise
                log.warning("%s: the verdict of %s waits for the broker: %s", self.agent_id, work.handoff_id, error)
                await asyncio.sleep(BACKOFF_S)

    async def _refuse(self, work: _Work, refused: Reject) -> None:
        if work.accepted:
            await self._fail(work, refused.reason, "" if refused.details is None else str(refused.details)[:500])
            return
        reason = _words(refused.reason) or "REJECTED"
        said = {} if refused.details is None else {"details": refused.details}
        reject, token = work.client.handoffs.reject, work.fencing_token
        await self._settle(
            work,
            lambda: reject(work.handoff_id, fencing_token=token, reason=reason, **said),
            lambda: reject(work.handoff_id, fencing_token=token, reason=reason),
        )

    async def _fail(self, work: _Work, code: str, message: str) -> None:
        code, message, cost = _words(code), _words(message), work.cost()
        # The record has the code; the parties read the message, so it names the code too.
        said: dict[str, Any] = {"error": {"code": code, "message": f"{code}: {message}" if message else code}}
        if cost is not None:
            said["cost_tracking"] = cost
        fail, token = work.client.handoffs.fail, work.fencing_token
        await self._settle(
            work,
            lambda: fail(work.handoff_id, fencing_token=token, **said),
            lambda: fail(work.handoff_id, fencing_token=token, error={"code": code, "message": code}),
        )

    async def _settle(self, work: _Work, say: Callable[[], Awaitable[object]], bare: Callable[[], Awaitable[object]]) -> None:
        """Sends a rejection or failure; where the broker refuses it, or JSON cannot hold it, once more with the code alone: a
        handoff that stays accepted would be worked on without end."""
        with _settled_before(work):
            try:
                await self._until_answered(work, say)
            except (StaleLeaseError, ConflictError, NotFoundError):
                raise
            except Exception as refused:
                log.error("%s: of the verdict of %s only the code is told", self.agent_id, work.handoff_id, exc_info=refused)
                await self._until_answered(work, bare)

    def _take_back(self, item: models.ReturnItem) -> None:
        """Tells of a task that came back while claims go on. It comes again until it moves on, and is told once at a time."""
        if item.handoff_id in self._returning:
            return
        self._returning[item.handoff_id] = asyncio.create_task(self._returned(item))
        self._returning[item.handoff_id].add_done_callback(lambda _: self._returning.pop(item.handoff_id, None))

    async def _returned(self, item: models.ReturnItem) -> None:
        try:
            if self._on_return is None:
                log.warning("%s: task %s came back, and the worker has no on_return", self.agent_id, item.task_id)
            elif _is_coroutine(self._on_return):
                await self._on_return(item)
            else:
                await _on_thread(self._on_return, item)
        except Exception:
            # The item comes again.
            log.exception("%s: the return of task %s", self.agent_id, item.task_id)

    def _take_question(self, client: AsyncClient, item: models.QuestionItem) -> None:
        """Answers while claims go on. The question comes again until it is answered, and is told once at a time."""
        key = (item.handoff_id, item.number)
        if key in self._answering:
            return
        self._answering[key] = asyncio.create_task(self._asked(client, item))
        self._answering[key].add_done_callback(lambda _: self._answering.pop(key, None))

    async def _asked(self, client: AsyncClient, item: models.QuestionItem) -> None:
        if self._on_question is None:
            log.warning("%s: handoff %s asks, and the worker has no on_question", self.agent_id, item.handoff_id)
            return
        try:
            if _is_coroutine(self._on_question):
                answer = await self._on_question(item)
            else:
                answer = await _on_thread(self._on_question, item)
            await client.handoffs.answer(item.handoff_id, answer=answer, number=item.number)
        except (ConflictError, NotFoundError) as late:
            log.info("%s: the question of %s is closed: %s", self.agent_id, item.handoff_id, late.code)
        except Exception:
            # The item comes again; the handoff expires without an answer in time.
            log.exception("%s: the question of handoff %s", self.agent_id, item.handoff_id)

    async def _adopt_left_behind(self, client: AsyncClient) -> None:
        """Takes up handoffs of this agent whose holder is silent. The broker decides that, by the holder's own interval."""
        while True:
            try:
                async for handoff in client.handoffs.iterate(status="ACCEPTED", to_agent=self.agent_id):
                    if len(self._running) >= self._concurrency:
                        break
                    if not self._is_left_behind(handoff):
                        continue
                    try:
                        await self._take_up(client, handoff.handoff_id)
                    except (ConflictError, NotFoundError) as held:
                        # Another worker was first, its holder was heard of, or its task was cancelled.
                        log.info("%s: handoff %s is not taken up: %s", self.agent_id, handoff.handoff_id, held.detail)
            except _AWAY as error:
                if isinstance(error, UnauthenticatedError | ForbiddenError):
                    return
                log.warning("%s: looking for what was left behind: %s", self.agent_id, error)
            await asyncio.sleep(self._beat_s)

    def _is_left_behind(self, handoff: models.HandoffView) -> bool:
        """Whether it is worth asking: its holder states an interval, and was not heard of for that long by this clock. A clock
        that is wrong costs a request, or a look later."""
        every = handoff.heartbeat_interval_ms
        if handoff.handoff_id in self._held or handoff.deadline_at is None or every is None or handoff.heard_at is None:
            return False
        silent = datetime.datetime.now(datetime.UTC) - handoff.heard_at
        return silent.total_seconds() * 1000 >= every * ADOPT_HEARTBEATS or silent.total_seconds() < 0

    async def _take_up(self, client: AsyncClient, handoff_id: str) -> None:
        view = await client.handoffs.get(handoff_id, include="message")
        if view.status != "ACCEPTED" or not view.message:
            return
        message = dict(view.message)
        view = await client.handoffs.take_over(handoff_id, heartbeat_interval_ms=interval_ms(self._beat_s))
        work = _Work(
            client,
            handoff_id=handoff_id,
            task_id=view.task_id,
            message=message,
            fencing_token=view.fencing_token,
            attempt=view.attempts,
            traceparent=view.traceparent,
            accepted=True,
            answer_by=None,
            interval=self._beat_s,
        )
        work.note_lease(view)
        log.warning("%s: handoff %s is taken up again", self.agent_id, handoff_id)
        self._begin(work)

    async def _wind_down(self) -> None:
        if under_way := self._under_way():
            await self._wait_for(under_way, self._grace)
        left = self._under_way()
        for work in self._held.values():
            # A thread cannot be cancelled; its handler sees `lost`.
            work.lost = work.lost or "the worker stopped"
        for task in left:
            task.cancel()
        if left:
            await self._wait_for(left, 5)

    async def _wait_for(self, tasks: set[asyncio.Task[Any]], seconds: float) -> None:
        """Waits until all are done, the time is over, or a second signal came."""
        assert self._now is not None
        now = asyncio.create_task(self._now.wait())
        every = asyncio.ensure_future(asyncio.wait(tasks))
        try:
            await asyncio.wait({now, every}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            now.cancel()
            every.cancel()

    def _under_way(self) -> set[asyncio.Task[None]]:
        return {*self._running, *self._returning.values(), *self._answering.values()}


def _log_by_default() -> None:
    """A worker that says nothing looks as one that works: without any logging set up, its words go to standard error."""
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        log.addHandler(handler)


_AWAY: Final = (TransportError, ProblemError, AnswerError)
"""Exceptions of a request; of these `_is_away` tells those to be tried again later."""


def _is_away(error: Exception) -> bool:
    """Whether the broker did not answer, or something in its place did: the broker's own refusals have a code."""
    if isinstance(error, ProblemError):
        # A proxy's limit on a body meets the same body again.
        from_proxy = error.code == f"HTTP_{error.status}" and error.status != 413
        return from_proxy or error.status >= 500 or error.status == 429
    return isinstance(error, TransportError | AnswerError)


def _is_own(client: AsyncClient, error: Exception) -> bool:
    """Whether a request of the worker's client raised the error."""
    transport = client._transport
    return isinstance(transport, _OwnTransport) and error in transport.raised


def _words(text: object) -> str:
    """The beginning of a text as UTF-8 can hold it: U+FFFD in place of half a surrogate pair."""
    return str(text)[:VERDICT_CHARS].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


async def _on_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Runs a function on a daemon thread of its own: an executor has few threads, and the process's end waits for them."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def tell(value: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((value, error))

    def run() -> None:
        value, raised = None, None
        try:
            value = context.run(function, *arguments)
        except BaseException as error:
            raised = error
        # After a stop the loop is closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, value, raised)

    threading.Thread(target=run, name="handoffd-handler", daemon=True).start()
    value, error = await ended
    if error is not None:
        raise error
    return cast(T, value)


def _is_handed_on(view: models.HandoffView) -> bool:
    return view.status == "COMPLETED" and view.reason == HANDED_ON


@contextlib.contextmanager
def _settled_before(work: _Work) -> Iterator[None]:
    """A verdict that comes too late changes nothing, and is not an error of the worker."""
    try:
        yield
    except (StaleLeaseError, ConflictError, NotFoundError) as late:
        log.warning("handoff %s was settled before: %s", work.handoff_id, late.code)


def _is_coroutine(function: object) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004  (its method, not whether there is one)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


@contextlib.contextmanager
def _trace_context(traceparent: str | None) -> Iterator[None]:
    """The sender's trace as the parent of spans that the handler makes, where the process uses OpenTelemetry."""
    if traceparent is None or "opentelemetry.trace" not in sys.modules:
        yield
        return
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    token = context.attach(TraceContextTextMapPropagator().extract({"traceparent": traceparent}))
    try:
        yield
    finally:
        context.detach(token)
