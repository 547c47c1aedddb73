"""Tokens of a message, estimated as the broker estimates them (specification §10.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from . import canonical

COMPRESS_AT: Final = 0.8
"""The share of a receiver's context window that a message may take; the broker's `context.compress_at`."""

_APART = frozenset({"checkpoint", "personalDataPayload"})
_PARTS = {
    "conversationHistorySummary": "summary", "taskSummary": "summary", "conversationHistoryVerbatim": "turns",
    "currentState": "state", "completedSubtasks": "state", "remainingSubtasks": "state", "toolCallHistory": "tools",
    "toolState": "tools",
}  # fmt: skip


def _weights() -> tuple[int, ...]:
    """Sixty-fourths of a token by byte; the broker's table."""
    table = [44] * 0x80 + [0] * 0x40 + [34] * 0x20 + [72, 130, 80] + [62] * 13 + [150] * 16
    table[0x7F] = 20
    for byte in range(0x20):
        table[byte] = 20
    table[ord(" ")] = 2
    for text, weight in (("_-.,/", 36), ('":{}[]\\', 24), ("0123456789", 28)):
        for character in text:
            table[ord(character)] = weight
    for byte in range(26):
        table[ord("a") + byte], table[ord("A") + byte] = 14, 30
    return tuple(table)


_WEIGHTS: Final = _weights()


def estimate_tokens(text: str | bytes) -> int:
    """Tokens of a text, rounded up: between half and twice the counts of `o200k` and `cl100k`."""
    data = text.encode(errors="replace") if isinstance(text, str) else text
    return -(-sum(_WEIGHTS[byte] * count for byte, count in Counter(data).items()) // 64)


@dataclass(frozen=True, slots=True)
class Measurement:
    """Estimated tokens of a message as its receiver gets it, by part."""

    summary: int = 0
    turns: int = 0
    state: int = 0
    tools: int = 0
    context: int = 0

    @property
    def tokens(self) -> int:
        """All parts."""
        return self.summary + self.turns + self.state + self.tools + self.context

    def over(self, window_tokens: int) -> bool:
        """Whether it takes more than `COMPRESS_AT` of a context window of that many tokens."""
        return self.tokens > window_tokens * COMPRESS_AT


def measure_message(message: Mapping[str, Any]) -> Measurement:
    """Measures a message without its checkpoint and its personal data, which do not reach every receiver.

    Raises:
        TypeError, ValueError: The message has values that JSON cannot hold.
    """
    counts: Counter[str] = Counter()
    for name, member in message.items():
        if name not in _APART:
            entry = canonical.encode(name) + b":" + canonical.encode(member)
            counts[_PARTS.get(name, "context")] += estimate_tokens(entry)
    return Measurement(**counts)
