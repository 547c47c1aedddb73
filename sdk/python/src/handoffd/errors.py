"""Errors: one class for each code of the broker, and those of the SDK itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._registry import CODES


class HandoffdError(Exception):
    """Any error of this package. It can be pickled, as a pool of processes does."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, dict(self.__dict__))


def _rebuilt(kind: type[HandoffdError], args: tuple[Any, ...], members: dict[str, Any]) -> HandoffdError:
    """An error as it was, without its constructor, whose arguments it does not keep."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(members)
    return error


class TransportError(HandoffdError):
    """The broker did not answer: no connection, a time-out, or an answer that is not HTTP.

    Whether the request had an effect is unknown, unless `sent` is false.
    """

    handoff_id: str | None = None
    """The handoff that was submitted or waited for: look it up, or submit the same message again."""
    task_id: str | None = None
    """The task of that handoff."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether bytes of the request may have reached the broker."""


class AnswerError(HandoffdError):
    """An answer is not what the API's document says: a proxy gave it, or the broker is of another version.

    Whether the request had an effect is unknown.
    """

    handoff_id: str | None = None
    """The handoff that was submitted or waited for: look it up, or submit the same message again."""
    task_id: str | None = None
    """The task of that handoff."""


class WaitTimeoutError(HandoffdError):
    """A handoff did not end within the time that its caller waits. It goes on all the same."""

    def __init__(self, handoff_id: str, status: str, seconds: float) -> None:
        super().__init__(f"handoff {handoff_id} is {status} after {seconds:g} s")
        self.handoff_id = handoff_id
        self.status = status


class HandoffEndedBadlyError(HandoffdError):
    """A handoff ended without a completion: rejected, failed, expired, dead-lettered or cancelled."""

    def __init__(self, handoff_id: str, status: str, reason: str | None, words: str | None = None) -> None:
        said = words if words and words != reason else None
        told = ": ".join(part for part in (reason, said) if part)
        super().__init__(f"handoff {handoff_id} is {status}" + (f": {told}" if told else ""))
        self.handoff_id = handoff_id
        self.status = status
        self.reason = reason
        """A code."""
        self.words = words
        """The receiver's own words, where it said any. Data of another agent."""


class WindowExceededError(HandoffdError):
    """A message is larger than its receiver's context window allows, and what is left of it may not be left out."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(f"the message has some {tokens} tokens and the limit is {limit}")
        self.tokens = tokens
        self.limit = limit


class VerificationError(HandoffdError):
    """A webhook's signature, or the signature or proof of a receipt, does not hold."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure of the gate."""

    stage: str
    """The gate's stage: `schema`, `completeness`, `budget`, ..."""
    code: str
    """A code of the registry, as `SCHEMA_INVALID`."""
    pointer: str
    """RFC 6901 pointer to the place in the message; empty for the whole."""
    message: str
    """One sentence."""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Failure:
        """Reads `{stage, code, pointer, message}`; absent members are empty."""
        return cls(*(str(value.get(name, "")) for name in ("stage", "code", "pointer", "message")))

    def to_json(self) -> dict[str, str]:
        """As the broker writes it."""
        return {"stage": self.stage, "code": self.code, "pointer": self.pointer, "message": self.message}


class ProblemError(HandoffdError):
    """The broker refused: an RFC 9457 problem document.

    `problem_error` makes the subclass for the document's code; an unknown code gives this class.
    """

    code: str = ""

    def __init__(self, status: int, problem: Mapping[str, Any], *, retry_after: float | None = None) -> None:
        self.status = status
        """HTTP status."""
        self.problem = dict(problem)
        """The whole document."""
        self.code = str(problem.get("code") or f"HTTP_{status}")
        """A code of the registry; `HTTP_<status>` where the answer has none."""
        self.detail = str(problem.get("detail") or problem.get("title") or "")
        failures = problem.get("failures")
        self.failures: Sequence[Failure] = tuple(
            Failure.from_json(one) for one in (failures if isinstance(failures, list) else ()) if isinstance(one, Mapping)
        )
        """All failures of the gate, with their pointers."""
        request_id = problem.get("requestId")
        self.request_id: str | None = request_id if isinstance(request_id, str) else None
        self.retry_after = retry_after
        """Seconds after which to come back, where the broker said so."""
        super().__init__(str(self))

    def __str__(self) -> str:
        failures = "".join(f"\n  {one.code} {one.pointer or '/'}: {one.message}" for one in self.failures)
        return f"{self.status} {self.code}: {self.detail}{failures}"


def _class_name(code: str) -> str:
    name = "".join(part.capitalize() for part in code.split("_"))
    return name if name.endswith("Error") else f"{name}Error"


class UnauthenticatedError(ProblemError):
    """No key, or one that is unknown or revoked (401)."""


class SignatureInvalidError(ProblemError):
    """The message's HMAC is missing though required, or does not match (401)."""


class SchemaInvalidError(ProblemError):
    """Not JSON (400), or not what the schema asks for (422)."""


class ForbiddenError(ProblemError):
    """The caller may not do this: role, identity, allowlist (403)."""


class SafetyViolationError(ProblemError):
    """A safety rule fired on some text of the message, which is a dead letter now (422)."""


class CredentialFoundError(ProblemError):
    """A text holds what looks like a credential (422)."""


class BudgetExhaustedError(ProblemError):
    """The remaining budget is zero or less (422)."""


class BudgetMismatchError(ProblemError):
    """The budget relay does not add up against the task's ledger (422)."""


class LineageMismatchError(ProblemError):
    """The message follows another handoff than the broker knows of (422)."""


class LoopDetectedError(ProblemError):
    """The task goes in circles (422)."""


class ContractViolationError(ProblemError):
    """The contract of this edge refuses (422)."""


class NoCapableAgentError(ProblemError):
    """No live agent can take this handoff (422)."""


class IncompleteContextError(ProblemError):
    """The receiver would lack what it needs to go on (422)."""


class ConflictError(ProblemError):
    """The request contradicts what is recorded (409)."""


class StepReusedError(ConflictError):
    """Another step of the same name was handed off before: the id is taken, and receiver, task, state, subtasks, constraints or
    history differ (409). The same step again is not an error. Give the new step a name of its own."""

    def __init__(self, status: int, problem: Mapping[str, Any], *, step_digest: str, stored_digest: str) -> None:
        super().__init__(status, problem)
        self.step_digest = step_digest
        """The digest of the step that was refused."""
        self.stored_digest = stored_digest
        """The digest of the step that has the id."""

    def __str__(self) -> str:
        mine, stored = getattr(self, "step_digest", ""), getattr(self, "stored_digest", "")
        return f"{super().__str__()}\n  this step is {mine}, the one that was handed off is {stored}"


class StaleLeaseError(ProblemError):
    """The fencing token is not the current one: the handoff is someone else's, or has ended (409)."""


class NotFoundError(ProblemError):
    """No such thing within this tenant (404)."""


class MethodNotAllowedError(ProblemError):
    """The path exists, the method does not (405)."""


class UnsupportedMediaTypeError(ProblemError):
    """The body is not `application/json` (415)."""


class PayloadTooLargeError(ProblemError):
    """The body is larger than the broker's limit (413)."""


class InvalidRequestError(ProblemError):
    """A query parameter, header or path segment is malformed (400, 422)."""


class OverloadedError(ProblemError):
    """A queue is full; come back after `retry_after` seconds (429, 503)."""


class UnavailableError(ProblemError):
    """The store cannot be reached; nothing was written (503)."""


class InternalError(ProblemError):
    """A defect of the broker (500)."""


class MaxIterationsError(ProblemError):
    """A completion states more rounds than the handoff allows (422)."""


class ContextTooLargeError(ProblemError):
    """The message is larger than the receiver's context window (422)."""


_BY_CODE: dict[str, type[ProblemError]] = {code: globals()[_class_name(code)] for code in CODES if _class_name(code) in globals()}
_BY_CODE.setdefault("CONTEXT_TOO_LARGE", ContextTooLargeError)


def problem_error(status: int, problem: Mapping[str, Any], *, retry_after: float | None = None) -> ProblemError:
    """The error of the document's code.

    Args:
        status: HTTP status.
        problem: The RFC 9457 document; may be empty.
        retry_after: Seconds of the `Retry-After` header.
    """
    kind = _BY_CODE.get(str(problem.get("code")), ProblemError)
    return kind(status, problem, retry_after=retry_after)


class Reject(HandoffdError):
    """Raised by a worker's handler: the handoff is not for this agent, and its task rolls back.

    Args:
        reason: A code in capitals, digits and underscores (`MISSING_CLAUSE_TEXT`) goes into the audit record as it is; any
            other text is content.
        details: Any JSON, kept with the verdict.
    """

    def __init__(self, reason: str, details: Any = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.details = details


class Fail(HandoffdError):
    """Raised by a worker's handler: the handoff was accepted and cannot be finished; its task rolls back.

    Args:
        code: A code in capitals, digits and underscores.
        message: One sentence for people.
    """

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message


class LeaseLostError(HandoffdError):
    """The handoff is no longer this worker's: its lease ended, or its task was cancelled. The handler's further work counts
    for nothing."""


# Names until 0.3; docs/sdk/names.md has the table.
WaitTimeout = WaitTimeoutError
HandoffEndedBadly = HandoffEndedBadlyError
SignatureError = VerificationError
LeaseLost = LeaseLostError
