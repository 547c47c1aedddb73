"""Shared by both clients: settings from the environment, the answer to a submission, states."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .errors import (
    BudgetExhaustedError,
    BudgetMismatchError,
    ConflictError,
    HandoffdError,
    LineageMismatchError,
    LoopDetectedError,
    ProblemError,
    StepReusedError,
)

if TYPE_CHECKING:
    from . import models
else:
    from ._lazy import models

DEFAULT_URL: Final = "http://127.0.0.1:8080"
FINAL: Final = frozenset({"COMPLETED", "REJECTED", "EXPIRED", "FAILED", "DEAD_LETTERED", "CANCELED", "NO_OP"})
"""States after which a handoff changes no more by itself."""
SENT_BEFORE: Final = (
    ConflictError,
    BudgetExhaustedError,
    BudgetMismatchError,
    LineageMismatchError,
    LoopDetectedError,
)
"""Refusals that a handoff which is committed already meets when it is sent again: its id is taken, its money is set aside."""
HELD_S: Final = 30
"""Seconds for which one request waits at most."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A committed handoff."""

    handoff_id: str
    task_id: str
    execution_id: str
    """The sender's run, under which its checkpoint is stored."""
    status: str
    """`PENDING`, or what was waited for."""
    replayed: bool = False
    """Whether the broker had it already: the same step was done before."""
    reason: str | None = None
    """Why it ended badly, if it did while waited for."""
    successor_id: str | None = None
    """The handoff that replaces it, if one does."""
    receipt: models.Receipt | None = None
    """Proof that its record is in the log; keep it, and check it with `verify_receipt`."""
    warnings: Sequence[models.WarningView] = field(default=())
    """The parts of the message that do not hold in full."""


def sent_of(message: Mapping[str, Any], answer: models.SubmittedView, *, replayed: bool) -> Sent:
    """The answer to a submission."""
    return Sent(
        answer.handoff_id,
        answer.task_id,
        message["fromAgent"]["executionId"],
        answer.status,
        replayed,
        answer.reason,
        answer.successor_id,
        answer.receipt,
        tuple(answer.warnings or ()),
    )


def is_own(message: Mapping[str, Any], handoff: models.HandoffView) -> bool:
    """Whether the broker's handoff is the one of this message: the same id, sender and task."""
    return (
        handoff.handoff_id.lower() == str(message["handoffId"]).lower()
        and handoff.task_id.lower() == str(message["taskId"]).lower()
        and handoff.from_agent.agent_id == message["fromAgent"]["agentId"]
    )


def refuse_other_step(refused: ProblemError, own: str | None, stored: str | None) -> None:
    """Raises where the handoff that has the id is another step than this message. Without both digests nothing can be told.

    Raises:
        StepReusedError: The digests differ.
    """
    if own and stored and own != stored:
        raise StepReusedError(refused.status, refused.problem, step_digest=own, stored_digest=stored) from refused


def sent_before(message: Mapping[str, Any], handoff: models.HandoffView) -> Sent:
    """The same for a handoff that the broker has already."""
    return Sent(
        handoff.handoff_id,
        handoff.task_id,
        handoff.from_agent.execution_id or message["fromAgent"]["executionId"],
        handoff.status,
        True,
        handoff.reason,
        handoff.successor_id,
        handoff.receipt,
        tuple(handoff.warnings or ()),
    )


def words_of(verdict: Any, reason: str | None = None) -> str | None:
    """A receiver's words on its refusal or failure, from `include=verdict`, without the code before them."""
    if not isinstance(verdict, Mapping):
        return None
    error, details = verdict.get("error"), verdict.get("details")
    code = error.get("code") if isinstance(error, Mapping) else None
    words = (error.get("message") if isinstance(error, Mapping) else error) or details
    codes = [one for one in (code, reason) if isinstance(one, str) and one]
    if words in codes and details:
        words = details
    if not words:
        return None
    text = words if isinstance(words, str) else json.dumps(words, ensure_ascii=False)
    prefixes = (f"{one}: " for one in codes)
    return next((text.removeprefix(one) for one in prefixes if text.startswith(one) and text != one), text)


def setting(given: str | None, variable: str, default: str | None = None) -> str | None:
    """An argument, else the environment's variable."""
    return given if given is not None else os.environ.get(variable, default)


def local_admin_key(data_dir: str | os.PathLike[str] | None = None) -> str:
    """The key in `HANDOFFD_API_KEY_FILE`, or the first admin key, which a broker without settings writes to its data directory:
    this one, else `HANDOFFD_DATA_DIR`, else `./handoffd-data`.

    Raises:
        HandoffdError: The file does not exist.
    """
    path = Path(data_dir or os.environ.get("HANDOFFD_DATA_DIR") or "handoffd-data") / "admin.key"
    named = os.environ.get("HANDOFFD_API_KEY_FILE")
    if data_dir is None and named:
        path = Path(named)
    try:
        return path.read_text().strip()
    except OSError as error:
        raise HandoffdError(
            f"no admin key at {path}: start the broker in this folder with `handoffd serve`, or name its folder in "
            f"HANDOFFD_DATA_DIR ({error})"
        ) from None
