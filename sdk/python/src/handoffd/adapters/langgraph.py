"""LangGraph and LangChain agents: a node that waits, graphs that survive a crash, a worker that runs a graph.

Install `handoffd[langgraph]`. A transfer is a tool that interrupts the graph. The checkpoint of the thread is committed with the
handoff, so a graph with `InMemorySaver` goes on in another process too; with a saver of its own (Postgres, SQLite) the thread
is read from there.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.errors import GraphRecursionError
from langgraph.types import Command, interrupt
from pydantic import BaseModel, Field

from .._async.client import AsyncClient
from .._sync.client import Client
from ..errors import Fail, HandoffdError, Reject
from ..worker import AsyncHandoff, Completed, Worker
from ._core import (
    BrokerRun,
    DurableResult,
    Outcome,
    Spent,
    as_json,
    ask,
    call_of,
    iterations_of,
    transfer_description,
    transfer_name,
)

FRAMEWORK = "langgraph"
MARK = "handoffd"
"""The member of an interrupt's value that makes it a handoff."""
STEPS_PER_ITERATION = 2
"""Steps of a graph in one round of an agent: the model, and its tools."""


class _Transfer(BaseModel):
    task: str = Field(description="The other agent's task, complete in itself.")
    reason: str = Field(description="Why it is handed over.")
    tool_call_id: Annotated[str, InjectedToolCallId]


def transfer_tool(target: str, *, name: str | None = None, description: str | None = None) -> BaseTool:
    """The tool by which a model hands off to an agent at the broker. Its graph is resumed by `run_durably`.

    Args:
        target: As for `Client.hand_off`.
        name: The tool's name; `transfer_to_<target>` unless said.
        description: The description for the model.
    """

    def transfer(task: str, reason: str, tool_call_id: str) -> str:
        arguments = {"task": task, "reason": reason}
        return str(interrupt({MARK: {"callId": tool_call_id, "target": target, "arguments": arguments}}))

    return StructuredTool.from_function(
        func=transfer,
        name=name or transfer_name(target),
        description=description or transfer_description(target),
        args_schema=_Transfer,
    )


async def run_durably(
    graph: Any,
    input: Any,
    *,
    client: AsyncClient,
    run: str,
    config: Mapping[str, Any] | None = None,
    price: Callable[[Mapping[str, int]], float] | None = None,
    budget_usd: float | None = None,
    parent: AsyncHandoff | None = None,
    timeout: float | None = None,
) -> DurableResult:
    """Runs a compiled graph whose transfers go over the broker. Called again with the same `run`, from any process, it goes on
    where the run stopped.

    Args:
        graph: A compiled graph with a checkpointer.
        input: The graph's input; without effect where the run goes on.
        client: The sender's client, with `agent_id`.
        run: The run's name, which is the thread's id too.
        config: As for `ainvoke`.
        price: US dollars of `{input_tokens, output_tokens}`, for the budget relay; tokens are told in any case.
        budget_usd: The task's budget in US dollars, where the run opens it.
        parent: The handoff under which the run works, where it is a worker's.
        timeout: Seconds to wait for one handoff; without, for as long as it takes.

    Returns:
        The graph's state at the end as `run`, and as `output` the text of its last message, or the state where it has none. A run
        that waits for another interrupt is returned with `run` as the state's snapshot and without an output.

    Raises:
        HandoffdError: The graph has no checkpointer.
        WaitTimeoutError: A handoff has not ended in time; call again later.
        ProblemError: The broker refused a handoff.
    """
    saver = getattr(graph, "checkpointer", None)
    if not isinstance(saver, BaseCheckpointSaver):
        raise HandoffdError("a durable run needs a graph that was compiled with a checkpointer")
    broker = BrokerRun(client, run, framework=FRAMEWORK, parent=parent, budget_usd=budget_usd, timeout=timeout)
    kept = await broker.load()
    if kept is not None and "output" in kept:
        await broker.finish(kept["output"])
        return DurableResult(kept["output"], None, broker.task_id)
    given = dict(config or {})
    given["configurable"] = {**given.get("configurable", {}), "thread_id": broker.run}
    state = await graph.aget_state(given)
    if not state.values and kept is not None:
        await _restore(saver, broker, kept["snapshot"])
        state = await graph.aget_state(given)
    if not state.values:
        await graph.ainvoke(input, given)
        state = await graph.aget_state(given)
    elif state.next and not state.interrupts:
        # Stopped between two steps.
        await graph.ainvoke(None, given)
        state = await graph.aget_state(given)
    outcomes: dict[str, Outcome] = {}
    while state.interrupts:
        ours = {one.id: one.value[MARK] for one in state.interrupts if isinstance(one.value, dict) and MARK in one.value}
        if len(ours) < len(state.interrupts):
            return DurableResult(None, state, broker.task_id, outcomes)
        messages = _messages(state.values)
        snapshot = await _snapshot(saver, broker)
        for place, wish in enumerate(ours.values()):
            await broker.hand_off(
                call_of(wish["callId"], wish["target"], wish["arguments"]),
                snapshot,
                history=_turns(messages),
                tool_calls=_tool_calls(messages),
                pending=[one["callId"] for one in ours.values()],
                siblings=len(ours) - place,
                spent=_spent(messages, price),
            )
        answers: dict[str, str] = {}
        for interrupt_id, wish in ours.items():
            outcome = outcomes[wish["callId"]] = await broker.outcome(wish["callId"])
            answers[interrupt_id] = outcome.text
        await graph.ainvoke(Command(resume=answers), given)
        state = await graph.aget_state(given)
    messages = _messages(state.values)
    output = await broker.output(messages[-1].content if messages else as_json(state.values))
    if parent is not None:
        await broker.relay(parent, _spent(messages, price))
    await broker.finish(as_json(output))
    return DurableResult(output, state.values, broker.task_id, outcomes)


def _messages(values: Any) -> list[BaseMessage]:
    found = values.get("messages") if isinstance(values, Mapping) else getattr(values, "messages", None)
    return [one for one in found or [] if isinstance(one, BaseMessage)]


_SERDE = JsonPlusSerializer()


def _packed(value: Any) -> list[str]:
    kind, data = _SERDE.dumps_typed(value)
    return [kind, base64.b64encode(data).decode()]


def _unpacked(value: Sequence[str]) -> Any:
    return _SERDE.loads_typed((value[0], base64.b64decode(value[1])))


async def _snapshot(saver: BaseCheckpointSaver[Any], broker: BrokerRun) -> dict[str, Any]:
    """The thread's newest checkpoint of each namespace, with its pending writes."""
    found: dict[str, Any] = {}
    async for one in saver.alist({"configurable": {"thread_id": broker.run}}):
        namespace = one.config["configurable"].get("checkpoint_ns", "")
        if namespace not in found:
            writes = [list(write) for write in one.pending_writes or []]
            found[namespace] = _packed(broker.folded([one.checkpoint, one.metadata, writes]))
    return {"threads": found}


async def _restore(saver: BaseCheckpointSaver[Any], broker: BrokerRun, snapshot: Mapping[str, Any]) -> None:
    for namespace, packed in snapshot["threads"].items():
        checkpoint, metadata, writes = broker.unfolded(_unpacked(packed))
        config: Any = {"configurable": {"thread_id": broker.run, "checkpoint_ns": namespace}}
        stored = await saver.aput(config, checkpoint, metadata, checkpoint["channel_versions"])
        by_task: dict[str, list[tuple[str, Any]]] = {}
        for task_id, channel, value in writes:
            by_task.setdefault(task_id, []).append((channel, value))
        for task_id, one in by_task.items():
            await saver.aput_writes(stored, one, task_id)


_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


def _turns(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """Messages as turns, verbatim: a model's calls stand beside its text."""
    turns: list[dict[str, Any]] = []
    for one in messages:
        turn: dict[str, Any] = {"role": _ROLES.get(one.type, one.type), "content": as_json(one.content)}
        if isinstance(one, AIMessage) and one.tool_calls:
            turn["tool_calls"] = as_json(one.tool_calls)
        if isinstance(one, ToolMessage):
            turn["tool_call_id"] = one.tool_call_id
        if one.name:
            turn["name"] = one.name
        turns.append(turn)
    return turns


def _tool_calls(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    outputs = {one.tool_call_id: one.text for one in messages if isinstance(one, ToolMessage)}
    return [
        {"tool": call["name"], "input": as_json(call["args"]), "output": outputs[call["id"] or ""]}
        for one in messages
        if isinstance(one, AIMessage)
        for call in one.tool_calls
        if (call["id"] or "") in outputs
    ]


def _spent(messages: Sequence[BaseMessage], price: Callable[[Mapping[str, int]], float] | None) -> Spent:
    used = [one.usage_metadata for one in messages if isinstance(one, AIMessage) and one.usage_metadata]
    total = {name: sum(int(one[name]) for one in used) for name in ("input_tokens", "output_tokens")}
    usd = round(price(total), 9) if price else 0.0
    return Spent(usd, total["input_tokens"], total["output_tokens"])


def remote_node(
    client: AsyncClient, target: str, *, timeout: float | None = None, raw: bool = False
) -> Callable[[Mapping[str, Any]], Any]:
    """A node that hands the conversation to an agent at the broker, waits, and adds its answer to `messages`.

    Args:
        client: The sender's client, with `agent_id`.
        target: As for `Client.hand_off`.
        timeout: Seconds to wait; without, for as long as it takes.
        raw: Say the result as JSON (text as it is), for a person or a program. Unless said it is the guarded turn, because the
            conversation is read by models.
    """

    async def node(state: Mapping[str, Any]) -> dict[str, Any]:
        messages = _messages(state)
        asked = next((one.text for one in reversed(messages) if one.type == "human"), "")
        outcome = await ask(client, target, asked, history=_turns(messages), tool_calls=_tool_calls(messages), timeout=timeout)
        return {"messages": [AIMessage(outcome.told(raw=raw), name=transfer_name(target).removeprefix("transfer_to_"))]}

    return node


def graph_worker(
    client: Client | AsyncClient,
    graph: Any,
    *,
    price: Callable[[Mapping[str, int]], float] | None = None,
    rejections: Mapping[type[Exception], str] | None = None,
    turns: int | None = None,
    accept_within: float = 5.0,
    **options: Any,
) -> Worker:
    """A worker that runs a graph on each handoff: the guarded prompt is its first message, its last message the result.

    More rounds than `maxIterations` fail with `MAX_ITERATIONS`, an interrupt without an answer with `APPROVAL_REQUIRED`. An
    exception of `rejections` (a middleware's, a guardrail's) rejects with its code; after the acceptance it fails with it.

    Args:
        client: The agent's client, with `agent_id`.
        graph: A compiled graph with a checkpointer and `messages` in its state, as `create_agent` makes it.
        price: US dollars of `{input_tokens, output_tokens}`, for the budget relay.
        rejections: Codes by exception; LangChain's `PIIDetectionError` is `INPUT_GUARDRAIL`.
        turns: Turns of the conversation to show, counted from the end; 5 unless said.
        accept_within: Seconds for which a guardrail may still reject.
        options: As for `Worker`.
    """
    codes = {**_guardrails(), **(rejections or {})}

    async def handler(handoff: AsyncHandoff) -> Completed:
        limit = iterations_of(handoff)
        try:
            done = await run_durably(
                graph,
                {"messages": await handoff.prompt_messages(turns=turns)},
                client=handoff.client,
                run="run",
                config={"recursion_limit": limit * STEPS_PER_ITERATION + 1},
                price=price,
                parent=handoff,
            )
        except GraphRecursionError as over:
            raise Fail("MAX_ITERATIONS", f"more than {limit} rounds") from over
        except tuple(codes) as tripped:
            code = next(code for kind, code in codes.items() if isinstance(tripped, kind))
            raise Reject(code, {"guardrail": type(tripped).__name__}) from tripped
        if done.output is None and done.run is not None:
            raise Fail("APPROVAL_REQUIRED", f"{len(done.run.interrupts)} interrupts wait")
        rounds = sum(isinstance(one, AIMessage) for one in _messages(done.run or {}))
        return Completed(_result(done), iterations=rounds or None)

    return Worker(client, handler, accept_within=accept_within, **options)


def _result(done: DurableResult) -> Any:
    """A structured answer where the agent has one, else the last text, as JSON where it is JSON."""
    structured = done.run.get("structured_response") if isinstance(done.run, Mapping) else None
    if structured is not None:
        return as_json(structured)
    if isinstance(done.output, str):
        try:
            return json.loads(done.output)
        except ValueError:
            return done.output
    return as_json(done.output)


def _guardrails() -> dict[type[Exception], str]:
    try:
        from langchain.agents.middleware import PIIDetectionError
    except ImportError:
        return {}
    return {PIIDetectionError: "INPUT_GUARDRAIL"}


__all__ = ["DurableResult", "graph_worker", "remote_node", "run_durably", "transfer_tool"]
