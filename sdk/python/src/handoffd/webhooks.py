"""Deliveries and events by webhook: their signature (Standard Webhooks 1.0), and the answers that a receiver may give."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ._task import task_of
from .errors import VerificationError

TOLERANCE_S: Final = 300
"""Seconds by which a signature's time may differ from now."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A verified delivery."""

    webhook_id: str
    """The same at each attempt: a receiver recognises a repetition by it."""
    body: dict[str, Any]
    """The handoff message; the chunk where `chunk` is set; the sample where `test` is set; or the event."""
    handoff_id: str | None = None
    task_id: str | None = None
    attempt: int | None = None
    """From 1."""
    fencing_token: int | None = None
    """Goes back with each callback."""
    traceparent: str | None = None
    chunk: int | None = None
    """The number of a chunk in its stream, from 1; `None` if the body is not a chunk."""
    test: bool = False
    """Whether an operator tests the webhook: the request belongs to no handoff."""

    @property
    def message(self) -> dict[str, Any] | None:
        """The handoff message; `None` for a test, a chunk or an event."""
        is_handoff = self.handoff_id is not None and self.chunk is None and not self.test
        return self.body if is_handoff else None

    @property
    def task(self) -> str | None:
        """The task: `taskDescription`, or of an `INITIAL` handoff the first open subtask; `None` without a
        handoff message."""
        return None if self.message is None else task_of(self.message)

    @property
    def state(self) -> dict[str, Any]:
        """`currentState` of the handoff message; empty where there is none."""
        return dict((self.message or {}).get("currentState") or {})


def verify_webhook(
    body: bytes | str,
    headers: Mapping[str, str],
    secrets: str | Sequence[str],
    *,
    tolerance: float = TOLERANCE_S,
    now: float | None = None,
) -> Delivery:
    """Checks the signature of a delivery or an event.

    Args:
        body: The raw body, after any content coding was undone and before any JSON parser.
        headers: The request's headers; names in any case.
        secrets: The webhook secret (`whsec_…`), or both while one is rotated out.
        tolerance: Seconds by which `webhook-timestamp` may differ from now.
        now: Unix seconds, instead of the clock.

    Raises:
        VerificationError: A header is missing, the time is too far off, no signature fits, or the body is not a JSON object.
        ValueError: A secret that is empty, or no base64 text.
    """
    raw = body.encode() if isinstance(body, str) else bytes(body)
    given = {name.lower(): value for name, value in headers.items()}
    try:
        webhook_id, at, signatures = (given[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
    except KeyError as missing:
        raise VerificationError(f"the header {missing.args[0]} is missing") from None
    if not re.fullmatch("[0-9]{1,12}", at):
        raise VerificationError("webhook-timestamp is not a number of seconds")
    sent = int(at)
    if abs((time.time() if now is None else now) - sent) > tolerance:
        raise VerificationError(f"webhook-timestamp is more than {tolerance:g} s from now")
    signed = f"{webhook_id}.{at}.".encode(errors="replace") + raw
    expected = [_tag(signed, secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    found = [one[3:] for one in signatures.split(" ") if one.startswith("v1,")]
    # Each pair is compared, so that the time does not tell which secret fits.
    if not any([hmac.compare_digest(one.encode(errors="replace"), tag) for one in found for tag in expected]):  # noqa: C419
        raise VerificationError("no signature fits the body")
    try:
        content = json.loads(raw)
    except ValueError:
        raise VerificationError("the body is not JSON") from None
    if not isinstance(content, dict):
        raise VerificationError("the body is not a JSON object")
    numbers = [given.get(f"handoff-{name}", "") for name in ("attempt", "fencing-token", "chunk")]
    attempt, token, chunk = (int(text) if re.fullmatch("[0-9]{1,15}", text) else None for text in numbers)
    return Delivery(
        webhook_id,
        content,
        given.get("handoff-id"),
        given.get("handoff-task-id"),
        attempt,
        token,
        given.get("traceparent"),
        chunk,
        given.get("handoff-test", "").lower() == "true",
    )


def _tag(signed: bytes, secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        # A secret that a deployment left empty is known to everybody.
        raise ValueError("a webhook secret is `whsec_` and base64")
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())


def accepted(details: Any = None) -> dict[str, Any]:
    """The body of a 200 that accepts a delivery."""
    return {"status": "ACCEPTED"} if details is None else {"status": "ACCEPTED", "details": details}


def rejected(reason: str, details: Any = None) -> dict[str, Any]:
    """The body of a 200 that rejects a delivery.

    Args:
        reason: A code in capitals (`MISSING_CLAUSE_TEXT`) goes into the audit record as it is.
        details: Any JSON.
    """
    answer: dict[str, Any] = {"status": "REJECTED", "reason": reason}
    return answer if details is None else {**answer, "details": details}
