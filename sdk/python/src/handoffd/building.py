"""`build_handoff_message`: a handoff message from an agent's state (seed 000 §7.1, step 2)."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import secrets
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

from . import canonical
from ._condense import MOST_CHARS, condense
from ._exchanges import Exchanges
from ._task import INITIAL
from ._wire import plain
from .errors import WindowExceededError
from .measuring import COMPRESS_AT, estimate_tokens, measure_message

SCHEMA_VERSION: Final = "2.2"
NAMESPACE: Final = uuid.UUID("6f6b7f0e-0d5c-5b0e-9d6e-2a6a3d0c9b11")
"""The UUIDv5 namespace of derived ids."""
MAX_TURNS: Final = 10_000
"""Turns of the conversation that a message can carry. The broker measures and compresses it for its receiver's window."""
MAX_BYTES: Final = 10 * 1024 * 1024
"""Bytes of a message that the broker takes unless set otherwise (`server.max_body_bytes`)."""
KEEP_TURNS: Final = 5
"""Turns that a receiver's window does not push out, as the broker's `context.keep_turns`."""
DEFAULT_BUDGET_USD: Final = 1.0
"""The budget of a task whose opener names none."""


@dataclass(kw_only=True)
class AgentState:
    """An agent's knowledge when it hands over. Only `agent_id` and `task` are needed.

    Ids: with `step`, `handoff_id`, `execution_id` and (without `run`) `task_id` are derived from it, so that the same step,
    done again after a crash, is the same handoff. Without it they are random.
    """

    agent_id: str
    """The sender."""
    task: str
    """The receiver's task."""
    agent_version: str = "1.0.0"
    """Semantic version of the sender."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """`currentState`: what the receiver goes on from."""
    completed: Sequence[Mapping[str, Any] | str] = ()
    """Finished subtasks: `{subtaskId, description, result, completedAt}`, or a description; what is missing is filled in.
    With none, a task's first handoff is marked `INITIAL`, and `task` becomes its remaining subtask."""
    remaining: Sequence[Mapping[str, Any] | str] = ()
    """Open subtasks: `{subtaskId, description}`, or a description."""
    summary: str = ""
    """The older turns in condensed form."""
    history: Sequence[Mapping[str, Any] | str] = ()
    """Turns, oldest first: `{role, content, …}`; a text is a user's turn."""
    tool_calls: Sequence[Mapping[str, Any]] = ()
    """Calls: `{tool, calledAt, inputHash, outputTokens}`; `input` and `output` in their place are hashed and measured."""
    tool_state: Mapping[str, Any] | None = None
    """State of tools; `cached_results` is left out of a trimmed message."""
    context: Sequence[Mapping[str, Any] | str] = ()
    """Excerpts: `{source, excerpt, relevanceScore}`, or a text."""
    checkpoint: Mapping[str, Any] | None = None
    """The sender's own state, restored by a rollback; never sent to the receiver."""
    spent_usd: float = 0.0
    """US dollars spent on the task so far, cumulative."""
    budget_usd: float | None = None
    """US dollars left. `DEFAULT_BUDGET_USD` less `spent_usd` unless said."""
    prompt_tokens: int = 0
    """Tokens read on the task so far, cumulative."""
    completion_tokens: int = 0
    """Tokens written on the task so far, cumulative."""
    task_id: str | None = None
    """The task; derived or new unless said."""
    parent_handoff_id: str | None = None
    """The handoff by which the sender came to the task; none for the task's first."""
    handoff_id: str | None = None
    """Derived or new unless said."""
    execution_id: str | None = None
    """The sender's run, a version 4 UUID; derived or new unless said."""
    run: str | None = None
    """The sender's own name of its run (a thread, a session): the same run is the same task."""
    step: str | None = None
    """The sender's own name of this step within the run (a tool call's id)."""
    traceparent: str | None = None
    """W3C trace context; the current span's where OpenTelemetry is in use, else a new trace."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Any other member of the schema, by its wire name: `reason`, `priority`, `returnTo`, `metadata`, `extensions`, …"""


class StateFields(TypedDict, total=False):
    """The fields of `AgentState` as keyword arguments, without `task`."""

    agent_id: str
    agent_version: str
    state: Mapping[str, Any]
    completed: Sequence[Mapping[str, Any] | str]
    remaining: Sequence[Mapping[str, Any] | str]
    summary: str
    history: Sequence[Mapping[str, Any] | str]
    tool_calls: Sequence[Mapping[str, Any]]
    tool_state: Mapping[str, Any] | None
    context: Sequence[Mapping[str, Any] | str]
    checkpoint: Mapping[str, Any] | None
    spent_usd: float
    budget_usd: float | None
    prompt_tokens: int
    completion_tokens: int
    task_id: str | None
    parent_handoff_id: str | None
    handoff_id: str | None
    execution_id: str | None
    run: str | None
    step: str | None
    traceparent: str | None
    fields: Mapping[str, Any]


def build_handoff_message(
    agent_state: AgentState | Mapping[str, Any],
    target: str | Mapping[str, Any],
    constraints: Sequence[str] | Mapping[str, Any] = (),
    *,
    window_tokens: int | None = None,
    max_turns: int = MAX_TURNS,
    max_bytes: int = MAX_BYTES,
    summarize: Callable[[Sequence[Mapping[str, Any]]], str] | None = None,
    signing_secret: str | None = None,
) -> dict[str, Any]:
    """Builds a message of schema 2.2 that passes `validate_handoff_message`, as far as the state allows.

    All turns are sent, and the broker compresses them where its receiver's window asks for that. Only where `max_turns`,
    `max_bytes` or `window_tokens` is passed do the oldest go (more where a tool's
    result among the rest would lack its call), and an extract of their statements takes their place:
    `conversationHistorySummary` ends with it, `metadata` has `original_history_length` and `trimmed`, `historyStrategy` is
    `summary`, and `toolState.cached_results` is left out. With `window_tokens` the oldest go until the message takes at most
    80 % of it; the last `KEEP_TURNS` stay. Optional members that are null are left out.

    Args:
        agent_state: An `AgentState`, or its fields.
        target: An agent's id, `type:<agentType>`, `capability:<name>`, or `toAgent` itself.
        constraints: `key:value` texts, or a mapping of them.
        window_tokens: The receiver's context window, in tokens.
        max_turns: Turns to keep at most.
        max_bytes: Bytes of the message's JSON at most; older turns go where it is larger.
        summarize: Condenses the turns that are left out, for the end of `conversationHistorySummary`, in place of the SDK's own
            extract of their statements; called again where more of them have to go.
        signing_secret: Signs the message under this secret (`hss_…`).

    Raises:
        WindowExceededError: `window_tokens` is too small for what may not be left out.
        TypeError: An unknown field of the state, or a value that JSON cannot hold.
        ValueError: A task without words, a number that is not finite, or a target without a name.
    """
    given = agent_state if isinstance(agent_state, AgentState) else AgentState(**dict(agent_state))
    if not given.task.strip():
        raise ValueError("a handoff without a task: say what the receiver is to do")
    now = _now()
    ids = _ids(given)
    task, completed, remaining = _tasks(given, ids["parentHandoffId"] is None, now)
    turns = [_turn(one) for one in given.history]
    budget = given.budget_usd
    if budget is None:
        budget = round(max(0.0, DEFAULT_BUDGET_USD - given.spent_usd), 9)
    message: dict[str, Any] = {
        "schemaVersion": SCHEMA_VERSION,
        "handoffId": ids["handoffId"],
        "taskId": ids["taskId"],
        "parentHandoffId": ids["parentHandoffId"],
        "fromAgent": {
            "agentId": given.agent_id,
            "agentVersion": given.agent_version,
            "executionId": ids["executionId"],
        },
        "toAgent": target_of(target),
        "timestamp": now,
        "taskDescription": task,
        "completedSubtasks": completed,
        "remainingSubtasks": remaining,
        "currentState": plain(given.state),
        "relevantContext": [_excerpt(one) for one in given.context],
        "constraints": _constraints(constraints),
        "costTracking": {
            "costSpentSoFarUSD": given.spent_usd,
            "costBudgetRemainingUSD": budget,
            "tokenSpent": {"prompt": given.prompt_tokens, "completion": given.completion_tokens},
        },
        "conversationHistorySummary": given.summary,
        "conversationHistoryVerbatim": turns,
        "toolCallHistory": [_tool_call(one, now) for one in given.tool_calls],
        "traceparent": given.traceparent or current_traceparent() or new_traceparent(),
        "checkpoint": plain(given.checkpoint),
        "toolState": plain(given.tool_state),
    }
    if task == INITIAL and given.task != INITIAL:
        message["taskSummary"] = given.task[:500]
    message.update(plain(given.fields))
    required = {"parentHandoffId"}
    message = {name: _without_nulls(name, one) for name, one in message.items() if one is not None or name in required}
    if given.step is not None or given.handoff_id is not None:
        message["extensions"] = _with_digest(message.get("extensions"), step_digest(message))
    _trim(message, max_turns, window_tokens, _condenser(summarize, max_bytes, window_tokens), max_bytes)
    return canonical.sign_message(message, signing_secret) if signing_secret else message


def step_digest(message: Mapping[str, Any]) -> str:
    """The digest of a message's request: SHA-256 over receiver, task, state, subtasks, constraints and history, without the
    times that a rebuilt message has anew. The builder puts it into `extensions.handoffd.stepDigest` of a message whose id may
    be used again, so that another step under the same name is told from the same one.

    Raises:
        TypeError, ValueError: The message has values that JSON cannot hold.
    """
    parts = {
        "target": message.get("receiverList") or message.get("toAgent"),
        "task": message.get("taskDescription"),
        "state": message.get("currentState"),
        "completed": [_without(one, "completedAt") for one in message.get("completedSubtasks") or ()],
        "remaining": message.get("remainingSubtasks"),
        "constraints": message.get("constraints"),
        "history": [_without(one, "timestamp") for one in message.get("conversationHistoryVerbatim") or ()],
    }
    return "sha256:" + hashlib.sha256(canonical.encode(parts)).hexdigest()


def stated_digest(message: Mapping[str, Any] | None) -> str | None:
    """The digest that a message has; none where it has none."""
    found: Any = message
    for name in ("extensions", "handoffd", "stepDigest"):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, str) else None


def _with_digest(extensions: Any, digest: str) -> dict[str, Any]:
    """The message's extensions with the digest of its step."""
    given = dict(extensions) if isinstance(extensions, Mapping) else {}
    own = given.get("handoffd")
    return {**given, "handoffd": {**(own if isinstance(own, Mapping) else {}), "stepDigest": digest}}


def _without(one: Any, name: str) -> Any:
    return {key: value for key, value in one.items() if key != name} if isinstance(one, Mapping) else one


def derived_id(*names: str) -> str:
    """A version 5 UUID: the same for the same names, in this order."""
    return str(uuid.uuid5(NAMESPACE, "\x1f".join(names)))


def derived_execution_id(*names: str) -> str:
    """The same as a UUID of version 4's form, which `executionId` asks for."""
    digest = hashlib.sha256(f"{NAMESPACE}\x1f{chr(0x1F).join(names)}".encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))


def new_traceparent() -> str:
    """A new sampled W3C trace context."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


def current_traceparent() -> str | None:
    """The W3C trace context of OpenTelemetry's current span; none where the process does not use OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags) & 1:02x}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _ids(given: AgentState) -> dict[str, str | None]:
    agent, run, step = given.agent_id, given.run, given.step
    task_id = given.task_id
    if task_id is None:
        if run is not None:
            task_id = derived_id("task", agent, run)
        else:
            task_id = derived_id("task", agent, "step", step) if step is not None else str(uuid.uuid4())
    handoff_id, execution_id = given.handoff_id, given.execution_id
    if step is not None:
        handoff_id = handoff_id or derived_id("handoff", agent, task_id, step)
        execution_id = execution_id or derived_execution_id("run", agent, task_id, run or step)
    elif run is not None:
        execution_id = execution_id or derived_execution_id("run", agent, task_id, run)
    return {
        "handoffId": handoff_id or str(uuid.uuid4()),
        "taskId": task_id,
        "parentHandoffId": given.parent_handoff_id,
        "executionId": execution_id or str(uuid.uuid4()),
    }


def target_of(target: str | Mapping[str, Any]) -> dict[str, Any]:
    """`toAgent` of a target."""
    if not isinstance(target, str):
        return dict(plain(target))
    kind, colon, name = target.partition(":")
    if colon and kind in ("type", "capability"):
        if not name:
            raise ValueError(f"a target without a name: {target}")
        return {"agentType": name, "agentVersion": "*"} if kind == "type" else {"capability": name}
    if not target:
        raise ValueError("a target without a name")
    return {"agentId": target}


def _constraints(constraints: Sequence[str] | Mapping[str, Any]) -> list[str]:
    if isinstance(constraints, str):
        return [constraints]
    if isinstance(constraints, Mapping):
        return [f"{name}:{value}" for name, value in constraints.items()]
    return list(constraints)


def _tasks(given: AgentState, first: bool, now: str) -> tuple[str, list[dict[str, Any]], list[dict[str, Any]]]:
    completed = []
    seen: dict[str, int] = {}
    for one in given.completed:
        subtask: dict[str, Any] = {"description": one} if isinstance(one, str) else dict(plain(one))
        result = subtask.get("result")
        subtask["result"] = result if isinstance(result, dict) else ({} if result is None else {"value": result})
        if "subtaskId" not in subtask:
            subtask["subtaskId"] = _done_id(subtask, seen)
        subtask.setdefault("description", subtask["subtaskId"])
        subtask.setdefault("completedAt", now)
        completed.append(subtask)
    remaining = []
    for place, one in enumerate(given.remaining, 1):
        subtask = {"description": one} if isinstance(one, str) else dict(plain(one))
        subtask.setdefault("subtaskId", f"open-{place}")
        subtask.setdefault("description", subtask["subtaskId"])
        remaining.append(subtask)
    if completed or not first or given.task == INITIAL:
        return given.task, completed, remaining
    # Nothing was done yet: the schema marks such a handoff, and what is to be done is what remains.
    return INITIAL, [], [{"subtaskId": "task", "description": given.task}, *remaining]


def _done_id(subtask: Mapping[str, Any], seen: dict[str, int]) -> str:
    """The id of a completed subtask, from its content, as the broker's doors make it: what was done before keeps its id from hop
    to hop, and what is new has a new one, which the loop guard counts as progress."""
    content = [subtask.get("description"), subtask["result"]]
    name = "done-" + hashlib.sha256(canonical.encode(content)).hexdigest()[:16]
    seen[name] = seen.get(name, 0) + 1
    # The same work twice is two entries.
    return name if seen[name] == 1 else f"{name}-{seen[name]}"


def _turn(one: Mapping[str, Any] | str) -> dict[str, Any]:
    if isinstance(one, str):
        return {"role": "user", "content": one}
    turn = {name: value for name, value in plain(one).items() if value is not None}
    turn.setdefault("role", "tool" if "tool_call_id" in turn else "user")
    if "content" not in turn:
        # A model's turn that only calls tools has no text; the calls are its content.
        rest = {name: turn.pop(name) for name in list(turn) if name not in ("role", "name", "timestamp", "metadata")}
        turn["content"] = rest
    elif not isinstance(turn["content"], str | list | dict):
        turn["content"] = str(turn["content"])
    return turn


def _excerpt(one: Mapping[str, Any] | str) -> dict[str, Any]:
    excerpt = {"excerpt": one} if isinstance(one, str) else dict(plain(one))
    return {"source": "agent", "relevanceScore": 1, **excerpt}


def _tool_call(one: Mapping[str, Any], now: str) -> dict[str, Any]:
    call = dict(plain(one))
    given, output = call.pop("input", None), call.pop("output", None)
    if "inputHash" not in call:
        call["inputHash"] = "sha256:" + hashlib.sha256(canonical.encode(given)).hexdigest()
    if "outputTokens" not in call:
        text = output if isinstance(output, str) else canonical.encode(output)
        call["outputTokens"] = 0 if output is None else estimate_tokens(text)
    call.setdefault("calledAt", now)
    return call


_OWN_CONTENT = frozenset(
    {"currentState", "checkpoint", "toolState", "metadata", "extensions", "provenance", "conversationHistoryVerbatim"}
)


def _without_nulls(name: str, value: Any) -> Any:
    """Null members of the envelope are left out; content keeps its nulls, and so do results."""
    if name in _OWN_CONTENT or value is None:
        return value
    if isinstance(value, dict):
        return {key: one if key == "result" else _without_nulls(key, one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls("", one) for one in value]
    return value


def _trim(
    message: dict[str, Any],
    max_turns: int,
    window_tokens: int | None,
    summarize: Callable[[Sequence[Mapping[str, Any]]], str],
    max_bytes: int,
) -> None:
    turns: list[Any] = message["conversationHistoryVerbatim"]
    said: str = message["conversationHistorySummary"]
    sizes = [estimate_tokens(canonical.encode(turn)) for turn in turns] if window_tokens is not None else []
    exchanges = Exchanges(turns)
    first = exchanges.cut(max(0, len(turns) - max_turns, _first_within(message, max_bytes)))
    last = max(first, exchanges.before(max(0, len(turns) - KEEP_TURNS)))
    while True:
        if first > 0:
            condensed = summarize(turns[:first])
            message["conversationHistorySummary"] = "\n".join(part for part in (said, condensed) if part)
            message["conversationHistoryVerbatim"] = turns[first:]
            noted = {"original_history_length": len(turns), "trimmed": True}
            message["metadata"] = {**message.get("metadata", {}), **noted}
            message.setdefault("historyStrategy", "summary" if condensed else "last_k")
            _drop_cached(message)
        if window_tokens is None or not measure_message(message).over(window_tokens):
            break
        # Before anything that was said.
        _drop_cached(message)
        limit = int(window_tokens * COMPRESS_AT)
        excess = measure_message(message).tokens - limit
        if excess <= 0:
            break
        if first == last:
            raise WindowExceededError(limit + excess, limit)
        while excess > 0 and first < last:
            excess -= sizes[first]
            first += 1
        # The exchange that the cut would part goes too.
        first = min(exchanges.cut(first), last)


def _condenser(
    given: Callable[[Sequence[Mapping[str, Any]]], str] | None, max_bytes: int, window_tokens: int | None
) -> Callable[[Sequence[Mapping[str, Any]]], str]:
    """The text that replaces turns that go: the caller's words, or an extract of a size that leaves room for the last turns."""
    if given is not None:
        return given
    most = min(MOST_CHARS, max_bytes // 16)
    if window_tokens is not None:
        # A tenth of the window, at some three characters a token.
        most = min(most, max(300, window_tokens * 3 // 10))
    return lambda turns: condense(turns, most)


def _first_within(message: Mapping[str, Any], max_bytes: int) -> int:
    """How many of the oldest turns have to go so that the message, with an extract of them, has at most that many bytes."""
    size = _bytes_of(message)
    if size <= max_bytes:
        return 0
    turns = message["conversationHistoryVerbatim"]
    # Up to four bytes a character of the extract, and what `metadata` says of it.
    room = max_bytes - 4 * min(MOST_CHARS, max_bytes // 16) - 1024
    for first, turn in enumerate(turns):
        if size <= room:
            return first
        size -= _bytes_of(turn) + 1
    return len(turns)


def _bytes_of(value: Any) -> int:
    """The size in which the client sends it."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass"))


def _drop_cached(message: dict[str, Any]) -> None:
    tools = message.get("toolState")
    if isinstance(tools, dict) and "cached_results" in tools:
        message["toolState"] = {name: value for name, value in tools.items() if name != "cached_results"}


def replace(state: AgentState, **changes: Any) -> AgentState:
    """A copy of the state with these fields changed."""
    return dataclasses.replace(state, **changes)
