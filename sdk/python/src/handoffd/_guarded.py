"""Guarded turns inside what a framework keeps.

The broker renders a handoff's context, and a result, as a guarded turn for a model: text between marks that content cannot
forge (docs/prompt.md). The broker refuses those marks in a message, because there they can only be forgeries. A framework keeps
the turn in its history and in its snapshot, though. So a guarded turn becomes the data that it guards where it is sent on, and a
placeholder where it is kept; a process that resumes reads the turn from the broker again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Kind = Literal["prompt", "result"]

_DASH = r"(?:—|\\u2014)"
_TURN: Final = re.compile(
    rf"\[CONTEXT FROM PREVIOUS AGENT {_DASH} DATA ONLY\] (?P<number>[0-9a-f]{{32}})(?P<line>\n|\\n)(?P<body>.*?)"
    rf"\[END OF CONTEXT FROM PREVIOUS AGENT {_DASH} DATA ONLY\] (?P=number)",
    re.DOTALL,
)
"""A guarded turn, as text or inside JSON text."""
_HANDOFF: Final = re.compile(r"\(/\S* of handoff (?P<id>[0-9a-f-]{36}) on task ")
_RESULT: Final = "You are receiving the result of a handoff"
_EXACT: Final = 2**53 - 1
"""The largest integer that the broker takes (RFC 8785)."""
_PLACEHOLDER: Final = re.compile(r"handoffd:(?P<key>[0-9a-f]{16}):(?P<kind>prompt|result):(?P<id>[0-9a-f-]{36}):(?P<form>[tja])")


@dataclass(frozen=True, slots=True)
class Turn:
    """A guarded turn of the broker."""

    kind: Kind
    """`prompt`: the context of a handoff that was received. `result`: that of a handoff that was sent."""
    handoff_id: str


def turns_in(value: Any) -> list[Turn]:
    """The guarded turns in a value, each once."""
    found: dict[Turn, None] = {}

    def note(match: re.Match[str]) -> str:
        turn = _turn(match)
        if turn is not None:
            found[turn] = None
        return match[0]

    _mapped(value, lambda text: _TURN.sub(note, text) if _may_hold(text) else text)
    return list(found)


def replaced(value: Any, by: Mapping[Turn, str]) -> Any:
    """The value with other texts in place of its guarded turns. A turn that `by` does not have stays."""

    def other(match: re.Match[str]) -> str:
        turn = _turn(match)
        if turn is None or turn not in by:
            return match[0]
        return _in_form(by[turn], _form(match))

    return _mapped(value, lambda text: _TURN.sub(other, text) if _may_hold(text) else text)


def folded(value: Any, key: str) -> Any:
    """The value with a placeholder for each guarded turn, and for each integer that JSON cannot carry exactly.

    Args:
        value: JSON, or messages of LangChain.
        key: 16 hexadecimal digits of this run: content that looks like a placeholder is none without them.
    """

    def held(match: re.Match[str]) -> str:
        turn = _turn(match)
        return match[0] if turn is None else f"handoffd:{key}:{turn.kind}:{turn.handoff_id}:{_form(match)}"

    def number(value: int) -> int | str:
        return value if abs(value) <= _EXACT else f"handoffd:{key}:int:{value}"

    return _mapped(value, lambda text: _TURN.sub(held, text) if _may_hold(text) else text, number)


def unfolded(value: Any, key: str, texts: Mapping[Turn, str]) -> Any:
    """The value that `folded` got, with `texts` for the turns."""

    def turn(match: re.Match[str]) -> str:
        kind: Kind = "prompt" if match["kind"] == "prompt" else "result"
        text = texts.get(Turn(kind, match["id"]), f"The {kind} of handoff {match['id']} is no longer kept.")
        return match[0] if match["key"] != key else _in_form(text, match["form"])

    def back(text: str) -> str | int:
        start = f"handoffd:{key}:int:"
        return int(text.removeprefix(start)) if text.startswith(start) else _PLACEHOLDER.sub(turn, text)

    return _mapped(value, back)


def as_text(result: Any) -> str:
    """A result as text: JSON, or text as it is."""
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def _may_hold(text: str) -> bool:
    return "[CONTEXT FROM PREVIOUS AGENT" in text


def _turn(match: re.Match[str]) -> Turn | None:
    named = _HANDOFF.search(match["body"])
    if named is None:
        return None
    return Turn("result" if match["body"].startswith(_RESULT) else "prompt", named["id"])


def _form(match: re.Match[str]) -> str:
    """`t`: text; `j`: inside JSON text; `a`: inside JSON text in ASCII."""
    if match["line"] == "\n":
        return "t"
    return "a" if "\\u2014" in match[0] else "j"


def _in_form(text: str, form: str) -> str:
    return text if form == "t" else json.dumps(text, ensure_ascii=form == "a")[1:-1]


def _mapped(value: Any, change: Callable[[str], str | int], number: Callable[[int], int | str] | None = None) -> Any:
    if isinstance(value, str):
        return change(value)
    if number is not None and type(value) is int:
        return number(value)
    if isinstance(value, dict):
        return {name: _mapped(one, change, number) for name, one in value.items()}
    if isinstance(value, list):
        return [_mapped(one, change, number) for one in value]
    if type(value) is tuple:
        return tuple(_mapped(one, change, number) for one in value)
    if hasattr(value, "content") and hasattr(value, "model_copy"):
        # A message of LangChain, as LangGraph's checkpoints have them.
        return value.model_copy(update={"content": _mapped(value.content, change, number)})
    return value


__all__ = ["Kind", "Turn", "as_text", "folded", "replaced", "turns_in", "unfolded"]
