"""The request of a message, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

INITIAL: Final = "INITIAL"
"""The `taskDescription` that marks a handoff before any work was done."""


def task_of(message: Mapping[str, Any]) -> str:
    """The request of a message: `taskDescription`, or of an `INITIAL` handoff the first open subtask, else `taskSummary`."""
    said = str(message.get("taskDescription") or "")
    if said != INITIAL:
        return said
    for one in message.get("remainingSubtasks") or ():
        return str(one.get("description") or said)
    return str(message.get("taskSummary") or said)
