"""Pydantic AI: a tool that waits, runs that survive a crash, a worker that runs an agent.

Install `handoffd[pydantic-ai]`. A transfer is an external tool: the run ends with `DeferredToolRequests`, its messages are
committed with the handoff, and the next run begins with them and the handoff's result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ExternalToolset,
    ModelMessage,
    ModelMessagesTypeAdapter,
    RunContext,
    Tool,
    ToolDefinition,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UsageLimits,
)
from pydantic_ai.exceptions import ContentFilterError
from pydantic_ai.usage import RunUsage

from .._async.client import AsyncClient
from .._sync.client import Client
from ..errors import Fail, Reject
from ..worker import AsyncHandoff, Completed, Worker
from ._core import (
    TRANSFER_PARAMETERS,
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

FRAMEWORK = "pydantic-ai"


def transfer_toolset(*targets: str) -> ExternalToolset[Any]:
    """The tools by which a model hands off to agents at the broker, `transfer_to_<target>` each. `run_durably` resumes the run.

    Args:
        targets: As for `Client.hand_off`.
    """
    return ExternalToolset(
        [
            ToolDefinition(
                name=transfer_name(target),
                description=transfer_description(target),
                parameters_json_schema=TRANSFER_PARAMETERS,
                metadata={"handoffd": target},
            )
            for target in targets
        ]
    )


async def run_durably(
    agent: Agent[Any, Any],
    prompt: str | Sequence[Any],
    *,
    client: AsyncClient,
    run: str,
    targets: Sequence[str],
    deps: Any = None,
    approve: Callable[[Any], bool] | None = None,
    usage_limits: UsageLimits | None = None,
    price: Callable[[RunUsage], float] | None = None,
    budget_usd: float | None = None,
    parent: AsyncHandoff | None = None,
    timeout: float | None = None,
) -> DurableResult:
    """Runs an agent whose transfers go over the broker. Called again with the same `run`, from any process, it goes on where
    the run stopped.

    Args:
        agent: The agent. Its output type need not name `DeferredToolRequests`.
        prompt: The user's prompt; without effect where the run goes on.
        client: The sender's client, with `agent_id`.
        run: The run's name.
        targets: Agents at the broker to which the model may hand off; their tools are added.
        deps: As for `Agent.run`.
        approve: Decides on other tools' approvals. Without, a run that needs one is returned with its requests.
        usage_limits: As for `Agent.run`.
        price: US dollars of a usage, for the budget relay; tokens are told in any case.
        budget_usd: The task's budget in US dollars, where the run opens it.
        parent: The handoff under which the run works, where it is a worker's.
        timeout: Seconds to wait for one handoff; without, for as long as it takes.

    Raises:
        WaitTimeoutError: A handoff has not ended in time; call again later.
        ProblemError: The broker refused a handoff.
        AgentRunError: As for `Agent.run`.
    """
    by_name = {transfer_name(target): target for target in targets}
    broker = BrokerRun(client, run, framework=FRAMEWORK, parent=parent, budget_usd=budget_usd, timeout=timeout)
    kept = await broker.load()
    if kept is not None and "output" in kept:
        await broker.finish(kept["output"])
        return DurableResult(kept["output"], None, broker.task_id)
    given: dict[str, Any] = {
        "toolsets": [transfer_toolset(*targets)],
        "output_type": _output_types(agent),
        "deps": deps,
        "usage_limits": usage_limits,
    }
    outcomes: dict[str, Outcome] = {}
    result: Any = None
    requests: DeferredToolRequests
    usage = RunUsage()
    if kept is None:
        result = await agent.run(prompt, usage=usage, **given)
        messages: list[ModelMessage] = result.all_messages()
    else:
        messages = ModelMessagesTypeAdapter.validate_python(kept["snapshot"]["messages"])
        usage = RunUsage(**kept["snapshot"]["usage"])
    while result is None or isinstance(result.output, DeferredToolRequests):
        requests = result.output if result is not None else _pending(messages, kept or {}, by_name)
        ours = [one for one in requests.calls if one.tool_name in by_name]
        if len(ours) < len(requests.calls) or (requests.approvals and approve is None):
            return DurableResult(None, result, broker.task_id, outcomes)
        plain = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
        snapshot = {
            "messages": plain,
            "usage": _counts(usage),
            "approvals": [one.tool_call_id for one in requests.approvals],
        }
        for place, one in enumerate(ours):
            await broker.hand_off(
                call_of(one.tool_call_id, by_name[one.tool_name], one.args_as_dict()),
                snapshot,
                history=_turns(plain),
                tool_calls=_tool_calls(plain),
                pending=[call.tool_call_id for call in [*ours, *requests.approvals]],
                siblings=len(ours) - place,
                spent=_spent(usage, price),
            )
        results = DeferredToolResults()
        for one in ours:
            outcome = outcomes[one.tool_call_id] = await broker.outcome(one.tool_call_id)
            results.calls[one.tool_call_id] = outcome.text
        for one in requests.approvals:
            results.approvals[one.tool_call_id] = bool(approve and approve(one))
        result = await agent.run(message_history=messages, deferred_tool_results=results, usage=usage, **given)
        messages = result.all_messages()
    if parent is not None:
        await broker.relay(parent, _spent(usage, price))
    output = await broker.output(result.output)
    await broker.finish(as_json(output))
    return DurableResult(output, result, broker.task_id, outcomes)


def _output_types(agent: Agent[Any, Any]) -> list[Any]:
    own = agent.output_type
    types = list(own) if isinstance(own, list | tuple) else [own]
    return types if DeferredToolRequests in types else [*types, DeferredToolRequests]


def _pending(messages: Sequence[ModelMessage], kept: Mapping[str, Any], by_name: Mapping[str, str]) -> DeferredToolRequests:
    """The requests with which the kept run ended: the calls of its last message that have no answer."""
    approvals = set((kept.get("snapshot") or {}).get("approvals") or ())
    calls = [part for part in messages[-1].parts if part.part_kind == "tool-call"]
    if not calls and len(messages) > 1:
        # Answers of tools that did run stand behind them.
        answered = {getattr(part, "tool_call_id", None) for part in messages[-1].parts}
        before = [part for part in messages[-2].parts if part.part_kind == "tool-call"]
        calls = [part for part in before if part.tool_call_id not in answered]
    return DeferredToolRequests(
        calls=[part for part in calls if part.tool_call_id not in approvals and part.tool_name in by_name],
        approvals=[part for part in calls if part.tool_call_id in approvals],
    )


def _counts(usage: RunUsage) -> dict[str, int]:
    return {name: int(getattr(usage, name)) for name in ("requests", "tool_calls", "input_tokens", "output_tokens")}


def _spent(usage: RunUsage, price: Callable[[RunUsage], float] | None) -> Spent:
    return Spent(round(price(usage), 9) if price else 0.0, usage.input_tokens, usage.output_tokens)


_ROLES = {"system-prompt": "system", "user-prompt": "user", "tool-return": "tool", "retry-prompt": "tool"}


def _turns(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as turns, a turn a part, verbatim: calls are the assistant's, their returns the tool's."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        for part in message["parts"]:
            kind = part.get("part_kind", "")
            role = _ROLES.get(kind, "assistant" if message.get("kind") == "response" else "user")
            if kind in ("text", "user-prompt", "system-prompt", "tool-return"):
                content = part.get("content")
                turn: dict[str, Any] = {
                    "role": role,
                    "content": content if isinstance(content, str | list | dict) else json.dumps(content),
                }
            else:
                turn = {"role": role, "content": dict(part)}
            if role == "tool" and part.get("tool_call_id"):
                turn["tool_call_id"], turn["name"] = part["tool_call_id"], str(part.get("tool_name") or "")
            turns.append(turn)
    return turns


def _tool_calls(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    parts = [part for message in messages for part in message["parts"]]
    outputs = {part["tool_call_id"]: part.get("content") for part in parts if part.get("part_kind") == "tool-return"}
    return [
        {"tool": part["tool_name"], "input": part.get("args"), "output": outputs[part["tool_call_id"]]}
        for part in parts
        if part.get("part_kind") == "tool-call" and part.get("tool_call_id") in outputs
    ]


def remote_tool(client: AsyncClient, target: str, *, timeout: float | None = None) -> Tool[Any]:
    """A tool that hands a task to an agent at the broker and waits: its result is the tool's.

    Args:
        client: The sender's client, with `agent_id`.
        target: As for `Client.hand_off`.
        timeout: Seconds to wait; without, for as long as it takes.
    """

    async def transfer(context: RunContext[Any], task: str, reason: str) -> Any:
        plain = ModelMessagesTypeAdapter.dump_python(list(context.messages), mode="json")
        outcome = await ask(
            client,
            target,
            task,
            history=_turns(plain),
            tool_calls=_tool_calls(plain),
            timeout=timeout,
            fields={"reason": reason},
        )
        return outcome.text

    return Tool(transfer, name=transfer_name(target), description=transfer_description(target), takes_ctx=True)


def agent_worker(
    client: Client | AsyncClient,
    agent: Agent[Any, Any],
    *,
    targets: Sequence[str] = (),
    deps: Any = None,
    approve: Callable[[Any], bool] | None = None,
    price: Callable[[RunUsage], float] | None = None,
    rejections: Mapping[type[Exception], str] | None = None,
    turns: int | None = None,
    accept_within: float = 5.0,
    **options: Any,
) -> Worker:
    """A worker that runs an agent on each handoff: the guarded prompt is its user prompt, its output the result.

    A provider's content filter rejects with `CONTENT_FILTER`, an exception of `rejections` with its code (after the acceptance
    both fail with it). More rounds than `maxIterations` fail with `MAX_ITERATIONS`, an answer that does not pass the agent's
    validation with `MODEL_BEHAVIOR`, an approval that is not given with `APPROVAL_REQUIRED`.

    Args:
        client: The agent's client, with `agent_id`.
        agent: The agent that runs.
        targets: Agents at the broker to which the model may hand off.
        deps: As for `Agent.run`.
        approve: Decides on tools' approvals.
        price: US dollars of a usage, for the budget relay.
        rejections: Codes by exception, for guardrails.
        turns: Turns of the conversation to show, counted from the end; 5 unless said.
        accept_within: Seconds for which a guardrail may still reject.
        options: As for `Worker`.
    """
    codes: dict[type[Exception], str] = {ContentFilterError: "CONTENT_FILTER", **(rejections or {})}

    async def handler(handoff: AsyncHandoff) -> Completed:
        limit = iterations_of(handoff)
        try:
            done = await run_durably(
                agent,
                await handoff.prompt(turns=turns),
                client=handoff.client,
                run="run",
                targets=targets,
                deps=deps,
                approve=approve,
                usage_limits=UsageLimits(request_limit=limit),
                price=price,
                parent=handoff,
            )
        except tuple(codes) as tripped:
            code = next(code for kind, code in codes.items() if isinstance(tripped, kind))
            raise Reject(code, {"guardrail": type(tripped).__name__}) from tripped
        except UsageLimitExceeded as over:
            raise Fail("MAX_ITERATIONS", f"more than {limit} rounds") from over
        except UnexpectedModelBehavior as odd:
            raise Fail("MODEL_BEHAVIOR", str(odd)[:200]) from odd
        if done.run is None:
            return Completed(done.output)
        if done.output is None and isinstance(done.run.output, DeferredToolRequests):
            waiting = [*done.run.output.calls, *done.run.output.approvals]
            raise Fail("APPROVAL_REQUIRED", ", ".join(sorted({one.tool_name for one in waiting})))
        rounds = sum(message.kind == "response" for message in done.run.all_messages())
        return Completed(as_json(done.output), iterations=rounds or None)

    return Worker(client, handler, accept_within=accept_within, **options)


__all__ = ["DurableResult", "agent_worker", "remote_tool", "run_durably", "transfer_toolset"]
