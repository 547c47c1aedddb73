"""`validate_handoff_message`: the gate's stages that need no broker, offline (seed 000 §7.2)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from . import _message_schema, canonical
from ._strict_json import JsonFault, escape, parse
from ._task import INITIAL
from ._wire import plain
from .errors import Failure, HandoffdError

MAX_CHECKPOINT_BYTES: Final = 1_048_576
"""The broker's default limit of a checkpoint, in bytes of canonical JSON."""
CHECKED: Final = ("json", "schema", "completeness", "budget")
"""The stages of the gate that a message alone decides. `signature` is among them where the caller gives the secret; without it
its form alone is looked at."""
UNCHECKED: Final = ("key", "identity", "allowlist", "route", "contract", "lineage", "loop", "safety")
"""The stages of the gate that need a broker: `Client.handoffs.validate` runs all of them. The binary, where it is installed, runs
`safety` offline."""

_PRECEDENCE = (
    "SIGNATURE_INVALID", "SCHEMA_INVALID", "FORBIDDEN", "SAFETY_VIOLATION", "CREDENTIAL_FOUND", "BUDGET_EXHAUSTED",
    "BUDGET_MISMATCH", "LINEAGE_MISMATCH", "LOOP_DETECTED", "CONTEXT_TOO_LARGE", "CONTRACT_VIOLATION",
    "NO_CAPABLE_AGENT", "INCOMPLETE_CONTEXT",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """`{valid: true, checked}`, or `{valid: false, reason, details, failures, checked}`; true in a condition where valid.

    Valid says that the stages in `checked` found nothing. A stage that is not in there may still refuse the message."""

    valid: bool
    reason: str | None = None
    """The first failure's code by the gate's precedence: `SCHEMA_INVALID`, `INCOMPLETE_CONTEXT`, `BUDGET_EXHAUSTED`, ..."""
    details: str | None = None
    """The failures' sentences, separated by semicolons."""
    failures: Sequence[Failure] = field(default=())
    """All failures, each with its JSON pointer."""
    checked: Sequence[str] = field(default=())
    """The stages that were run to their end: `safety` is among them where the broker's binary is installed."""

    def __bool__(self) -> bool:
        return self.valid

    def to_json(self) -> dict[str, Any]:
        """The seed's result shape."""
        if self.valid:
            return {"valid": True, "checked": list(self.checked)}
        return {
            "valid": False,
            "reason": self.reason,
            "details": self.details,
            "failures": [one.to_json() for one in self.failures],
            "checked": list(self.checked),
        }


class InvalidMessage(HandoffdError):
    """A message does not pass the offline validation."""

    def __init__(self, result: ValidationResult) -> None:
        super().__init__(f"{result.reason}: {result.details}")
        self.result = result


def validate_handoff_message(
    message: Mapping[str, Any] | bytes | str,
    *,
    required_state: Sequence[str] = (),
    signing_secret: str | None = None,
    max_checkpoint_bytes: int = MAX_CHECKPOINT_BYTES,
    scan: bool | None = None,
) -> ValidationResult:
    """Checks a message as the gate does, in the stages that need no broker: JSON, signature, schema, completeness, budget; and
    safety, by the broker's binary where it is installed.

    Failures have the gate's stages, codes, pointers and sentences. `checked` of the result names the stages that were run.

    Args:
        message: A message, or its JSON text.
        required_state: The members of `currentState` that the receiver requires: names of members, dotted names go deeper.
        signing_secret: Checks `signature` under this secret (`hss_…`) where the message has one.
        max_checkpoint_bytes: The largest checkpoint, in bytes of canonical JSON.
        scan: Run the safety rules too. Unless said, where the broker's binary is installed: that takes a process, some ten
            milliseconds. `False` never does.

    Raises:
        HandoffdError: `scan` is true and the binary is missing, or cannot be run.
        TypeError: The mapping has values that JSON cannot hold.
        ValueError: The mapping has a number that is not finite.
    """
    if not isinstance(message, (bytes, str)):
        message = json.dumps(plain(message), allow_nan=False)
    result = _offline(message, required_state, signing_secret, max_checkpoint_bytes)
    return result if scan is False else _scanned(message, result, needed=scan is True)


def _offline(
    message: bytes | str, required_state: Sequence[str], signing_secret: str | None, max_checkpoint_bytes: int
) -> ValidationResult:
    stages = CHECKED if signing_secret is None else (CHECKED[0], "signature", *CHECKED[1:])
    try:
        value = parse(message)
    except JsonFault as refused:
        return _result([refused.failure], stages[:1])
    unsigned = _unsigned(value, signing_secret)
    if unsigned is not None:
        return _result(
            [Failure("signature", "SIGNATURE_INVALID", "/signature", unsigned)], stages[: 1 + (signing_secret is not None)]
        )
    failures = _message_schema.check(value)
    if failures:
        return _result(failures, stages[:-2])
    if "checkpoint" in value:
        size = len(canonical.encode(value["checkpoint"]))
        if size > max_checkpoint_bytes:
            why = f"the checkpoint has {size} bytes; {max_checkpoint_bytes} are allowed"
            failures.append(Failure("schema", "SCHEMA_INVALID", "/checkpoint", why))
    return _result([*failures, *_opening(value), *_completeness(value, required_state), *_budget(value)], stages)


def _scanned(message: bytes | str, result: ValidationResult, *, needed: bool) -> ValidationResult:
    """The result with what the binary's safety rules find, where a message got as far as they are."""
    from . import binary

    if CHECKED[-1] not in result.checked:
        return result
    if not needed and binary.binary_path() is None:
        return result
    try:
        found = binary.validate_with_binary(message)
    except HandoffdError:
        # A binary that was not asked for and does not run is as none.
        if needed:
            raise
        return result
    unsafe = [one for one in found.failures if one.stage == "safety"]
    return _result([*result.failures, *unsafe], [*result.checked, "safety"])


def _result(failures: Sequence[Failure], checked: Sequence[str]) -> ValidationResult:
    if not failures:
        return ValidationResult(valid=True, checked=tuple(checked))
    order = {code: place for place, code in enumerate(_PRECEDENCE)}
    reason = min((one.code for one in failures), key=lambda code: order.get(code, len(order)))
    details = "; ".join(f"{one.pointer or '/'}: {one.message}" for one in failures)
    return ValidationResult(valid=False, reason=reason, details=details, failures=tuple(failures), checked=tuple(checked))


_SIGNATURE = re.compile(r"hmac-sha256:[0-9a-fA-F]{64}", re.A)


def _unsigned(message: dict[str, Any], secret: str | None) -> str | None:
    """The fault of a present signature; of its form alone if the secret is not known."""
    if "signature" not in message:
        return None
    given = message["signature"]
    if not isinstance(given, str) or not _SIGNATURE.fullmatch(given):
        return "`signature` must be `hmac-sha256:` and 64 hexadecimal digits."
    if secret is None or canonical.is_signed(message, secret):
        return None
    return (
        "The signature does not fit the message: it was changed after signing, signed with another secret, or not signed "
        "over its RFC 8785 form without `signature`."
    )


def _opens(message: dict[str, Any]) -> bool:
    """Whether the message opens a stream: chunks follow (specification §10.5)."""
    stream = message.get("stream")
    return isinstance(stream, dict) and stream.get("open") is True


def _opening(message: dict[str, Any]) -> Iterator[Failure]:
    """The members that a stream cannot have."""
    if not _opens(message):
        return
    for refused, pointer, why in (
        ("seq" in message["stream"], "/stream/seq", "the broker counts the chunks of a stream"),
        (bool(message.get("receiverList")), "/receiverList", "a stream goes to one receiver"),
        (
            "personalDataPayload" in message,
            "/personalDataPayload",
            "a stream carries no personal data: submit the message whole",
        ),
    ):
        if refused:
            yield Failure("schema", "SCHEMA_INVALID", pointer, why)


def _completeness(message: dict[str, Any], required_state: Sequence[str]) -> Iterator[Failure]:
    # Finished subtasks may follow in chunks.
    initial = message["taskDescription"] == INITIAL or _opens(message)
    if not initial and not message["completedSubtasks"]:
        yield Failure(
            "completeness",
            "INCOMPLETE_CONTEXT",
            "/completedSubtasks",
            f"No completed subtask, though `taskDescription` is not `{INITIAL}`: name what was done, or mark the "
            "handoff as initial.",
        )
    state = message["currentState"]
    for name in required_state:
        deep: Any = state
        for segment in name.split("."):
            deep = deep.get(segment) if isinstance(deep, dict) else None
        if state.get(name) is None and deep is None:
            pointer = "/currentState" + "".join(f"/{escape(segment)}" for segment in name.split("."))
            why = f"The receiver requires `{name}` in `currentState`, and it is missing or null."
            yield Failure("completeness", "INCOMPLETE_CONTEXT", pointer, why)


_AMOUNT = re.compile(r"([0-9]{1,10})(?:\.([0-9]{1,9}))?", re.A)
_MOST_NANOS = 1_000_000_000 * 10**9


def _budget(message: dict[str, Any]) -> Iterator[Failure]:
    # As the broker's books have it: in whole nano-dollars, halves away from zero.
    remaining = float(message["costTracking"]["costBudgetRemainingUSD"]) * 1e9
    nanos = int(abs(remaining) + 0.5) * (-1 if remaining < 0 else 1)
    if nanos <= 0:
        why = f"The remaining budget is {_dollars(nanos)} USD; nothing may be started on it."
        yield Failure("budget", "BUDGET_EXHAUSTED", "/costTracking/costBudgetRemainingUSD", why)
    named = False
    for place, constraint in enumerate(message["constraints"]):
        key, _, amount = constraint.partition(":")
        if key.strip() != "budgetUSD":
            continue
        found = _AMOUNT.fullmatch(amount.strip())
        if not found or int(found[1] + (found[2] or "").ljust(9, "0")) > _MOST_NANOS:
            why = "an amount is decimal US dollars from 0 to 1000000000 with at most nine decimals, such as 12.50"
        elif named:
            why = "the task's budget is named twice"
        else:
            named = True
            continue
        named = True
        yield Failure("budget", "SCHEMA_INVALID", f"/constraints/{place}", why)


def _dollars(nanos: int) -> str:
    whole, part = divmod(abs(nanos), 10**9)
    decimals = f"{part:09}".rstrip("0").ljust(2, "0")
    return f"{'-' if nanos < 0 else ''}{whole}.{decimals}"
