"""Microsoft Agent Framework: a remote agent that waits, runs that survive a crash, a worker that runs an agent.

Install `handoffd[agent-framework]`. A transfer is a tool that needs an approval: the run ends with the request, its messages are
committed with the handoff, and the next run begins with them and the approval, whose effect is the handoff's result.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from agent_framework import (
    Agent,
    AgentResponse,
    AgentSession,
    BaseAgent,
    ChatContext,
    ChatMiddleware,
    Content,
    FunctionInvocationContext,
    FunctionTool,
    Message,
    MiddlewareFailure,
)
from agent_framework.exceptions import AgentContentFilterException, ChatClientContentFilterException

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

FRAMEWORK = "agent-framework"

_outcomes: ContextVar[dict[str, Outcome]] = ContextVar("handoffd_outcomes")


class TransferTool(FunctionTool):
    """A tool that hands a task to an agent at the broker."""

    target: str


def transfer_tool(target: str, *, name: str | None = None, description: str | None = None) -> TransferTool:
    """The tool by which a model hands off to an agent at the broker. Its run is resumed by `run_durably`.

    Args:
        target: As for `Client.hand_off`.
        name: The tool's name; `transfer_to_<target>` unless said.
        description: The description for the model.
    """

    async def transfer(task: str, reason: str, ctx: FunctionInvocationContext) -> str:
        found, key = _outcomes.get({}), _key(name or transfer_name(target), {"task": task, "reason": reason})
        outcome = found.get(str(ctx.metadata.get("call_id"))) or found.get(key)
        if outcome is None:
            return "The handoff was not made: run the agent with handoffd.adapters.agent_framework.run_durably."
        return outcome.text

    tool = TransferTool(
        func=transfer,
        name=name or transfer_name(target),
        description=description or transfer_description(target),
        approval_mode="always_require",
        input_model=TRANSFER_PARAMETERS,
    )
    tool.target = target
    return tool


def _key(name: str, arguments: Mapping[str, Any]) -> str:
    """A call by its arguments, where the framework does not tell its function the call's id."""
    return json.dumps([name, arguments], sort_keys=True)


async def run_durably(
    agent: Agent[Any],
    messages: str | Sequence[Message],
    *,
    client: AsyncClient,
    run: str,
    approve: Callable[[Content], bool] | None = None,
    middleware: Sequence[Any] = (),
    price: Callable[[int, int], float] | None = None,
    budget_usd: float | None = None,
    parent: AsyncHandoff | None = None,
    timeout: float | None = None,
) -> DurableResult:
    """Runs an agent whose transfers go over the broker. Called again with the same `run`, from any process, it goes on where
    the run stopped.

    Args:
        agent: The agent, with tools of `transfer_tool`, the same in each process; its chat client keeps no history of its own.
        messages: The run's input; without effect where the run goes on.
        client: The sender's client, with `agent_id`.
        run: The run's name.
        approve: Decides on other tools' approvals. Without, a run that needs one is returned with its requests.
        middleware: As for `Agent.run`.
        price: US dollars of prompt and completion tokens, for the budget relay; tokens are told in any case.
        budget_usd: The task's budget in US dollars, where the run opens it.
        parent: The handoff under which the run works, where it is a worker's.
        timeout: Seconds to wait for one handoff; without, for as long as it takes.

    Raises:
        WaitTimeoutError: A handoff has not ended in time; call again later.
        ProblemError: The broker refused a handoff.
        AgentFrameworkException: As for `Agent.run`.
    """
    targets = _targets(agent)
    broker = BrokerRun(client, run, framework=FRAMEWORK, parent=parent, budget_usd=budget_usd, timeout=timeout)
    kept = await broker.load()
    if kept is not None and "output" in kept:
        await broker.finish(kept["output"])
        return DurableResult(kept["output"], None, broker.task_id)
    outcomes: dict[str, Outcome] = {}
    by_key: dict[str, Outcome] = {}
    token = _outcomes.set(by_key)
    response: Any = None
    try:
        if kept is None:
            # An approval counts only in the session that holds its request: the session is what is kept.
            session = AgentSession(session_id=broker.run)
            history = [Message("user", [messages])] if isinstance(messages, str) else list(messages)
            used = Spent()
            response = await agent.run(history, session=session, middleware=list(middleware))
            history, used = [*history, *response.messages], _added(used, response)
        else:
            session = AgentSession.from_dict(kept["snapshot"]["session"])
            history = [Message.from_dict(one) for one in kept["snapshot"]["messages"]]
            counts = kept["snapshot"]["usage"]
            used = Spent(0.0, counts["prompt"], counts["completion"])
        while requests := _requests(history):
            ours = [one for one in requests if _call(one).name in targets]
            others = [one for one in requests if _call(one).name not in targets]
            if others and approve is None:
                return DurableResult(None, response, broker.task_id, outcomes)
            snapshot = {
                "session": json.loads(json.dumps(session.to_dict())),
                "messages": [as_plain(one) for one in history],
                "usage": {"prompt": used.prompt_tokens, "completion": used.completion_tokens},
            }
            for place, one in enumerate(ours):
                call = _call(one)
                await broker.hand_off(
                    call_of(call.call_id or "", targets[call.name or ""], call.parse_arguments() or {}),
                    snapshot,
                    history=_turns(history),
                    tool_calls=_tool_calls(history),
                    pending=[_call(each).call_id or "" for each in requests],
                    siblings=len(ours) - place,
                    spent=_priced(used, price),
                )
            answers = []
            for one in ours:
                call = _call(one)
                outcome = outcomes[call.call_id or ""] = await broker.outcome(call.call_id or "")
                by_key[call.call_id or ""] = by_key[_key(call.name or "", call.parse_arguments() or {})] = outcome
                answers.append(one.to_function_approval_response(True))
            answers += [one.to_function_approval_response(bool(approve and approve(one))) for one in others]
            answer = Message("user", answers)
            response = await agent.run([answer], session=session, middleware=list(middleware))
            history, used = [*history, answer, *response.messages], _added(used, response)
        output = response.value if response is not None and response.value is not None else await broker.output(_text(history))
        if parent is not None:
            await broker.relay(parent, _priced(used, price))
        await broker.finish(as_json(output))
        return DurableResult(output, response, broker.task_id, outcomes)
    finally:
        _outcomes.reset(token)


def _targets(agent: Agent[Any]) -> dict[str, str]:
    tools = (getattr(agent, "default_options", None) or {}).get("tools") or ()
    return {tool.name: tool.target for tool in tools if isinstance(tool, TransferTool)}


def _call(request: Content) -> Content:
    assert request.function_call is not None
    return request.function_call


def _requests(history: Sequence[Message]) -> list[Content]:
    """Approval requests of the last messages that have no response."""
    contents = [content for message in history for content in message.contents]
    answered = {content.id for content in contents if content.type == "function_approval_response"}
    return [one for one in contents if one.type == "function_approval_request" and one.id not in answered]


def as_plain(message: Message) -> dict[str, Any]:
    """A message as JSON."""
    return json.loads(json.dumps(message.to_dict(), default=str))  # type: ignore[no-any-return]


def _text(history: Sequence[Message]) -> str:
    return next((one.text for one in reversed(history) if one.role == "assistant" and one.text), "")


def _added(used: Spent, response: AgentResponse[Any]) -> Spent:
    usage: Mapping[str, Any] = response.usage_details or {}
    prompt, completion = (int(usage.get(name) or 0) for name in ("input_token_count", "output_token_count"))
    return Spent(0.0, used.prompt_tokens + prompt, used.completion_tokens + completion)


def _priced(used: Spent, price: Callable[[int, int], float] | None) -> Spent:
    usd = round(price(used.prompt_tokens, used.completion_tokens), 9) if price else 0.0
    return Spent(usd, used.prompt_tokens, used.completion_tokens)


def _turns(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as turns, a turn a content, verbatim: calls are the assistant's, their results the tool's."""
    turns: list[dict[str, Any]] = []
    for message in history:
        for content in message.contents:
            if content.type == "text":
                turns.append({"role": message.role, "content": content.text or ""})
            elif content.type == "function_result":
                result = content.result
                said = result if isinstance(result, str | list | dict) else json.dumps(result, default=str)
                turns.append({"role": "tool", "tool_call_id": content.call_id or "", "content": as_json(said)})
            else:
                plain = json.loads(json.dumps(content.to_dict(), default=str))
                turns.append({"role": message.role, "content": plain})
    return turns


def _tool_calls(history: Sequence[Message]) -> list[dict[str, Any]]:
    contents = [content for message in history for content in message.contents]
    outputs = {one.call_id: one.result for one in contents if one.type == "function_result"}
    return [
        {"tool": one.name, "input": as_json(one.parse_arguments()), "output": as_json(outputs[one.call_id])}
        for one in contents
        if one.type == "function_call" and one.call_id in outputs
    ]


class RemoteAgent(BaseAgent):
    """An agent of the broker as an agent of this process: it hands the messages over, waits, and says the result.

    Args:
        client: The sender's client, with `agent_id`.
        target: As for `Client.hand_off`.
        name: The agent's name in this process.
        timeout: Seconds to wait; without, for as long as it takes.
        raw: Say the result as JSON (text as it is), for a person or a program. Unless said it is the guarded turn, because the
            conversation is read by models.
    """

    def __init__(
        self, client: AsyncClient, target: str, *, name: str | None = None, timeout: float | None = None, raw: bool = False
    ) -> None:
        super().__init__(name=name or target)
        self._broker, self._target, self._timeout, self._raw = client, target, timeout, raw

    async def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **_: Any) -> AgentResponse[Any]:
        """Hands off and waits. Streaming is not offered: a handoff ends with one result."""
        if stream:
            raise NotImplementedError("a remote agent does not stream")
        given = messages if isinstance(messages, list | tuple) else [messages]
        history = [one if isinstance(one, Message) else Message("user", [str(one)]) for one in given if one is not None]
        asked = next((one.text for one in reversed(history) if one.role == "user" and one.text), "")
        outcome = await ask(
            self._broker,
            self._target,
            asked,
            history=_turns(history),
            tool_calls=_tool_calls(history),
            timeout=self._timeout,
        )
        said = Message("assistant", [outcome.told(raw=self._raw)], author_name=self.name)
        return AgentResponse(messages=[said], response_id=outcome.handoff_id)


class TooManyRounds(MiddlewareFailure):
    """The model was asked more often than the handoff allows."""


class _Rounds(ChatMiddleware):
    """Counts a run's model calls."""

    def __init__(self, limit: int) -> None:
        self.limit, self.count = limit, 0

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        self.count += 1
        if self.count > self.limit:
            raise TooManyRounds(f"more than {self.limit} rounds")
        await call_next()


def agent_worker(
    client: Client | AsyncClient,
    agent: Agent[Any],
    *,
    approve: Callable[[Content], bool] | None = None,
    price: Callable[[int, int], float] | None = None,
    rejections: Mapping[type[Exception], str] | None = None,
    turns: int | None = None,
    accept_within: float = 5.0,
    **options: Any,
) -> Worker:
    """A worker that runs an agent on each handoff: the guarded prompt is the user's message, its text or value the result.

    A provider's content filter rejects with `CONTENT_FILTER`, an exception of `rejections` (a middleware that guards) with its
    code; after the acceptance both fail with it. More rounds than `maxIterations` fail with `MAX_ITERATIONS`, an approval that
    is not given with `APPROVAL_REQUIRED`.

    Args:
        client: The agent's client, with `agent_id`.
        agent: The agent that runs.
        approve: Decides on tools' approvals.
        price: US dollars of prompt and completion tokens, for the budget relay.
        rejections: Codes by exception.
        turns: Turns of the conversation to show, counted from the end; 5 unless said.
        accept_within: Seconds for which a guardrail may still reject.
        options: As for `Worker`.
    """
    codes: dict[type[Exception], str] = {
        AgentContentFilterException: "CONTENT_FILTER",
        ChatClientContentFilterException: "CONTENT_FILTER",
        **(rejections or {}),
    }

    async def handler(handoff: AsyncHandoff) -> Completed:
        rounds = _Rounds(iterations_of(handoff))
        try:
            done = await run_durably(
                agent,
                await handoff.prompt(turns=turns),
                client=handoff.client,
                run="run",
                approve=approve,
                middleware=[rounds],
                price=price,
                parent=handoff,
            )
        except TooManyRounds as over:
            raise Fail("MAX_ITERATIONS", f"more than {rounds.limit} rounds") from over
        except tuple(codes) as tripped:
            code = next(code for kind, code in codes.items() if isinstance(tripped, kind))
            raise Reject(code, {"guardrail": type(tripped).__name__}) from tripped
        if done.run is None:
            return Completed(done.output)
        if done.output is None:
            raise Fail("APPROVAL_REQUIRED", ", ".join(sorted({_call(one).name or "" for one in _requests(done.run.messages)})))
        return Completed(_result(done.output), iterations=rounds.count or None)

    return Worker(client, handler, accept_within=accept_within, **options)


def _result(output: Any) -> Any:
    if isinstance(output, str):
        try:
            return json.loads(output)
        except ValueError:
            return output
    return as_json(output)


__all__ = ["DurableResult", "RemoteAgent", "agent_worker", "run_durably", "transfer_tool"]
