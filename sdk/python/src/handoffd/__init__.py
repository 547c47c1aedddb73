"""handoffd: structured, durable, audited handoffs between agents.

    from handoffd import Client, Worker

`Client` and `AsyncClient` speak to a broker, `build_handoff_message` and `validate_handoff_message` work without one, `Worker`
takes handoffs, `verify_webhook` and `verify_receipt` check what a broker says.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import errors, models
    from ._async.client import AsyncClient
    from ._sent import Sent
    from ._sync.client import Client
    from ._wire import UNSET, RetryPolicy
    from .binary import validate_with_binary
    from .building import AgentState, build_handoff_message, derived_execution_id, derived_id, step_digest
    from .canonical import sign_message
    from .errors import (
        AnswerError,
        Fail,
        Failure,
        HandoffdError,
        HandoffEndedBadlyError,
        LeaseLostError,
        ProblemError,
        Reject,
        StepReusedError,
        TransportError,
        VerificationError,
        WaitTimeoutError,
        WindowExceededError,
    )
    from .measuring import Measurement, estimate_tokens, measure_message
    from .receipts import VerifiedReceipt, verify_receipt
    from .validation import InvalidMessage, ValidationResult, validate_handoff_message
    from .webhooks import Delivery, verify_webhook
    from .worker import AsyncHandoff, Completed, Handoff, Worker

__all__ = [
    "UNSET",
    "AgentState",
    "AnswerError",
    "AsyncClient",
    "AsyncHandoff",
    "Client",
    "Completed",
    "Delivery",
    "Fail",
    "Failure",
    "Handoff",
    "HandoffEndedBadlyError",
    "HandoffdError",
    "InvalidMessage",
    "LeaseLostError",
    "Measurement",
    "ProblemError",
    "Reject",
    "RetryPolicy",
    "Sent",
    "StepReusedError",
    "TransportError",
    "ValidationResult",
    "VerificationError",
    "VerifiedReceipt",
    "WaitTimeoutError",
    "WindowExceededError",
    "Worker",
    "__version__",
    "build_handoff_message",
    "derived_execution_id",
    "derived_id",
    "errors",
    "estimate_tokens",
    "measure_message",
    "models",
    "sign_message",
    "step_digest",
    "validate_handoff_message",
    "validate_with_binary",
    "verify_receipt",
    "verify_webhook",
]

_HOMES = {
    "._async.client": ("AsyncClient",),
    "._sent": ("Sent",),
    "._sync.client": ("Client",),
    "._wire": (
        "RetryPolicy",
        "UNSET",
    ),
    ".binary": ("validate_with_binary",),
    ".building": (
        "AgentState",
        "build_handoff_message",
        "derived_execution_id",
        "derived_id",
        "step_digest",
    ),
    ".canonical": ("sign_message",),
    ".errors": (
        "AnswerError",
        "Fail",
        "Failure",
        "HandoffEndedBadlyError",
        "HandoffdError",
        "LeaseLostError",
        "ProblemError",
        "Reject",
        "StepReusedError",
        "TransportError",
        "VerificationError",
        "WaitTimeoutError",
        "WindowExceededError",
    ),
    ".measuring": (
        "Measurement",
        "estimate_tokens",
        "measure_message",
    ),
    ".receipts": (
        "VerifiedReceipt",
        "verify_receipt",
    ),
    ".validation": (
        "InvalidMessage",
        "ValidationResult",
        "validate_handoff_message",
    ),
    ".webhooks": (
        "Delivery",
        "verify_webhook",
    ),
    ".worker": (
        "AsyncHandoff",
        "Completed",
        "Handoff",
        "Worker",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("errors", "models")
_RENAMED = {
    "HandoffEndedBadly": "HandoffEndedBadlyError",
    "LeaseLost": "LeaseLostError",
    "SignatureError": "VerificationError",
    "WaitTimeout": "WaitTimeoutError",
}


def __getattr__(name: str) -> Any:
    """Loads what is asked for: a program that only builds messages loads no client."""
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _RENAMED:
        now = _RENAMED[name]
        warnings.warn(f"handoffd.{name} is handoffd.{now} now", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(".errors", __name__), now)
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(home, __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, *_MODULES]
