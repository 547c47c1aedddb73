"""handoffd: structured, durable, audited handoffs between agents.

    from handoffd import Client, Worker

`Client` and `AsyncClient` speak to a broker, `build_handoff_message` and `validate_handoff_message` work without one, `Worker`
takes handoffs, `verify_webhook` and `verify_receipt` check what a broker says.
"""

from . import errors, models
from ._async.client import AsyncClient
from ._sent import Sent
from ._sync.client import Client
from ._version import __version__
from ._wire import UNSET, RetryPolicy
from .binary import validate_with_binary
from .building import AgentState, build_handoff_message, derived_execution_id, derived_id, step_digest
from .canonical import sign_message
from .errors import (
    AnswerError,
    Fail,
    Failure,
    HandoffdError,
    HandoffEndedBadly,
    LeaseLost,
    ProblemError,
    Reject,
    SignatureError,
    StepReusedError,
    TransportError,
    WaitTimeout,
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
    "HandoffEndedBadly",
    "HandoffdError",
    "InvalidMessage",
    "LeaseLost",
    "Measurement",
    "ProblemError",
    "Reject",
    "RetryPolicy",
    "Sent",
    "SignatureError",
    "StepReusedError",
    "TransportError",
    "ValidationResult",
    "VerifiedReceipt",
    "WaitTimeout",
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
