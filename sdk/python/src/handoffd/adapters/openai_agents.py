"""OpenAI Agents: a remote agent that waits, runs that survive a crash, a worker that runs an agent.

Install `handoffd[openai-agents]`. An approval that is pending is the SDK's own way to suspend a run (`RunState`), so a transfer
to an agent at the broker is a tool that needs one: the run stops, its state is committed with the handoff, and the approval is
the handoff's result.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ModelResponse,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    RunState,
    TResponseInputItem,
    Usage,
)
from agents.models.interface import Model
from agents.tool_context import ToolContext
from agents.tracing import get_current_span, get_current_trace
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from .._async.client import AsyncClient
from .._sync.client import Client
from ..building import new_traceparent
from ..errors import Fail, Reject
from ..worker import AsyncHandoff, Completed, Worker
from ._core import (
    TRANSFER_PARAMETERS,
    BrokerRun,
    Call,
    DurableResult,
    Outcome,
    Spent,
    as_json,
    ask,
    call_of,
    iterations_of,
    trace_id_of,
    transfer_description,
    transfer_name,
)

FRAMEWORK = "openai-agents"

_outcomes: ContextVar[dict[str, Outcome]] = ContextVar("handoffd_outcomes")


class TransferTool(FunctionTool):
    """A tool that hands a task to an agent at the broker."""

    target: str | Mapping[str, Any]


def transfer_tool(target: str, *, name: str | None = None, description: str | None = None) -> FunctionTool:
    """The tool by which a model hands off to an agent at the broker. Its run is resumed by `run_durably`.

    Args:
        target: As for `Client.hand_off`.
        name: The tool's name; `transfer_to_<target>` unless said.
        description: The description for the model.
    """

    async def invoke(context: ToolContext[Any], _: str) -> str:
        outcome = _outcomes.get({}).get(context.tool_call_id)
        if outcome is None:
            return "The handoff was not made: run the agent with handoffd.adapters.openai_agents.run_durably."
        return outcome.text

    tool = TransferTool(
        name=name or transfer_name(target),
        description=description or transfer_description(target),
        params_json_schema=TRANSFER_PARAMETERS,
        on_invoke_tool=invoke,
        needs_approval=True,
    )
    tool.target = target
    return tool


async def run_durably(
    agent: Agent[Any],
    input: str | list[TResponseInputItem],
    *,
    client: AsyncClient,
    run: str,
    run_config: RunConfig | None = None,
    max_turns: int = 15,
    approve: Callable[[Any], bool] | None = None,
    price: Callable[[Usage], float] | None = None,
    budget_usd: float | None = None,
    parent: AsyncHandoff | None = None,
    timeout: float | None = None,
) -> DurableResult:
    """Runs an agent whose transfers go over the broker. Called again with the same `run`, from any process, it goes on where
    the run stopped: from the state that was committed with its last handoff, with that handoff's result.

    Args:
        agent: The agent, with tools of `transfer_tool`, the same in each process.
        input: The run's input; without effect where the run goes on.
        client: The sender's client, with `agent_id`.
        run: The run's name.
        run_config: As for `Runner.run`.
        max_turns: As for `Runner.run`.
        approve: Decides on other tools' approvals. Without, a run that needs one is returned with its interruptions.
        price: US dollars of a usage, for the budget relay; tokens are told in any case.
        budget_usd: The task's budget in US dollars, where the run opens it.
        parent: The handoff under which the run works, where it is a worker's.
        timeout: Seconds to wait for one handoff; without, for as long as it takes.

    Raises:
        WaitTimeoutError: A handoff has not ended in time; call again later.
        ProblemError: The broker refused a handoff.
        AgentsException: As for `Runner.run`.
    """
    targets = _targets(agent)
    broker = BrokerRun(client, run, framework=FRAMEWORK, parent=parent, budget_usd=budget_usd, timeout=timeout)
    kept = await broker.load()
    if kept is not None and "output" in kept:
        await broker.finish(kept["output"])
        return DurableResult(kept["output"], None, broker.task_id)
    outcomes: dict[str, Outcome] = {}
    token = _outcomes.set(outcomes)
    try:
        state: RunState[Any, Agent[Any]]
        if kept is None:
            result: Any = await Runner.run(agent, input, run_config=run_config, max_turns=max_turns)
            interruptions = result.interruptions
            state = result.to_state()
        else:
            result = None
            state = await RunState.from_json(agent, kept["snapshot"])
            interruptions = state.get_interruptions()
        while interruptions:
            ours = [one for one in interruptions if one.tool_name in targets]
            others = [one for one in interruptions if one.tool_name not in targets]
            if others and approve is None:
                return DurableResult(None, result, broker.task_id, outcomes)
            snapshot = _with_history(state.to_json(), result)
            calls = [_call(one, targets) for one in ours]
            for place, call in enumerate(calls):
                await broker.hand_off(
                    call,
                    snapshot,
                    history=_turns(snapshot["handoffd_history"]),
                    tool_calls=_tool_calls(snapshot["handoffd_history"]),
                    pending=[one.call_id or "" for one in interruptions],
                    siblings=len(calls) - place,
                    spent=_spent(snapshot, price),
                    traceparent=_traceparent(state, parent),
                )
            for one, call in zip(ours, calls, strict=True):
                outcome = outcomes[call.call_id] = await broker.outcome(call.call_id)
                if outcome.completed:
                    state.approve(one)
                else:
                    state.reject(one, rejection_message=outcome.text)
            for one in others:
                if approve is not None and approve(one):
                    state.approve(one)
                else:
                    state.reject(one)
            result = await Runner.run(agent, state, run_config=run_config, max_turns=max_turns)
            interruptions = result.interruptions
            state = result.to_state()
        if parent is not None:
            await broker.relay(parent, _spent(state.to_json(), price))
        output = await broker.output(result.final_output)
        await broker.finish(as_json(output))
        return DurableResult(output, result, broker.task_id, outcomes)
    finally:
        _outcomes.reset(token)


def _targets(agent: Agent[Any]) -> dict[str, str | Mapping[str, Any]]:
    """The transfer tools of an agent and of those that it hands off to within the process."""
    found: dict[str, str | Mapping[str, Any]] = {}
    seen: set[int] = set()
    waiting: list[Any] = [agent]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or not isinstance(one, Agent):
            continue
        seen.add(id(one))
        found.update({tool.name: tool.target for tool in one.tools if isinstance(tool, TransferTool)})
        waiting.extend(one.handoffs)
    return found


def _call(item: Any, targets: Mapping[str, str | Mapping[str, Any]]) -> Call:
    arguments = json.loads(item.arguments or "{}")
    return call_of(item.call_id or item.tool_name, targets[item.tool_name], arguments)


def _with_history(snapshot: dict[str, Any], result: Any) -> dict[str, Any]:
    """The snapshot with the conversation as input items, which a resumed process cannot compute from the state alone."""
    if result is not None:
        snapshot["handoffd_history"] = json.loads(json.dumps(result.to_input_list(), default=str))
    else:
        snapshot.setdefault("handoffd_history", [])
    return snapshot


def _turns(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Input items as turns: messages by their roles, calls as the assistant's, outputs as the tool's; all of it verbatim."""
    turns: list[dict[str, Any]] = []
    for item in items:
        kind = item.get("type", "message")
        if "role" in item:
            turns.append({"role": item["role"], "content": item.get("content") or ""})
        elif kind.endswith("_output"):
            output = item.get("output")
            turns.append(
                {
                    "role": "tool",
                    "tool_call_id": str(item.get("call_id", "")),
                    "content": output if isinstance(output, str | list | dict) else json.dumps(output),
                }
            )
        else:
            turns.append({"role": "assistant", "content": dict(item)})
    return turns


def _tool_calls(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    outputs = {item.get("call_id"): item.get("output") for item in items if item.get("type") == "function_call_output"}
    return [
        {"tool": item["name"], "input": item.get("arguments"), "output": outputs.get(item.get("call_id"))}
        for item in items
        if item.get("type") == "function_call" and item.get("call_id") in outputs
    ]


def _spent(snapshot: Mapping[str, Any], price: Callable[[Usage], float] | None) -> Spent:
    usage = (snapshot.get("context") or {}).get("usage") or {}
    prompt, completion = int(usage.get("input_tokens") or 0), int(usage.get("output_tokens") or 0)
    counted = Usage(requests=int(usage.get("requests") or 0), input_tokens=prompt, output_tokens=completion)
    counted.total_tokens = prompt + completion
    return Spent(round(price(counted), 9) if price else 0.0, prompt, completion)


def _traceparent(state: Any, parent: AsyncHandoff | None) -> str | None:
    """The run's own trace: `trace_<32 hex>` is a W3C trace id already."""
    trace = get_current_trace() or getattr(state, "_trace_state", None)
    trace_id = str(getattr(trace, "trace_id", "") or "").removeprefix("trace_")
    if len(trace_id) != 32 or trace_id == "0" * 32 or any(c not in "0123456789abcdef" for c in trace_id):
        return parent.traceparent if parent else None
    span = get_current_span()
    span_id = str(getattr(span, "span_id", "") or "").removeprefix("span_")[:16]
    if len(span_id) != 16 or span_id == "0" * 16:
        span_id = new_traceparent().split("-")[2]
    return f"00-{trace_id}-{span_id}-01"


class BrokerModel(Model):
    """The model of a remote agent: it hands the conversation to an agent at the broker, and its answer is the result."""

    def __init__(self, client: AsyncClient, target: str, *, timeout: float | None = None, raw: bool = False) -> None:
        self._client, self._target, self._timeout, self._raw = client, target, timeout, raw

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        *_: Any,
        **__: Any,
    ) -> ModelResponse:
        """Hands off and waits."""
        items: list[Any] = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        plain = json.loads(json.dumps(items, default=str))
        said = next((one.get("content") for one in reversed(plain) if one.get("role") == "user"), "")
        task = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
        outcome = await ask(
            self._client,
            self._target,
            task,
            history=_turns(plain),
            tool_calls=_tool_calls(plain),
            timeout=self._timeout,
            traceparent=_traceparent(None, None),
        )
        text = ResponseOutputText(text=outcome.told(raw=self._raw), type="output_text", annotations=[])
        message = ResponseOutputMessage(
            id=outcome.handoff_id, type="message", role="assistant", status="completed", content=[text]
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Not offered: a handoff ends with one result."""
        raise NotImplementedError("a remote agent does not stream; use Runner.run")
        yield


def remote_agent(
    client: AsyncClient, target: str, *, name: str | None = None, timeout: float | None = None, raw: bool = False
) -> Agent[Any]:
    """An agent of the broker as an ordinary `Agent`, for `handoffs=[…]`: the process waits for its answer.

    Args:
        client: The sender's client, with `agent_id`.
        target: As for `Client.hand_off`.
        name: The agent's name in this process.
        timeout: Seconds to wait; without, for as long as it takes.
        raw: Say the result as JSON (text as it is), for a person or a program. Unless said it is the guarded turn, because the
            conversation is read by models.
    """
    return Agent(name=name or target, model=BrokerModel(client, target, timeout=timeout, raw=raw))


def agent_worker(
    client: Client | AsyncClient,
    agent: Agent[Any],
    *,
    run_config: RunConfig | None = None,
    price: Callable[[Usage], float] | None = None,
    approve: Callable[[Any], bool] | None = None,
    turns: int | None = None,
    accept_within: float = 5.0,
    **options: Any,
) -> Worker:
    """A worker that runs an agent on each handoff: the guarded prompt is its input, its final output the result.

    A tripwire of an input guardrail rejects with `INPUT_GUARDRAIL`, of an output guardrail with `OUTPUT_GUARDRAIL` (after the
    acceptance both fail with that code); more rounds than `maxIterations` fail with `MAX_ITERATIONS`, an answer that the agent
    cannot read with `MODEL_BEHAVIOR`, an approval that is not given with `APPROVAL_REQUIRED`. Transfers of the agent to
    others go over the broker, and survive a crash.

    Args:
        client: The agent's client, with `agent_id`.
        agent: The agent that runs.
        run_config: As for `Runner.run`; its trace is the sender's.
        price: US dollars of a usage, for the budget relay.
        approve: Decides on tools' approvals.
        turns: Turns of the conversation to show, counted from the end; 5 unless said.
        accept_within: Seconds for which a guardrail may still reject.
        options: As for `Worker`.
    """

    async def handler(handoff: AsyncHandoff) -> Completed:
        config = run_config or RunConfig()
        trace_id = trace_id_of(handoff.traceparent)
        if trace_id:
            # The given one serves every handoff.
            config = replace(config, trace_id=f"trace_{trace_id}", group_id=handoff.task_id)
        messages: list[Any] = list(await handoff.prompt_messages(turns=turns))
        limit = iterations_of(handoff)
        try:
            done = await run_durably(
                agent,
                messages,
                client=handoff.client,
                run="run",
                run_config=config,
                max_turns=limit,
                approve=approve,
                price=price,
                parent=handoff,
            )
        except InputGuardrailTripwireTriggered as tripped:
            raise Reject("INPUT_GUARDRAIL", {"guardrail": tripped.guardrail_result.guardrail.get_name()}) from tripped
        except OutputGuardrailTripwireTriggered as tripped:
            raise Reject("OUTPUT_GUARDRAIL", {"guardrail": tripped.guardrail_result.guardrail.get_name()}) from tripped
        except MaxTurnsExceeded as over:
            raise Fail("MAX_ITERATIONS", f"more than {limit} rounds") from over
        except ModelBehaviorError as odd:
            raise Fail("MODEL_BEHAVIOR", str(odd)[:200]) from odd
        if done.run is None:
            return Completed(done.output)
        if done.run.interruptions:
            names = ", ".join(sorted({one.tool_name or "" for one in done.run.interruptions}))
            raise Fail("APPROVAL_REQUIRED", names)
        return Completed(as_json(done.output), iterations=len(done.run.raw_responses) or None)

    return Worker(client, handler, accept_within=accept_within, **options)


__all__ = ["BrokerModel", "DurableResult", "agent_worker", "remote_agent", "run_durably", "transfer_tool"]
