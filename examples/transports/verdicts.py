"""Checks what came by a queue, and signs verdicts for the reply channel. Needs nothing beside Python.

HANDOFF_WEBHOOK_SECRET (whsec_…) and HANDOFF_SIGNING_SECRET (hss_…) are those that the agent's registration showed.
"""

import base64
import datetime
import hashlib
import hmac
import json
import os
import time
from collections.abc import Mapping


def checked(headers: Mapping[str, str], body: bytes) -> bool:
    """Whether the broker sent this body, within the last day, by Standard Webhooks."""
    secret = base64.b64decode(os.environ["HANDOFF_WEBHOOK_SECRET"].removeprefix("whsec_"))
    sent = headers.get("webhook-timestamp", "0")
    # A queue may hold a handoff for long: the limit is the receiver's own choice.
    if abs(time.time() - int(sent)) > 86_400:
        return False
    signed = f"{headers.get('webhook-id')}.{sent}.".encode() + body
    ours = base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()
    theirs = headers.get("webhook-signature", "").split()
    return any(hmac.compare_digest(f"v1,{ours}", one) for one in theirs)


def verdict(headers: Mapping[str, str], kind: str, **fields: object) -> bytes:
    """A signed verdict: `accept`, `reject`, `heartbeat`, `complete` or `fail`, with the fields of its callback."""
    said = {
        "handoffId": headers["Handoff-Id"],
        "fencingToken": int(headers["Handoff-Fencing-Token"]),
        "verdict": kind,
        "timestamp": datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z"),
        **fields,
    }
    # RFC 8785 for texts and whole numbers; fractions ask for a library such as rfc8785.
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    secret = os.environ["HANDOFF_SIGNING_SECRET"].encode()
    said["signature"] = "hmac-sha256:" + hmac.new(secret, canonical.encode(), hashlib.sha256).hexdigest()
    return json.dumps(said).encode()
