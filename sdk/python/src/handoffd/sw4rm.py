"""SW4RM: its SDK's `HandoffClient` over a broker. Install `handoffd[sw4rm]`.

    from handoffd.sw4rm import HandoffClient

The six methods, their arguments and their types are those of `sw4rm.clients.HandoffClient`. Handoffs pass the broker's gate, are
committed, and outlive every process; the contexts that receivers restore are equal to those that senders serialized.
"""

from __future__ import annotations

import base64
import dataclasses
import time
import uuid
from collections.abc import Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self

from sw4rm.handoff.context import HandoffContext, deserialize_context
from sw4rm.handoff.types import HandoffRequest, HandoffResponse, HandoffStatus

from ._sync.client import Client
from ._wire import quoted
from .errors import NotFoundError, ProblemError, SchemaInvalidError

BROKER: Final = "handoffd"
"""The member of a delivered request's `metadata` that is the broker's: ids, fencing token, and what the message says besides."""
PATH: Final = "/adapters/sw4rm"
REFUSALS: Final = frozenset(
    {
        "BUDGET_EXHAUSTED",
        "BUDGET_MISMATCH",
        "CONTEXT_TOO_LARGE",
        "CONTRACT_VIOLATION",
        "CREDENTIAL_FOUND",
        "FORBIDDEN",
        "INCOMPLETE_CONTEXT",
        "LINEAGE_MISMATCH",
        "LOOP_DETECTED",
        "SAFETY_VIOLATION",
    }
)
"""Codes of the gate that are a rejection for the sender, not an error of its program."""
_FIELDS: Final = frozenset(field.name for field in dataclasses.fields(HandoffRequest))


def request_body(request: HandoffRequest) -> dict[str, Any]:
    """A request as the broker takes it: its members, with the bytes of the context in base64.

    Args:
        request: The request.
    """
    body = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    snapshot = body["context_snapshot"]
    body["context_snapshot"] = None if snapshot is None else base64.b64encode(snapshot).decode()
    return body


def handoff_request(body: Mapping[str, Any]) -> HandoffRequest:
    """A request as the broker delivers it (`delivery.format: "sw4rm"`, or pending): members that the installed SDK does not know
    are left out.

    Args:
        body: The JSON document.
    """
    members = {name: value for name, value in body.items() if name in _FIELDS}
    snapshot = members.get("context_snapshot")
    members["context_snapshot"] = None if snapshot is None else base64.b64decode(snapshot)
    return HandoffRequest(**members)


def handoff_context(request: HandoffRequest) -> HandoffContext:
    """The context of a request; an empty one where the sender gave none.

    Args:
        request: The request.

    Raises:
        ValueError: The bytes are no context.
    """
    return HandoffContext() if request.context_snapshot is None else deserialize_context(request.context_snapshot)


def handoff_id(request: HandoffRequest) -> str:
    """The id of a delivered request, which the SDK's type has no member for.

    Args:
        request: A request that the broker delivered.

    Raises:
        ValueError: The broker did not deliver it.
    """
    own = request.metadata.get(BROKER)
    found = own.get("handoffId") if isinstance(own, Mapping) else None
    if not isinstance(found, str):
        raise ValueError("the request did not come from the broker: its metadata has no handoff id")
    return found


def handoff_response(body: Mapping[str, Any]) -> HandoffResponse:
    """A response of the broker as the SDK's type. A status that the installed SDK does not know (`EXPIRED`) is `REJECTED`;
    `metadata["handoff_status"]` has the broker's own.

    Args:
        body: The JSON document.
    """
    status = HandoffStatus.__members__.get(str(body["status"]), HandoffStatus.REJECTED)
    return HandoffResponse(
        accepted=body["accepted"],
        handoff_id=body["handoff_id"],
        rejection_reason=body.get("rejection_reason"),
        status=status,
        metadata=dict(body.get("metadata") or {}),
    )


@dataclasses.dataclass(slots=True)
class _Claim:
    request: HandoffRequest
    token: int
    until: float


class HandoffClient:
    """The SDK's client of handoffs, over a broker.

    Args:
        url: The broker; `HANDOFFD_URL`, else `http://127.0.0.1:8080`.
        api_key: The agent's key; `HANDOFFD_API_KEY`.
        wait: Seconds, 60 at most, for which `request_handoff` waits for the receiver's verdict. Without, it returns `PENDING` as
            soon as the handoff is committed, as the SDK's own client does.
        trim: The number of turns to keep of a context (50 is the SDK's advice); without, contexts go as they are.
        client: A client of the broker to use instead of one of its own; it stays the caller's to close.

    Raises:
        ValueError: The URL is not an `http://` or `https://` URL, or the key cannot be in a header.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        wait: float | None = None,
        trim: int | None = None,
        client: Client | None = None,
    ) -> None:
        self._owned = client is None
        self._client = client or Client(url, api_key)
        self._transport = self._client._transport
        self.wait, self.trim = wait, trim
        self._claims: dict[str, _Claim] = {}

    def close(self) -> None:
        """Closes the client, unless it was given."""
        if self._owned:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def request_handoff(self, request: HandoffRequest, *, request_id: str | None = None) -> HandoffResponse:
        """Requests a handoff. A refusal by the gate or by routing is a response that is not accepted.

        Args:
            request: The request. An empty `to_agent` goes to an agent that has all of `capabilities_required`, or to the first of
                `metadata["preferred_agents"]` that takes it.
            request_id: The caller's own id of the request: the same one again, after a crash too, is the same handoff.

        Raises:
            ValueError: The request or its context does not fit; the cause is the broker's `SchemaInvalidError`.
            ProblemError: The key is not valid, or the broker is overloaded.
            TransportError: The broker did not answer. The same `request_id` asks again safely.
        """
        body = request_body(request)
        body["request_id"] = request_id or str(uuid.uuid4())
        held = None if self.wait is None else max(1, round(self.wait))
        try:
            answer = self._transport.call(
                "POST", f"{PATH}/handoffs", query={"trim": self.trim, "wait": held}, body=body, repeatable=True, wait=held
            )
        except SchemaInvalidError as refused:
            raise ValueError(str(refused)) from refused
        except ProblemError as refused:
            if refused.code not in REFUSALS:
                raise
            metadata = {"code": refused.code, "failures": [failure.to_json() for failure in refused.failures]}
            return HandoffResponse(False, str(uuid.uuid4()), refused.detail, HandoffStatus.REJECTED, metadata)
        return handoff_response(answer.json())

    def get_pending_handoffs(self, agent_id: str, *, wait: float = 0, limit: int = 100) -> list[HandoffRequest]:
        """The requests that wait for this agent's verdict; `handoff_id` tells their ids.

        The broker lends each to one caller at a time. This client tells those that it holds again until it has given a verdict,
        or the time that the broker lends them for is over.

        Args:
            agent_id: The agent whose key this is.
            wait: Seconds, 60 at most, to wait for a request where there is none.
            limit: The most requests to claim, 100 at most.

        Raises:
            ForbiddenError: The key is another agent's.
            ConflictError: The agent takes its handoffs by webhook.
            TransportError: The broker did not answer.
        """
        now = time.monotonic()
        self._claims = {name: claim for name, claim in self._claims.items() if claim.until > now}
        held = 0 if self._claims else max(0, round(wait))
        path = f"{PATH}/agents/{quoted(agent_id)}/pending"
        answer = self._transport.call("GET", path, query={"wait": held, "max": limit}, repeatable=True, wait=held)
        for body in answer.json()["handoffs"]:
            request = handoff_request(body)
            own = request.metadata[BROKER]
            until = datetime.fromisoformat(own["claimedUntil"]).timestamp() - time.time() + time.monotonic()
            self._claims[handoff_id(request)] = _Claim(request, own["fencingToken"], until)
        return [claim.request for claim in self._claims.values()]

    def accept_handoff(self, handoff_id: str, *, metadata: Mapping[str, Any] | None = None) -> HandoffResponse:
        """Accepts a pending handoff.

        Args:
            handoff_id: The handoff.
            metadata: Facts for the sender, such as the agent's capabilities.

        Raises:
            ValueError: No such handoff, it is not pending, or it was given to another meanwhile.
            ProblemError: The key is not the receiver's.
            TransportError: The broker did not answer.
        """
        return self._say(handoff_id, "accept", {"metadata": dict(metadata)} if metadata else {})

    def reject_handoff(self, handoff_id: str, reason: str) -> HandoffResponse:
        """Rejects a pending handoff.

        Args:
            handoff_id: The handoff.
            reason: Why, for the sender.

        Raises:
            ValueError: As for `accept_handoff`.
            ProblemError: The key is not the receiver's.
            TransportError: The broker did not answer.
        """
        return self._say(handoff_id, "reject", {"reason": reason})

    def complete_handoff(self, handoff_id: str, *, result: Any = None) -> HandoffResponse:
        """Completes an accepted handoff.

        Args:
            handoff_id: The handoff.
            result: The result: any JSON. The sender reads it in `metadata["result"]`.

        Raises:
            ValueError: No such handoff, it is not accepted, or it was given to another meanwhile.
            ProblemError: The key is not the receiver's, or the safety rules refuse the result.
            TransportError: The broker did not answer.
        """
        return self._say(handoff_id, "complete", {} if result is None else {"result": result})

    def get_handoff_status(self, handoff_id: str) -> HandoffResponse | None:
        """The state of a handoff; none if it does not exist, or is not the caller's.

        Args:
            handoff_id: The handoff.

        Raises:
            ProblemError: The key is not valid.
            TransportError: The broker did not answer.
        """
        try:
            answer = self._transport.call("GET", f"{PATH}/handoffs/{quoted(handoff_id)}", repeatable=True)
        except NotFoundError:
            return None
        return handoff_response(answer.json())

    def _say(self, handoff_id: str, verb: str, said: dict[str, Any]) -> HandoffResponse:
        expected = HandoffStatus.ACCEPTED if verb == "complete" else HandoffStatus.PENDING
        if claim := self._claims.get(handoff_id):
            status, said["fencing_token"] = HandoffStatus.PENDING, claim.token
        elif known := self.get_handoff_status(handoff_id):
            status, said["fencing_token"] = known.status, known.metadata.get("fencing_token")
        else:
            raise ValueError(f"Handoff {handoff_id} not found")
        if status is not expected:
            raise ValueError(f"Handoff {handoff_id} is not in {expected.value} status (current: {status.value})")
        path = f"{PATH}/handoffs/{quoted(handoff_id)}/{verb}"
        try:
            answer = self._transport.call("POST", path, body=said, repeatable=True)
        except NotFoundError as refused:
            raise ValueError(f"Handoff {handoff_id} not found") from refused
        except ProblemError as refused:
            if refused.status != 409:
                raise
            raise ValueError(f"Handoff {handoff_id} is not in {expected.value} status: {refused.detail}") from refused
        self._claims.pop(handoff_id, None)
        return handoff_response(answer.json())


__all__ = [
    "BROKER",
    "HandoffClient",
    "handoff_context",
    "handoff_id",
    "handoff_request",
    "handoff_response",
    "request_body",
]
