"""The client: one broker, one key."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import httpx2

from .._pause import async_sleep
from .._sent import (
    DEFAULT_URL,
    FINAL,
    HELD_S,
    SENT_BEFORE,
    Sent,
    is_own,
    local_admin_key,
    refuse_other_step,
    sent_before,
    sent_of,
    setting,
    words_of,
)
from .._wire import UNSET, Lines, Request, RetryPolicy, _bytes, _model, _text, _unexpected, headers_of, quoted, refusal
from ..building import MAX_BYTES, MAX_TURNS, AgentState, StateFields, build_handoff_message, stated_digest, target_of
from ..errors import AnswerError, HandoffdError, HandoffEndedBadlyError, NotFoundError, TransportError, WaitTimeoutError
from . import services
from .transport import AsyncTransport

if TYPE_CHECKING:
    from .. import models
else:
    from .._lazy import models


class Handoffs(services.Handoffs):
    """Handoffs: submitting, waiting, reading, verdicts, the inbox."""

    async def submit(
        self,
        message: Mapping[str, Any],
        *,
        wait: float | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
        fencing_token: int | None = None,
    ) -> Sent:
        """Submits a message: the gate, one commit, then delivery.

        A message whose `handoffId` the broker has already, from the same agent on the same task, counts as sent: the step was
        done before. Sent again with another body it is not changed. If the messages have digests of their steps, as
        `build_handoff_message` writes them, and these differ, it is another step under the same name, and an error.

        Args:
            message: The message, as `build_handoff_message` makes it.
            wait: Seconds, 60 at most, for which the broker holds the answer for the receiver's verdict.
            idempotency_key: The same message again under the same key has one effect, and gets the first answer. Another message
                under it is refused.
            traceparent: W3C trace context in place of the message's; counts where it is valid.
            tracestate: The vendors' part that belongs to `traceparent`.
            fencing_token: The token by which the sender holds `parentHandoffId`: the message is refused where another worker took
                that over.

        Raises:
            ConflictError: The key was used for another message.
            StepReusedError: The id was used for another step.
            StaleLeaseError: `fencing_token` is not the current one.
            ProblemError: By code, with all `failures` of the gate: `SchemaInvalidError`, `ForbiddenError`,
                `IncompleteContextError`, `BudgetExhaustedError`, `SafetyViolationError`, ...
            TransportError: The broker did not answer; submit the same message again.
        """
        given = {"idempotency-key": idempotency_key, "traceparent": traceparent, "tracestate": tracestate}
        headers = headers_of(given)
        if fencing_token is not None:
            headers["handoff-fencing-token"] = str(fencing_token)
        if wait:
            headers["prefer"] = f"wait={max(1, round(wait))}"
        try:
            response = await self._transport.call("POST", "/handoffs", body=message, headers=headers, repeatable=True, wait=wait)
        except (TransportError, AnswerError) as away:
            # Whether it was committed is unknown; its id finds it.
            away.handoff_id, away.task_id = message.get("handoffId"), message.get("taskId")
            raise
        except SENT_BEFORE as refused:
            own, stored = stated_digest(message), refused.problem.get("storedStepDigest")
            try:
                known = await self.get(message["handoffId"], include="message" if own and not stored else None)
            except NotFoundError:
                raise refused from None
            if not is_own(message, known):
                raise refused
            refuse_other_step(refused, own, stored or stated_digest(dict(known.message or {})))
            return sent_before(message, known)
        answer = _model(models.SubmittedView, response)
        return sent_of(message, answer, replayed=response.headers.get("idempotency-replayed") == "true")

    async def wait_ended(self, handoff_id: str, *, timeout: float | None = None, follow: bool = True) -> models.HandoffView:
        """Waits until a handoff has ended, and returns it with its `result`.

        Args:
            handoff_id: The handoff.
            timeout: Seconds; without, for as long as it takes.
            follow: Go on with the handoff that replaces it, if the broker gave the message to another agent.

        Raises:
            WaitTimeoutError: It has not ended in that time.
            NotFoundError: No such handoff, or not the caller's.
            TransportError: The broker did not answer.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = HELD_S if end is None else max(0.0, end - time.monotonic())
            held = int(min(left, HELD_S))
            handoff = await self.get(handoff_id, wait=held or None, until="ended" if held else None)
            if handoff.status in FINAL:
                if not follow or handoff.successor_id is None:
                    return handoff
                handoff_id = handoff.successor_id
            elif end is not None and time.monotonic() >= end:
                raise WaitTimeoutError(handoff_id, handoff.status, timeout or 0)
            elif not held:
                await async_sleep(min(left, 0.1))

    async def prompt(self, handoff_id: str, *, turns: int | None = None, max_tokens: int | None = None) -> str:
        """The handoff's context as one text, between marks that its content cannot forge.

        Args:
            handoff_id: The handoff.
            turns: Turns of the conversation to show, counted from the end; 5 unless said.
            max_tokens: Tokens that the text has at most, by the receiver's tokenizer, 500 or more; it names what it leaves out.

        Raises:
            ForbiddenError: A dead letter.
            NotFoundError: No such handoff, not the caller's, or its message is gone.
        """
        path = f"/handoffs/{quoted(handoff_id)}/prompt"
        return _text(await self._transport.call("GET", path, query={"turns": turns, "maxTokens": max_tokens}))

    async def result_prompt(self, handoff_id: str) -> str:
        """The receiver's result of the completed handoff, as one text for a model's user turn, by the rules of `prompt`.

        Of a handoff to several receivers: the results of all, each under its own agent.

        Args:
            handoff_id: The handoff, or what `hand_off_to_many` returned.

        Raises:
            ConflictError: The handoff is not completed.
            NotFoundError: No such handoff, not the caller's, or it has no result (any more).
        """
        return _text(await self._transport.call("GET", f"/handoffs/{quoted(handoff_id)}/result/prompt"))

    async def result_prompt_messages(self, handoff_id: str) -> models.PromptView:
        """The same as turns for a chat API: one user turn, with its segments' origins. Arguments and errors as there."""
        path = f"/handoffs/{quoted(handoff_id)}/result/prompt"
        return _model(models.PromptView, await self._transport.call("GET", path, query={"format": "messages"}))

    async def question_prompt(self, handoff_id: str) -> str:
        """The receiver's last question, with its answer where there is one, as one text for a model's user turn, by the rules of
        `prompt`.

        Args:
            handoff_id: The handoff.

        Raises:
            NotFoundError: No such handoff, not the caller's, or its receiver asked nothing.
        """
        return _text(await self._transport.call("GET", f"/handoffs/{quoted(handoff_id)}/question/prompt"))

    async def question_prompt_messages(self, handoff_id: str) -> models.PromptView:
        """The same as turns for a chat API: one user turn, with its segments' origins. Arguments and errors as there."""
        path = f"/handoffs/{quoted(handoff_id)}/question/prompt"
        return _model(models.PromptView, await self._transport.call("GET", path, query={"format": "messages"}))

    async def append_chunks(self, handoff_id: str, chunks: Sequence[Mapping[str, Any]]) -> models.ChunksView:
        """Adds chunks to a handoff whose message comes in pieces (`stream: {"open": true}`), in order.

        Those before the first that is refused are kept. The same chunks again do nothing.

        Args:
            handoff_id: The handoff.
            chunks: `{seq, append, set}` each, numbered from 1 without gaps; the last may have `close` or `abort`.

        Raises:
            ConflictError: A gap, another content under a number, or the stream has ended; `problem["expectedSeq"]` comes next.
            ProblemError: The gate refuses a chunk; `problem["line"]` is its line, `problem["taken"]` how many were kept.
        """
        path = f"/handoffs/{quoted(handoff_id)}/chunks"
        return _model(models.ChunksView, await self._transport.call("POST", path, body=Lines(chunks), repeatable=True))

    async def read_chunks(self, handoff_id: str, *, after: int = 0, wait: int = 30) -> AsyncGenerator[models.ChunkView, None]:
        """The chunks of a handoff whose message comes in pieces, in order, as they come; ends with the stream. The last one has
        `close`, or `abort`.

        Args:
            handoff_id: The handoff.
            after: The last number that was read.
            wait: Seconds for which one request waits, 60 at most.

        Raises:
            ConflictError: The handoff's message came whole.
            NotFoundError: No such handoff, or not the caller's.
        """
        next_ = after + 1
        while True:
            page = await self.chunks(handoff_id, from_=next_, wait=wait)
            for one in page.items:
                yield one
            next_ = page.next
            if not page.items and not page.stream.open:
                return

    async def prompt_messages(
        self, handoff_id: str, *, turns: int | None = None, max_tokens: int | None = None
    ) -> models.PromptView:
        """The same as turns for a chat API: one user turn, with its segments' origins. Arguments and errors as there."""
        path = f"/handoffs/{quoted(handoff_id)}/prompt"
        query = {"format": "messages", "turns": turns, "maxTokens": max_tokens}
        return _model(models.PromptView, await self._transport.call("GET", path, query=query))


class Tasks(services.Tasks):
    """Tasks: state, cost, checkpoints, trace, blame."""

    async def trace(
        self,
        task_id: str,
        *,
        from_: str | None = None,
        to: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> models.TraceView:
        """Everything that happened on a task: handoffs, records, cost, verification.

        With `from_`, `to`, `cursor` or `limit`: a window of it, newest first, without `agents` and `cost`.

        Args:
            task_id: The task.
            from_: Only records of this time or later, RFC 3339.
            to: Only records before this time.
            cursor: `next_cursor` of the window before.
            limit: Records of a window, 1 to 500.

        Raises:
            NotFoundError: No such task, or not the caller's.
        """
        query = {"from": from_, "to": to, "cursor": cursor, "limit": limit}
        path = f"/tasks/{quoted(task_id)}/trace"
        return _model(models.TraceView, await self._transport.call("GET", path, query=query))

    async def bundle(self, task_id: str, *, include_personal: bool | None = None) -> bytes:
        """The regulator's bundle of a task: a zip that `handoffd verify` checks offline.

        Args:
            task_id: The task.
            include_personal: Put personal data into it; for operators and admins.

        Raises:
            ForbiddenError: Agents get no bundle, auditors no personal data.
            NotFoundError: No such task.
        """
        query = {"format": "bundle", "includePersonal": include_personal}
        return _bytes(await self._transport.call("GET", f"/tasks/{quoted(task_id)}/trace", query=query))

    async def watch(self, task_id: str, *, after: str | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """The task's events so far, then each as it happens, for as long as the broker keeps the stream open.

        Args:
            task_id: The task.
            after: The `cursor` of the last event seen.

        Raises:
            NotFoundError: No such task, or not the caller's.
            TransportError: The stream broke; go on with `after`.
        """
        headers = {**self._transport.headers, "accept": "text/event-stream"}
        if after:
            headers["last-event-id"] = after
        request = Request("GET", f"/tasks/{quoted(task_id)}/events", headers=headers, wait=HELD_S)
        url = self._transport.base_url + request.path
        try:
            async with self._transport.http.stream("GET", url, **request.arguments(30.0)) as response:
                if response.status_code >= 400:
                    await response.aread()
                    raise refusal(response)
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    raise _unexpected(response, "it is not a stream of events")
                data: list[str] = []
                async for line in response.aiter_lines():
                    if line.startswith("data:"):
                        data.append(line[5:].removeprefix(" "))
                    elif not line and data:
                        yield json.loads("\n".join(data))
                        data = []
        except httpx2.TransportError as error:
            raise TransportError(f"GET {url}: {error}", sent=True) from error


class HandOffFields(StateFields, total=False):
    """The keyword arguments of `hand_off`."""

    wait: float | None
    idempotency_key: str | None
    max_turns: int
    max_bytes: int
    window_tokens: int | None
    summarize: Callable[[Sequence[Mapping[str, Any]]], str] | None
    fencing_token: int | None


class HandoffStream:
    """A message that goes out in pieces. Left without an error it is closed, and the broker runs the whole gate over the message;
    left by one it is aborted, and the task goes back to the sender's checkpoint."""

    def __init__(self, handoffs: Handoffs, sent: Sent) -> None:
        self._handoffs = handoffs
        self.sent = sent
        """The handoff that was opened."""
        self.next_seq = 1
        """The number of the next chunk."""
        self.ended = False
        """Whether it was closed or aborted."""

    async def __aenter__(self) -> HandoffStream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.ended:
            return
        if kind is None:
            await self.close()
        else:
            await self.abort(kind.__name__)

    async def send(self, *, append: Mapping[str, Any] | None = None, set: Mapping[str, Any] | None = None) -> models.ChunksView:
        """Adds a chunk.

        Args:
            append: Items for arrays, and texts for texts, by the JSON pointer of the value to which they are added.
            set: Values by their JSON pointers.

        Raises:
            ConflictError: The stream has ended.
            ProblemError: The gate refuses the chunk.
            TransportError: The broker did not answer; the same call again does nothing twice.
        """
        given = {"append": append, "set": set}
        return await self._put({name: dict(value) for name, value in given.items() if value is not None})

    async def turn(self, role: str, content: Any) -> models.ChunksView:
        """Adds a turn of the conversation; errors as for `send`."""
        return await self.send(append={"/conversationHistoryVerbatim": [{"role": role, "content": content}]})

    async def close(self) -> models.ChunksView:
        """The message is whole.

        Raises:
            ProblemError: The gate refuses the message.
        """
        self.ended = True
        return await self._put({"close": True})

    async def abort(self, reason: str) -> models.ChunksView:
        """There will be no message.

        Args:
            reason: Why, in words.
        """
        self.ended = True
        return await self._put({"abort": True, "reason": reason})

    async def _put(self, chunk: dict[str, Any]) -> models.ChunksView:
        taken = await self._handoffs.append_chunks(self.sent.handoff_id, [{"seq": self.next_seq, **chunk}])
        self.next_seq = taken.expected_seq
        return taken


class AsyncClient:
    """One broker, one key: a service a resource, and `hand_off`.

    Args:
        url: The broker; `HANDOFFD_URL`, else `http://127.0.0.1:8080`.
        api_key: The key; `HANDOFFD_API_KEY`.
        agent_id: The agent of that key, for `hand_off` and workers; `HANDOFFD_AGENT_ID`.
        agent_version: Its semantic version.
        signing_secret: Signs each message that `hand_off` builds (`hss_…`); `HANDOFFD_SIGNING_SECRET`.
        timeout: Seconds for one attempt, beside what the broker holds an answer for.
        retries: When a request is sent again.
        http: An own `httpx2` client, which stays the caller's to close.

    Raises:
        ValueError: The URL is not an `http://` or `https://` URL, or the key cannot be in a header.
    """

    _transport_class: type[AsyncTransport] = AsyncTransport

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        agent_id: str | None = None,
        agent_version: str = "1.0.0",
        signing_secret: str | None = None,
        timeout: float = 30.0,
        retries: RetryPolicy | None = None,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        base = setting(url, "HANDOFFD_URL", DEFAULT_URL) or DEFAULT_URL
        key = setting(api_key, "HANDOFFD_API_KEY")
        self.agent_id = setting(agent_id, "HANDOFFD_AGENT_ID")
        self.agent_version = agent_version
        self.signing_secret = setting(signing_secret, "HANDOFFD_SIGNING_SECRET")
        self.url, self.api_key = base, key
        self.timeout, self.retries = timeout, retries or RetryPolicy()
        self._transport = self._transport_class(base, key, timeout=timeout, retries=self.retries, http=http)
        self.agents = services.Agents(self._transport)
        self.allowlist = services.Allowlist(self._transport)
        self.audit = services.Audit(self._transport)
        self.caps = services.Caps(self._transport)
        self.contracts = services.Contracts(self._transport)
        self.data_subjects = services.DataSubjects(self._transport)
        self.dead_letters = services.DeadLetters(self._transport)
        self.escalations = services.Escalations(self._transport)
        self.events = services.Events(self._transport)
        self.handoffs = Handoffs(self._transport)
        self.keys = services.Keys(self._transport)
        self.legal_holds = services.LegalHolds(self._transport)
        self.schemas = services.Schemas(self._transport)
        self.service = services.Service(self._transport)
        self.subscriptions = services.Subscriptions(self._transport)
        self.tasks = Tasks(self._transport)

    @classmethod
    def local(cls, url: str | None = None, *, data_dir: str | os.PathLike[str] | None = None) -> AsyncClient:
        """The admin's client of a broker that `handoffd serve` started in this folder.

        Args:
            url: The broker, as for the class.
            data_dir: Its data directory, with `admin.key`; without it the key is in `HANDOFFD_API_KEY_FILE`, or the directory is
                `HANDOFFD_DATA_DIR`, else `./handoffd-data`.

        Raises:
            HandoffdError: The key is missing.
        """
        return cls(url, local_admin_key(data_dir))

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._transport.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def enroll(self, agent_id: str, **spec: Unpack[services.AgentFields]) -> AsyncClient:
        """Registers an agent where it is missing, makes a key for it, and returns its client. For operators.

        Meant for development and tests: each call makes one more key. In production keys are made once and kept.

        Args:
            agent_id: The agent.
            spec: Its fields, as for `agents.create`; those of a registered agent are changed to them.

        Raises:
            ForbiddenError: Not an operator's key.
        """
        try:
            agent: models.AgentView = await self.agents.get(agent_id)
            if spec:
                agent = await self.agents.update(agent_id, **spec)
        except NotFoundError:
            agent = await self.agents.create(agent_id=agent_id, **spec)
        key = await self.keys.create(role="agent", agent_id=agent_id, label="handoffd SDK")
        return AsyncClient(
            self.url,
            key.api_key,
            agent_id=agent_id,
            agent_version=agent.agent_version,
            timeout=self.timeout,
            retries=self.retries,
        )

    async def hand_off(
        self,
        target: str | Mapping[str, Any],
        task: str,
        constraints: Sequence[str] | Mapping[str, Any] = (),
        *,
        wait: float | None = None,
        idempotency_key: str | None = None,
        max_turns: int = MAX_TURNS,
        max_bytes: int = MAX_BYTES,
        window_tokens: int | None = None,
        summarize: Callable[[Sequence[Mapping[str, Any]]], str] | None = None,
        fencing_token: int | None = None,
        **state: Unpack[StateFields],
    ) -> Sent:
        """Builds a message and submits it.

        Args:
            target: An agent's id, `type:<agentType>`, `capability:<name>`, or `toAgent` itself.
            task: The receiver's task.
            constraints: `key:value` texts, or a mapping of them.
            wait: Seconds, 60 at most, for which the broker holds the answer for the receiver's verdict.
            idempotency_key: As for `handoffs.submit`, within this call: the next call builds another message, with ids and a time
                of its own. A step that is repeated is named by `run` and `step`, without a key.
            max_turns: Turns of the conversation to keep at most; older ones are condensed. All are sent unless said, and the
                broker compresses them for a receiver whose window is smaller.
            max_bytes: Bytes of the message at most, as the broker's `server.max_body_bytes`.
            window_tokens: The receiver's context window, in tokens: older turns are condensed above 80 % of it.
            summarize: Condenses turns in place of the SDK's own extract.
            fencing_token: As for `handoffs.submit`.
            state: Further fields of `AgentState`.

        Raises:
            HandoffdError: The client has no `agent_id`.
            ValueError: A task without words.
            ProblemError: As for `handoffs.submit`.
            TransportError: The broker did not answer; its `handoff_id` names the handoff all the same.
        """
        if self.agent_id is None:
            raise HandoffdError("hand_off needs the client's agent_id")
        known: StateFields = {"agent_id": self.agent_id, "agent_version": self.agent_version, **state}
        given = AgentState(task=task, **known)
        message = build_handoff_message(
            given,
            target,
            constraints,
            window_tokens=window_tokens,
            max_turns=max_turns,
            max_bytes=max_bytes,
            summarize=summarize,
            signing_secret=self.signing_secret,
        )
        return await self.handoffs.submit(message, wait=wait, idempotency_key=idempotency_key, fencing_token=fencing_token)

    async def hand_off_to_many(
        self,
        targets: Sequence[str | Mapping[str, Any]],
        task: str,
        constraints: Sequence[str] | Mapping[str, Any] = (),
        *,
        join: str = "all",
        on_reject: str | None = None,
        **arguments: Unpack[HandOffFields],
    ) -> Sent:
        """Hands one message to several receivers: one commit, a handoff for each, and a group that gathers their results.

        Args:
            targets: 1 to 100, each as for `hand_off`.
            task: The task of each of them.
            constraints: `key:value` texts, or a mapping of them.
            join: How many are needed: `all`, `any`, `quorum:N`.
            on_reject: `rollback` or `drop`; without it `rollback` for `all`, else `drop`.
            arguments: As for `hand_off`.

        Returns:
            The group, as a handoff: `handoffs.wait_ended(sent.handoff_id)` has the results in the order of `targets`.

        Raises:
            ProblemError: As for `handoffs.submit`; one receiver that cannot have the message refuses the whole list.
        """
        receivers = [target_of(one) for one in targets]
        if not receivers:
            raise HandoffdError("hand_off_to_many needs a target")
        members: dict[str, Any] = {"receiverList": receivers, "join": join, **arguments.get("fields", {})}
        if on_reject is not None:
            members["onReject"] = on_reject
        given: HandOffFields = {**arguments, "fields": members}
        return await self.hand_off(receivers[0], task, constraints, **given)

    async def open_stream(
        self,
        target: str | Mapping[str, Any],
        task: str,
        constraints: Sequence[str] | Mapping[str, Any] = (),
        **arguments: Unpack[HandOffFields],
    ) -> HandoffStream:
        """Opens a handoff whose message goes out in pieces; use it as a context manager.

        Args:
            target: As for `hand_off`.
            task: The receiver's task.
            constraints: `key:value` texts, or a mapping of them.
            arguments: As for `hand_off`.

        Raises:
            ProblemError: As for `handoffs.submit`.
        """
        given: HandOffFields = {**arguments, "fields": {**arguments.get("fields", {}), "stream": {"open": True}}}
        return HandoffStream(self.handoffs, await self.hand_off(target, task, constraints, **given))

    async def hand_off_and_wait(
        self,
        target: str | Mapping[str, Any],
        task: str,
        constraints: Sequence[str] | Mapping[str, Any] = (),
        *,
        timeout: float | None = None,
        **arguments: Unpack[HandOffFields],
    ) -> models.HandoffView:
        """Hands off and waits for the end.

        Args:
            target: As for `hand_off`.
            task: The receiver's task.
            constraints: `key:value` texts, or a mapping of them.
            timeout: Seconds; without, for as long as it takes.
            arguments: As for `hand_off`.

        Returns:
            The completed handoff, with its `result`.

        Raises:
            HandoffEndedBadlyError: It was rejected, failed, expired, dead-lettered or cancelled.
            WaitTimeoutError: It has not ended in that time; it goes on.
            ProblemError: As for `handoffs.submit`.
            TransportError: The broker did not answer. `handoff_id` names the handoff: `handoffs.wait_ended` waits on.
        """
        sent = await self.hand_off(target, task, constraints, **arguments)
        try:
            ended = await self.handoffs.wait_ended(sent.handoff_id, timeout=timeout)
        except (TransportError, AnswerError) as away:
            away.handoff_id, away.task_id = sent.handoff_id, sent.task_id
            raise
        if ended.status != "COMPLETED":
            words = await self._words(ended.handoff_id, ended.reason)
            raise HandoffEndedBadlyError(ended.handoff_id, ended.status, ended.reason, words)
        return ended

    async def _words(self, handoff_id: str, reason: str | None) -> str | None:
        """The receiver's words about a handoff that ended badly; the failure is told without them if they cannot be read."""
        try:
            return words_of((await self.handoffs.get(handoff_id, include="verdict")).verdict, reason)
        except HandoffdError:
            return None

    async def cancel(self, task_id: str, reason: str, *, grace: float | None = None) -> models.TaskView:
        """Cancels a task: undelivered handoffs are withdrawn, and an agent that works on it may finish within the grace.

        Args:
            task_id: The task.
            reason: Why, in words; kept with the record.
            grace: Seconds that a worker has to finish; the broker's setting unless said.

        Raises:
            ConflictError: The task has ended.
            NotFoundError: No such task, or not the caller's.
        """
        return await self.tasks.cancel(task_id, reason=reason, grace_ms=UNSET if grace is None else round(grace * 1000))

    async def restore(self, task_id: str, execution_id: str, *, seq: int | None = None) -> dict[str, Any] | None:
        """The last checkpoint of a run, or an earlier one; `None` where there is none.

        Args:
            task_id: The task.
            execution_id: The run.
            seq: The checkpoint's number, from 1.
        """
        try:
            return (await self.tasks.checkpoint(task_id, execution_id, seq=seq)).state
        except NotFoundError:
            return None


__all__ = ["AsyncClient", "HandoffStream", "Handoffs", "Tasks"]
