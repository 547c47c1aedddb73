"""CrewAI: a tool that waits, flows that survive a crash, a worker that runs a crew or a flow.

Install `handoffd[crewai]`. A method of a flow that is decorated with `handoff_to` returns a task. The flow pauses as it does for
a person's feedback, its state is committed with the handoff, and the feedback with which it resumes is the handoff's result.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from crewai import Crew, Flow
from crewai.flow.async_feedback.types import HumanFeedbackPending, PendingFeedbackContext
from crewai.flow.human_feedback import human_feedback
from crewai.flow.persistence.base import FlowPersistence
from crewai.tools import BaseTool
from pydantic import BaseModel, Field, PrivateAttr

from .._async.client import AsyncClient
from .._sync.client import Client
from ..building import derived_id
from ..errors import NotFoundError, Reject
from ..worker import AsyncHandoff, Completed, Worker
from ._core import BrokerRun, DurableResult, Outcome, Spent, as_json, call_of, transfer_description, transfer_name

FRAMEWORK = "crewai"
MARK = "handoffd"
"""The member of a feedback's metadata that makes it a handoff."""
RAW = "handoffd_raw"
"""The member that asks for the result as JSON."""


class _Pausing:
    """A provider of feedback that pauses the flow."""

    def request_feedback(self, context: PendingFeedbackContext, flow: Any) -> str:
        raise HumanFeedbackPending(context=context)


def handoff_to(target: str, *, raw: bool = False) -> Callable[[Any], Any]:
    """Decorates a flow's method: what it returns is handed off, and listeners get the result as `HumanFeedbackResult.feedback`.

    The method returns the task as text, or `{task, reason, history, …}`; other members become `currentState`.

    Args:
        target: As for `Client.hand_off`.
        raw: Listeners get the result as JSON (text as it is), for code that computes with it and gives it to no model. Unless
            said they get the broker's guarded turn. A failure reads the same in both cases.
    """
    return human_feedback(message=f"handoff to {target}", provider=_Pausing(), metadata={MARK: target, RAW: raw})


class _KeptState(FlowPersistence):
    """A flow's state and pending feedback, as JSON, until they are committed with the handoff."""

    states: dict[str, Any] = Field(default_factory=dict)
    pending: dict[str, Any] = Field(default_factory=dict)

    def init_db(self) -> None:
        """Nothing to make."""

    def save_state(self, flow_uuid: str, method_name: str, state_data: dict[str, Any] | BaseModel) -> None:
        """The last state of each flow."""
        self.states[flow_uuid] = as_json(state_data)

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """The last saved state."""
        found: dict[str, Any] | None = self.states.get(flow_uuid)
        return found

    def save_pending_feedback(
        self, flow_uuid: str, context: PendingFeedbackContext, state_data: dict[str, Any] | BaseModel
    ) -> None:
        """State and context of a pause."""
        self.states[flow_uuid] = as_json(state_data)
        self.pending[flow_uuid] = json.loads(json.dumps(context.to_dict(), default=str))

    def load_pending_feedback(self, flow_uuid: str) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        """The same, read back."""
        if flow_uuid not in self.pending:
            return None
        return self.states[flow_uuid], PendingFeedbackContext.from_dict(self.pending[flow_uuid])

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """After the flow has gone on."""
        self.pending.pop(flow_uuid, None)


async def run_durably(
    flow: type[Flow[Any]],
    inputs: Mapping[str, Any] | None = None,
    *,
    client: AsyncClient,
    run: str,
    price: Callable[[int, int], float] | None = None,
    budget_usd: float | None = None,
    parent: AsyncHandoff | None = None,
    timeout: float | None = None,
    **arguments: Any,
) -> DurableResult:
    """Runs a flow whose `handoff_to` methods go over the broker. Called again with the same `run`, from any process, it goes on
    where the run stopped.

    Args:
        flow: The flow's class, the same in each process.
        inputs: As for `kickoff`; without effect where the run goes on.
        client: The sender's client, with `agent_id`.
        run: The run's name.
        price: US dollars of prompt and completion tokens, for the budget relay; tokens are told in any case.
        budget_usd: The task's budget in US dollars, where the run opens it.
        parent: The handoff under which the run works, where it is a worker's.
        timeout: Seconds to wait for one handoff; without, for as long as it takes.
        arguments: For the flow's constructor.

    Returns:
        The flow's output. A flow that waits for a person's feedback is returned with `run` as `HumanFeedbackPending` and without
        an output.

    Raises:
        WaitTimeoutError: A handoff has not ended in time; call again later.
        ProblemError: The broker refused a handoff.
    """
    broker = BrokerRun(client, run, framework=FRAMEWORK, parent=parent, budget_usd=budget_usd, timeout=timeout)
    kept = await broker.load()
    if kept is not None and "output" in kept:
        await broker.finish(kept["output"])
        return DurableResult(kept["output"], None, broker.task_id)
    store, flow_id = _KeptState(), derived_id("flow", broker.run)
    used, call_id = Spent(), ""
    if kept is None:
        instance: Any = flow(persistence=store, **arguments)
        result: Any = await instance.kickoff_async(inputs={"id": flow_id, **(inputs or {})})
        used = _added(used, instance)
        waiting = result.context if isinstance(result, HumanFeedbackPending) else None
    else:
        snapshot = kept["snapshot"]
        store.states[flow_id], store.pending[flow_id] = snapshot["state"], snapshot["pending"]
        used, call_id = Spent(0.0, snapshot["usage"]["prompt"], snapshot["usage"]["completion"]), snapshot["call"]
        waiting = PendingFeedbackContext.from_dict(snapshot["pending"])
        result = None
    outcomes: dict[str, Outcome] = {}
    while waiting is not None:
        target = (waiting.metadata or {}).get(MARK)
        if target is None:
            return DurableResult(None, result, broker.task_id, outcomes)
        call_id = call_id or f"{waiting.method_name}-{len(broker.calls) + 1}"
        wish, history = _wish(waiting.method_output)
        snapshot = {
            "call": call_id,
            "state": store.states[flow_id],
            "pending": store.pending[flow_id],
            "usage": {"prompt": used.prompt_tokens, "completion": used.completion_tokens},
        }
        await broker.hand_off(
            call_of(call_id, target, wish), snapshot, history=history, pending=[call_id], spent=_priced(used, price)
        )
        outcome = outcomes[call_id] = await broker.outcome(call_id)
        call_id = ""
        instance = flow.from_pending(flow_id, store, **arguments)
        result = await instance.resume_async(outcome.told(raw=bool((waiting.metadata or {}).get(RAW))))
        used = _added(used, instance)
        waiting = result.context if isinstance(result, HumanFeedbackPending) else None
    output = await broker.output(_output(result))
    if parent is not None:
        await broker.relay(parent, _priced(used, price))
    await broker.finish(output)
    return DurableResult(output, result, broker.task_id, outcomes)


def _wish(output: Any) -> tuple[dict[str, Any], Sequence[Mapping[str, Any]]]:
    plain = as_json(output)
    if not isinstance(plain, dict):
        return {"task": str(plain)}, ()
    history = plain.pop("history", ())
    return plain, history


def _added(used: Spent, flow: Any) -> Spent:
    metrics = flow.usage_metrics
    return Spent(0.0, used.prompt_tokens + metrics.prompt_tokens, used.completion_tokens + metrics.completion_tokens)


def _priced(used: Spent, price: Callable[[int, int], float] | None) -> Spent:
    usd = round(price(used.prompt_tokens, used.completion_tokens), 9) if price else 0.0
    return Spent(usd, used.prompt_tokens, used.completion_tokens)


def _output(result: Any) -> Any:
    """A crew's structured output where it has one, else its text as JSON where it is JSON."""
    for member in ("pydantic", "json_dict"):
        structured = getattr(result, member, None)
        if structured is not None:
            return as_json(structured)
    raw = getattr(result, "raw", result)
    if isinstance(raw, str):
        try:
            return json.loads(raw)
        except ValueError:
            return raw
    return as_json(raw)


class _TransferArguments(BaseModel):
    task: str = Field(description="The other agent's task, complete in itself.")
    reason: str = Field(description="Why it is handed over.")


class RemoteTool(BaseTool):
    """A tool that hands a task to an agent at the broker and waits: its result is the tool's."""

    name: str = "transfer"
    description: str = ""
    args_schema: type[BaseModel] = _TransferArguments
    target: str = ""
    timeout_s: float | None = None
    """Seconds to wait; without, for as long as it takes."""
    _client: Client = PrivateAttr()

    def _run(self, task: str, reason: str) -> str:
        sent = self._client.hand_off(self.target, task, fields={"returnTo": "source", "reason": reason})
        ended = self._client.handoffs.wait_ended(sent.handoff_id, timeout=self.timeout_s)
        prompt = None
        if ended.status == "COMPLETED":
            with contextlib.suppress(NotFoundError):
                prompt = self._client.handoffs.result_prompt(ended.handoff_id).strip()
        return Outcome(ended.handoff_id, ended.status, ended.result, ended.reason, prompt).text


def remote_tool(client: Client, target: str, *, timeout: float | None = None) -> RemoteTool:
    """The tool for an agent at the broker.

    Args:
        client: The sender's client, with `agent_id`; CrewAI's tools are called on threads, so it is the blocking one.
        target: As for `Client.hand_off`.
        timeout: Seconds to wait; without, for as long as it takes.
    """
    tool = RemoteTool(name=transfer_name(target), description=transfer_description(target), target=target, timeout_s=timeout)
    tool._client = client
    return tool


_tripped: ContextVar[list[str]] = ContextVar("handoffd_tripped")


def rejecting(guardrail: Callable[[Any], tuple[bool, Any]], code: str = "OUTPUT_GUARDRAIL") -> Callable[[Any], tuple[bool, Any]]:
    """A task's guardrail that also rejects the handoff on which the crew works, with this code. CrewAI itself reports a failed
    guardrail as a bare exception, after its retries.

    Args:
        guardrail: As `Task(guardrail=…)` takes it.
        code: A code in capitals, digits and underscores.
    """

    def guarded(output: Any) -> tuple[bool, Any]:
        passed, said = guardrail(output)
        found = _tripped.get([])
        found.clear()
        if not passed:
            found.append(code)
        return passed, said

    guarded.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter("output", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    )
    return guarded


def crew_worker(
    client: Client | AsyncClient,
    crew: Callable[[], Crew] | type[Flow[Any]],
    *,
    price: Callable[[int, int], float] | None = None,
    rejections: Mapping[type[Exception], str] | None = None,
    turns: int | None = None,
    accept_within: float = 5.0,
    **options: Any,
) -> Worker:
    """A worker that runs a crew or a flow on each handoff, with the guarded prompt as the input `prompt`.

    A guardrail of `rejecting` rejects with its code, an exception of `rejections` with its own; after the acceptance both fail
    with it. A flow's own handoffs go over the broker, and survive a crash. `maxIterations` bounds `max_iter` of the crew's
    agents, where the message has one.

    Args:
        client: The agent's client, with `agent_id`.
        crew: Makes a crew for each handoff, or a flow's class.
        price: US dollars of prompt and completion tokens, for the budget relay.
        rejections: Codes by exception.
        turns: Turns of the conversation to show, counted from the end; 5 unless said.
        accept_within: Seconds for which a guardrail may still reject.
        options: As for `Worker`.
    """
    codes = dict(rejections or {})

    async def handler(handoff: AsyncHandoff) -> Completed:
        tripped: list[str] = []
        _tripped.set(tripped)
        inputs = {"prompt": await handoff.prompt(turns=turns)}
        try:
            if inspect.isclass(crew) and issubclass(crew, Flow):
                done = await run_durably(crew, inputs, client=handoff.client, run="run", price=price, parent=handoff)
                return Completed(done.output)
            made: Any = crew()
            limit = handoff.message.get("maxIterations")
            for agent in made.agents if limit else ():
                agent.max_iter = min(agent.max_iter, int(limit or 0))
            output = await asyncio.to_thread(made.kickoff, inputs=inputs)
        except tuple(codes) as stopped:
            code = next(code for kind, code in codes.items() if isinstance(stopped, kind))
            raise Reject(code, {"guardrail": type(stopped).__name__}) from stopped
        except Exception as failed:
            if tripped:
                raise Reject(tripped[-1]) from failed
            raise
        used = output.token_usage
        usd = round(price(used.prompt_tokens, used.completion_tokens), 9) if price else 0.0
        handoff.spend(usd, prompt_tokens=used.prompt_tokens, completion_tokens=used.completion_tokens)
        return Completed(_output(output), iterations=used.successful_requests or None)

    return Worker(client, handler, accept_within=accept_within, **options)


__all__ = ["DurableResult", "RemoteTool", "crew_worker", "handoff_to", "rejecting", "remote_tool", "run_durably"]
