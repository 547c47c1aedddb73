"""An agent that hands a task to `hello-receiver`, in another process, and prints the result.

Standard library only; the SDK (docs/sdk/python.md) does the same in five lines.
"""

import datetime
import json
import os
import pathlib
import sys
import urllib.error
import urllib.request
import uuid

BROKER = os.environ.get("HANDOFFD_URL", "http://127.0.0.1:8080")
HERE = pathlib.Path(__file__).parent


def key(agent: str) -> str:
    """The agent's key, from the file that `handoffd apply --secrets-out` wrote."""
    lines = (HERE / "hello-keys.jsonl").read_text().splitlines()
    return next(line["apiKey"] for line in map(json.loads, lines) if line["name"] == agent)


def call(method: str, path: str, body: object = None) -> dict:
    request = urllib.request.Request(
        BROKER + path,
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        sys.exit(f"{method} {path}: {refused.code} {refused.read().decode()}")


KEY = key("hello-sender")
HANDOFF = str(uuid.uuid4())
NOW = datetime.datetime.now(datetime.timezone.utc).isoformat()

message = {
    "schemaVersion": "2.1",
    "handoffId": HANDOFF,
    "taskId": str(uuid.uuid4()),
    "parentHandoffId": None,
    "fromAgent": {
        "agentId": "hello-sender",
        "agentVersion": "1.0.0",
        "executionId": str(uuid.uuid4()),
    },
    "toAgent": {"agentId": "hello-receiver"},
    "timestamp": NOW,
    "taskDescription": "Greet the world",
    "taskSummary": "A greeting by name",
    "completedSubtasks": [
        {"subtaskId": "s0", "description": "Hear the name", "result": {"name": "world"}, "completedAt": NOW}
    ],
    "remainingSubtasks": [{"subtaskId": "s1", "description": "Say hello"}],
    # The contract asks for these; see handoffd/contracts.
    "currentState": {"name": "world", "provenance": {"trajectory": "hello_sender.py"}},
    "relevantContext": [],
    "constraints": ["language:en"],
    "costTracking": {
        "costSpentSoFarUSD": 0,
        "costBudgetRemainingUSD": 0.1,
        "tokenSpent": {"prompt": 0, "completion": 0},
    },
    "conversationHistorySummary": "The world asked to be greeted.",
    "conversationHistoryVerbatim": [],
    "toolCallHistory": [],
    "traceparent": f"00-{uuid.uuid4().hex}-{uuid.uuid4().hex[:16]}-01",
    "checkpoint": {"step": "asked"},
}

call("POST", "/handoffs", message)
status = None
while status not in ("COMPLETED", "FAILED", "REJECTED", "EXPIRED", "DEAD_LETTERED", "CANCELED"):
    done = call("GET", f"/handoffs/{HANDOFF}?wait=60&until=ended&include=verdict")
    status = done["status"]
print(f"hello-sender: {status}: {done.get('result')}")
