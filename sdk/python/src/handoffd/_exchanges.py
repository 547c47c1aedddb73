"""Calls of tools and their results in a conversation: where it may be cut.

The APIs of models refuse a history with a result whose call is missing. The broker and the TypeScript SDK have the same rule, and
`tests/vectors/turn_cuts.json` holds all three to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_TOOL_ROLES: Final = ("tool", "function")
_OTHER_ROLES: Final = ("user", "human", "system", "developer")
_IDS: Final = ("call_id", "tool_use_id", "tool_call_id", "toolCallId", "id")
_RESULTS: Final = ("function_result", "tool-result", "tool-return")

_Key = tuple[str, str]


class Exchanges:
    """Which turns of a conversation belong together.

    A result belongs to the nearest earlier turn that has its call, by id or else by name. If no turn has it, the result
    belongs to the nearest earlier turn of the model: some frameworks keep calls apart from the turns.
    """

    def __init__(self, turns: Sequence[Any]) -> None:
        made: dict[_Key, int] = {}
        speaker: int | None = None
        first: list[int] = []
        for at, turn in enumerate(turns):
            asked, answered = _keys(turn)
            calls = [made.get(key, speaker) if key else speaker for key in answered]
            first.append(min([at, *(call for call in calls if call is not None)]))
            if not answered and not (isinstance(turn, Mapping) and turn.get("role") in _OTHER_ROLES):
                speaker = at
            made.update(dict.fromkeys(asked, at))
        self._reach = [len(turns)] * (len(turns) + 1)
        for at in range(len(turns) - 1, -1, -1):
            self._reach[at] = min(first[at], self._reach[at + 1])

    def is_whole_from(self, place: int) -> bool:
        """Whether no result from a place on lacks its call."""
        return self._reach[place] >= place

    def before(self, place: int) -> int:
        """The last place at or before this one from which turns are whole."""
        return next(at for at in range(min(place, len(self._reach) - 1), -1, -1) if self.is_whole_from(at))

    def cut(self, place: int) -> int:
        """The place at which a conversation is cut when it should begin at `place`.

        There or later, so that at most the requested turns stay; before it only if no turn would stay.
        """
        count = len(self._reach) - 1
        if place >= count:
            return count
        after = (at for at in range(place, count) if self.is_whole_from(at))
        return next(after, self.before(place))


def _keys(turn: Any) -> tuple[list[_Key], list[_Key | None]]:
    """The calls that a turn makes, and those whose results it has; None for a result that names none."""
    asked: list[_Key] = []
    answered: list[_Key | None] = []
    if not isinstance(turn, Mapping):
        return asked, answered
    _part(turn, asked, answered)
    for name in ("content", "parts", "metadata"):
        inner = turn.get(name)
        for one in inner if isinstance(inner, list | tuple) else (inner,):
            if isinstance(one, Mapping):
                _part(one, asked, answered)
    if not asked and not answered and turn.get("role") in _TOOL_ROLES:
        answered.append(_key(turn, ()))
    return asked, answered


def _part(part: Mapping[str, Any], asked: list[_Key], answered: list[_Key | None]) -> None:
    def ask(call: Any, *ids: str) -> None:
        key = _key(call, ids) if isinstance(call, Mapping) else None
        if key:
            asked.append(key)

    def inner(*names: str) -> Mapping[str, Any] | None:
        return next((one for one in map(part.get, names) if isinstance(one, Mapping)), None)

    for name in ("tool_calls", "toolCalls"):
        calls = part.get(name)
        for call in calls if isinstance(calls, list | tuple) else ():
            ask(call, "id", "call_id", "tool_call_id", "toolCallId")
    ask(inner("function_call", "functionCall"), "id", "call_id")
    ask(inner("toolUse", "tool_use"), "toolUseId", "id")
    if result := inner("function_response", "functionResponse"):
        answered.append(_key(result, ("id", "call_id")))
    if result := inner("toolResult", "tool_result"):
        answered.append(_key(result, ("toolUseId", "tool_use_id")))
    kind = next((one for one in map(part.get, ("type", "part_kind")) if isinstance(one, str)), "")
    if kind.endswith(("tool_result", "_call_output")) or kind in _RESULTS:
        answered.append(_key(part, _IDS[:4]))
    elif kind.endswith(("tool_use", "_call")) or kind == "tool-call":
        ask(part, *_IDS)
    elif call := _text(part, ("tool_call_id", "tool_use_id")):
        answered.append(("id", call))


def _key(part: Mapping[str, Any], ids: Sequence[str]) -> _Key | None:
    if call := _text(part, ids):
        return "id", call
    name = _text(part, ("name",))
    return ("name", name) if name else None


def _text(part: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((one for one in map(part.get, names) if isinstance(one, str) and one), None)
