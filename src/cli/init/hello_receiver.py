"""An agent that greets: it waits for handoffs, and answers each with a greeting. With --once it ends after the first.

Standard library only; the SDK (docs/sdk/python.md) does the same in ten lines, with leases, retries and questions.
"""

import json
import os
import pathlib
import sys
import urllib.error
import urllib.request

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


KEY = key("hello-receiver")

while True:
    for item in call("GET", "/agents/hello-receiver/inbox?wait=30")["items"]:
        path, token = f"/handoffs/{item['handoffId']}", item["fencingToken"]
        call("POST", f"{path}/accept", {"fencingToken": token})
        greeting = f"Hello, {item['message']['currentState']['name']}!"
        print(f"hello-receiver: {greeting}", flush=True)
        call("POST", f"{path}/complete", {"fencingToken": token, "result": {"greeting": greeting}})
        if "--once" in sys.argv:
            sys.exit()
