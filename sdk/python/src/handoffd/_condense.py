"""An extract of turns that have to be left out of a message: the statements that a reader will need, in their own words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

MOST_CHARS: Final = 16_000
"""Characters of an extract unless a window asks for fewer."""
LINE_CHARS: Final = 400
"""Characters of one statement."""

_BOUNDARY = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_FIGURE = re.compile(r"[0-9]|https?://|`|[A-Z]{2,}[-_][A-Z0-9]")
_WEIGHTY = re.compile(
    r"\b(?:not|never|no longer|don'?t|do not|must|shall|only|because|decided|instead|deadline|warning|careful|heads-up|agreed"
    r"|promise|nicht|nie|kein\w*|muss|m(?:ue|ü)ssen|darf|weil|entschied\w*|stattdessen|frist|achtung|vereinbart|zugesagt)\b"
    r"|不|别|必须|应当|因为|决定|注意|截止|承诺",
    re.IGNORECASE,
)


def condense(turns: Sequence[Mapping[str, Any]], most: int = MOST_CHARS) -> str:
    """The extract, in the order of the turns; its first line says how much it is of how much.

    Args:
        turns: The turns that are left out.
        most: Characters at most, besides the first line.
    """
    found = [(weight(text), place, f"{role}: {text[:LINE_CHARS]}") for place, (role, text) in enumerate(_statements(turns))]
    kept, room = [], most
    # The weightiest first, and of those the latest.
    for _, place, line in sorted(found, key=lambda one: (-one[0], -one[1])):
        if len(line) + 1 <= room:
            kept.append((place, line))
            room -= len(line) + 1
    head = f"Extract of {len(turns)} earlier turns that do not fit: {len(kept)} of {len(found)} statements."
    return "\n".join([head, *(line for _, line in sorted(kept))])


def weight(text: str) -> int:
    """How much a statement is needed: figures and names, prohibitions, duties, decisions, reasons; then questions."""
    return 2 * bool(_FIGURE.search(text)) + 3 * bool(_WEIGHTY.search(text)) + text.rstrip().endswith(("?", "？"))


def _statements(turns: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for turn in turns:
        for text in _texts(turn.get("content")):
            for part in _BOUNDARY.split(text):
                if said := " ".join(part.split()):
                    yield str(turn.get("role", "user")), said


def _texts(content: Any) -> Iterator[str]:
    """Every text in a turn's content: a text, a list of blocks, or an object."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        for one in content.values():
            yield from _texts(one)
    elif isinstance(content, list):
        for one in content:
            yield from _texts(one)
