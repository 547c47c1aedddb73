"""Google ADK: a remote agent that waits, runs that survive a crash, a worker that runs an agent.

Install `handoffd[google-adk]`. A transfer is a long-running tool: the invocation pauses, the session's events are committed with
the handoff, and a function response with the handoff's result resumes the invocation, in any process.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.adk.agents import BaseAgent
from google.adk.agents.invocation_context import InvocationContext, LlmCallsLimitExceededError
from google.adk.agents.run_config import RunConfig
from google.adk.apps import App, ResumabilityConfig
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.genai import types

from .._async.client import AsyncClient
from .._sync.client import Client
from ..errors import Fail, Reject
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

FRAMEWORK = "google-adk"
APP = "handoffd"
USER = "handoffd"


class TransferTool(LongRunningFunctionTool):
    """A long-running tool that hands a task to an agent at the broker."""

    def __init__(self, target: str, name: str, description: str) -> None:
        def transfer(task: str, reason: str) -> None:
            """Hands off; the answer comes when the invocation is resumed."""

        transfer.__name__ = name
        super().__init__(transfer)
        self.description = description
        self.target = target


def transfer_tool(target: str, *, name: str | None = None, description: str | None = None) -> TransferTool:
    """The tool by which a model hands off to an agent at the broker. Its invocation is resumed by `run_durably`.

    Args:
        target: As for `Client.hand_off`.
        name: The tool's name; `transfer_to_<target>` unless said.
        description: The description for the model.
    """
    return TransferTool(target, name or transfer_name(target), description or transfer_description(target))


@dataclass(slots=True)
class _Pending:
    """A long-running call without an answer."""

    call: types.FunctionCall
    invocation_id: str


async def run_durably(
    agent: BaseAgent,
    message: str | types.Content,
    *,
    client: AsyncClient,
    run: str,
    session_service: BaseSessionService | None = None,
    run_config: RunConfig | None = None,
    price: Callable[[int, int], float] | None = None,
    budget_usd: float | None = None,
    parent: AsyncHandoff | None = None,
    timeout: float | None = None,
) -> DurableResult:
    """Runs an agent whose transfers go over the broker. Called again with the same `run`, from any process, it goes on where
    the run stopped.

    Args:
        agent: The root agent, with tools of `transfer_tool`, the same in each process.
        message: The user's message; without effect where the run goes on.
        client: The sender's client, with `agent_id`.
        run: The run's name, which is the session's id too.
        session_service: The store of sessions; by default in memory, and then restored from the broker.
        run_config: As for `Runner.run_async`.
        price: US dollars of prompt and completion tokens, for the budget relay; tokens are told in any case.
        budget_usd: The task's budget in US dollars, where the run opens it.
        parent: The handoff under which the run works, where it is a worker's.
        timeout: Seconds to wait for one handoff; without, for as long as it takes.

    Returns:
        As `output` the last final text, as `run` the session. A run that waits for another long-running tool (a confirmation) is
        returned without an output.

    Raises:
        WaitTimeoutError: A handoff has not ended in time; call again later.
        ProblemError: The broker refused a handoff.
    """
    service = session_service or InMemorySessionService()
    app = App(name=APP, root_agent=agent, resumability_config=ResumabilityConfig(is_resumable=True))
    runner = Runner(app=app, session_service=service)
    targets = _targets(agent)
    broker = BrokerRun(client, run, framework=FRAMEWORK, parent=parent, budget_usd=budget_usd, timeout=timeout)
    kept = await broker.load()
    if kept is not None and "output" in kept:
        await broker.finish(kept["output"])
        return DurableResult(kept["output"], None, broker.task_id)

    async def turn(content: types.Content, invocation_id: str | None = None) -> None:
        given: dict[str, Any] = {"run_config": run_config} if run_config else {}
        async for _ in runner.run_async(
            user_id=USER, session_id=broker.run, invocation_id=invocation_id, new_message=content, **given
        ):
            pass

    session = await service.get_session(app_name=APP, user_id=USER, session_id=broker.run)
    if session is None:
        session = await service.create_session(app_name=APP, user_id=USER, session_id=broker.run)
        if kept is not None:
            await _restore(service, session, kept["snapshot"])
    if not session.events:
        content = message if isinstance(message, types.Content) else _user(message)
        await turn(content)
    outcomes: dict[str, Outcome] = {}
    while True:
        session = await service.get_session(app_name=APP, user_id=USER, session_id=broker.run)
        assert session is not None
        waiting = _pending(session.events)
        if not waiting:
            break
        ours = [one for one in waiting if one.call.name in targets]
        if len(ours) < len(waiting):
            return DurableResult(None, session, broker.task_id, outcomes)
        snapshot = {"events": [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in session.events]}
        for place, one in enumerate(ours):
            await broker.hand_off(
                call_of(one.call.id or "", targets[one.call.name or ""], one.call.args or {}),
                snapshot,
                history=_turns(session.events),
                tool_calls=_tool_calls(session.events),
                pending=[each.call.id or "" for each in waiting],
                siblings=len(ours) - place,
                spent=_spent(session.events, price),
            )
        answers: list[types.Part] = []
        for one in ours:
            call_id = one.call.id or ""
            outcome = outcomes[call_id] = await broker.outcome(call_id)
            answer = {"status": outcome.status, "result" if outcome.completed else "error": outcome.text}
            response = types.FunctionResponse(id=call_id, name=one.call.name, response=answer)
            answers.append(types.Part(function_response=response))
        await turn(types.Content(role="user", parts=answers), ours[0].invocation_id)
    output = await broker.output(_output(session.events))
    if parent is not None:
        await broker.relay(parent, _spent(session.events, price))
    await broker.finish(as_json(output))
    return DurableResult(output, session, broker.task_id, outcomes)


def _user(text: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=text)])


def _targets(agent: BaseAgent) -> dict[str, str]:
    """The transfer tools of an agent and of its sub-agents."""
    found = {tool.name: tool.target for tool in getattr(agent, "tools", ()) if isinstance(tool, TransferTool)}
    for child in agent.sub_agents:
        found.update(_targets(child))
    return found


def _pending(events: Sequence[Event]) -> list[_Pending]:
    answered = {one.id for event in events for one in event.get_function_responses()}
    return [
        _Pending(call, event.invocation_id)
        for event in events
        for call in event.get_function_calls()
        if call.id in (event.long_running_tool_ids or ()) and call.id not in answered
    ]


async def _restore(service: BaseSessionService, session: Session, snapshot: Mapping[str, Any]) -> None:
    for one in snapshot["events"]:
        await service.append_event(session, Event.model_validate(one))


def _output(events: Sequence[Event]) -> str:
    """The text of the last final answer of an agent."""
    for event in reversed(events):
        if event.author != "user" and event.is_final_response() and event.content and event.content.parts:
            text = "".join(part.text or "" for part in event.content.parts if not part.thought)
            if text:
                return text
    return ""


def _turns(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Events as turns, a turn a part, verbatim: calls are the assistant's, their responses the tool's."""
    turns: list[dict[str, Any]] = []
    for event in events:
        role = "user" if event.author == "user" else "assistant"
        for part in (event.content.parts if event.content else None) or ():
            if part.text is not None:
                turns.append({"role": role, "content": part.text, "name": event.author})
            elif part.function_response is not None:
                answer = part.function_response
                content = as_json(answer.response) or {}
                turns.append({"role": "tool", "tool_call_id": answer.id or "", "name": answer.name or "", "content": content})
            else:
                content = part.model_dump(mode="json", exclude_none=True)
                turns.append({"role": role, "content": content, "name": event.author})
    return turns


def _tool_calls(events: Sequence[Event]) -> list[dict[str, Any]]:
    outputs = {one.id: as_json(one.response) for event in events for one in event.get_function_responses()}
    return [
        {"tool": call.name, "input": as_json(call.args), "output": outputs[call.id]}
        for event in events
        for call in event.get_function_calls()
        if call.id in outputs
    ]


def _spent(events: Sequence[Event], price: Callable[[int, int], float] | None) -> Spent:
    used = [event.usage_metadata for event in events if event.usage_metadata is not None]
    prompt = sum(one.prompt_token_count or 0 for one in used)
    completion = sum(one.candidates_token_count or 0 for one in used)
    return Spent(round(price(prompt, completion), 9) if price else 0.0, prompt, completion)


class RemoteAgent(BaseAgent):
    """An agent of the broker as a sub-agent: it hands the conversation over, waits, and says the result."""

    client: Any
    """The sender's `AsyncClient`, with `agent_id`."""
    target: str
    """As for `Client.hand_off`."""
    timeout_s: float | None = None
    """Seconds to wait; without, for as long as it takes."""
    raw: bool = False
    """Say the result as JSON, in place of the guarded turn."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        events = ctx.session.events
        asked = next((turn["content"] for turn in reversed(_turns(events)) if turn["role"] == "user"), "")
        outcome = await ask(
            self.client,
            self.target,
            asked if isinstance(asked, str) else "",
            history=_turns(events),
            tool_calls=_tool_calls(events),
            timeout=self.timeout_s,
        )
        content = types.Content(role="model", parts=[types.Part(text=outcome.told(raw=self.raw))])
        yield Event(invocation_id=ctx.invocation_id, author=self.name, branch=ctx.branch, content=content)


def remote_agent(
    client: AsyncClient,
    target: str,
    *,
    name: str | None = None,
    description: str = "",
    timeout: float | None = None,
    raw: bool = False,
) -> RemoteAgent:
    """An agent of the broker, for `sub_agents=[…]`: the process waits for its answer.

    Args:
        client: The sender's client, with `agent_id`.
        target: As for `Client.hand_off`.
        name: The agent's name in this process, an identifier.
        description: The description for other agents' models.
        timeout: Seconds to wait; without, for as long as it takes.
        raw: Say the result as JSON (text as it is), for a person or a program. Unless said it is the guarded turn, because the
            conversation is read by models.
    """
    own = name or transfer_name(target).removeprefix("transfer_to_")
    return RemoteAgent(name=own, description=description, client=client, target=target, timeout_s=timeout, raw=raw)


def agent_worker(
    client: Client | AsyncClient,
    agent: BaseAgent,
    *,
    price: Callable[[int, int], float] | None = None,
    rejections: Mapping[type[Exception], str] | None = None,
    turns: int | None = None,
    accept_within: float = 5.0,
    **options: Any,
) -> Worker:
    """A worker that runs an agent on each handoff: the guarded prompt is the user's message, the last final text the result.

    An exception of `rejections` (raised by a callback or plugin that guards) rejects with its code; after the acceptance it fails
    with it. More model calls than `maxIterations` fail with `MAX_ITERATIONS`, a confirmation that is not given with
    `APPROVAL_REQUIRED`.

    Args:
        client: The agent's client, with `agent_id`.
        agent: The agent that runs.
        price: US dollars of prompt and completion tokens, for the budget relay.
        rejections: Codes by exception.
        turns: Turns of the conversation to show, counted from the end; 5 unless said.
        accept_within: Seconds for which a guardrail may still reject.
        options: As for `Worker`.
    """
    codes = dict(rejections or {})

    async def handler(handoff: AsyncHandoff) -> Completed:
        limit = iterations_of(handoff)
        try:
            done = await run_durably(
                agent,
                await handoff.prompt(turns=turns),
                client=handoff.client,
                run="run",
                run_config=RunConfig(max_llm_calls=limit),
                price=price,
                parent=handoff,
            )
        except LlmCallsLimitExceededError as over:
            raise Fail("MAX_ITERATIONS", f"more than {limit} rounds") from over
        except tuple(codes) as tripped:
            code = next(code for kind, code in codes.items() if isinstance(tripped, kind))
            raise Reject(code, {"guardrail": type(tripped).__name__}) from tripped
        if done.run is None:
            return Completed(done.output)
        if done.output is None:
            raise Fail("APPROVAL_REQUIRED", ", ".join(sorted({one.call.name or "" for one in _pending(done.run.events)})))
        rounds = sum(event.usage_metadata is not None for event in done.run.events)
        return Completed(_result(done.output), iterations=rounds or None)

    return Worker(client, handler, accept_within=accept_within, **options)


def _result(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


__all__ = ["DurableResult", "RemoteAgent", "agent_worker", "remote_agent", "run_durably", "transfer_tool"]
