"""Agents of the official SDKs as receivers: `delivery.mode: "a2a"`, with the agent killed and started again in between.

Usage: strangers_a2a_out.py URL ADMIN_KEY WORK
WORK is an empty folder. STRANGERS_NPM names a folder with `@a2a-js/sdk` and `express`; without it the Python SDK alone is tried.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

URL, ADMIN_KEY, WORK = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
HERE = pathlib.Path(__file__).parent
DEADLINE = 60


def call(key: str, method: str, path: str, body: dict | None = None) -> dict:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{URL}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=70) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        raise SystemExit(f"{method} {path}: {refused.code}: {refused.read().decode()}") from refused


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def card_key(name: str) -> str:
    """The JSON Web Key Set of a key that signs cards; its private half is in WORK."""
    path = WORK / f"{name}.pem"
    if not path.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    public = serialization.load_pem_private_key(path.read_bytes(), None).public_key()
    return json.dumps({"keys": [{**ECAlgorithm.to_jwk(public, as_dict=True), "kid": "card"}]})


class Agent:
    """An agent's process, which dies and comes back with what it kept."""

    def __init__(self, name: str, command: list[str], binding: str, signs: bool) -> None:
        self.name, self.command, self.binding, self.signs = name, command, binding, signs
        self.port, self.gate = free_port(), WORK / f"{name}.gate"
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        arguments = [str(self.port), str(WORK / f"{self.name}.kept"), str(self.gate), self.binding]
        log = (WORK / f"{self.name}.log").open("ab")
        environment = dict(os.environ)
        if self.signs:
            card_key("card")
            environment["CARD_KEY"] = str(WORK / "card.pem")
        self.process = subprocess.Popen([*self.command, *arguments], stdout=log, stderr=log, env=environment)
        for _ in range(DEADLINE * 10):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/.well-known/agent-card.json", timeout=5).close()
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"{self.name} does not come up:\n{(WORK / f'{self.name}.log').read_text()}")

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


class Sender:
    def __init__(self, agent: Agent) -> None:
        self.target = agent.name
        config = {"url": f"http://127.0.0.1:{agent.port}"}
        if agent.signs:
            # A card that somebody else signed is refused.
            call(ADMIN_KEY, "POST", "/agents", {"agentId": f"{agent.name}-forged", "delivery": {"mode": "a2a", "config": {**config, "cardKeys": card_key("other")}}})
            refused = call(ADMIN_KEY, "POST", f"/agents/{agent.name}-forged/delivery/test", {})
            assert not refused["delivered"] and "no signature of the agent card holds" in refused["detail"], refused
            config["cardKeys"] = card_key("card")
        call(ADMIN_KEY, "POST", "/agents", {"agentId": agent.name, "delivery": {"mode": "a2a", "config": config}})
        tried = call(ADMIN_KEY, "POST", f"/agents/{agent.name}/delivery/test", {})
        assert tried["delivered"] and ("its signature holds" in tried["detail"]) == agent.signs, tried
        self.id = f"{agent.name}-sender"
        self.key = call(ADMIN_KEY, "POST", "/agents", {"agentId": self.id, "handoffTargets": [agent.name]})["apiKey"]

    def hand_off(self, work: str) -> str:
        handoff = {
            "schemaVersion": "2.1", "handoffId": str(uuid.uuid4()), "taskId": str(uuid.uuid4()), "parentHandoffId": None,
            "fromAgent": {"agentId": self.id, "agentVersion": "1.0.0", "executionId": str(uuid.uuid4())},
            "toAgent": {"agentId": self.target}, "timestamp": "2026-01-01T00:00:00Z", "taskDescription": "INITIAL",
            "completedSubtasks": [], "remainingSubtasks": [],
            "currentState": {"do": work, "invoices": [3, 4]}, "relevantContext": [], "constraints": [],
            "costTracking": {"costSpentSoFarUSD": 0, "costBudgetRemainingUSD": 1, "tokenSpent": {"prompt": 0, "completion": 0}},
            "conversationHistorySummary": "Two invoices.", "conversationHistoryVerbatim": [], "toolCallHistory": [],
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        }
        call(self.key, "POST", "/handoffs", handoff)
        return handoff["handoffId"]

    def becomes(self, handoff: str, status: str) -> dict:
        deadline = time.time() + DEADLINE
        while True:
            page = call(self.key, "GET", f"/handoffs/{handoff}")
            if page["status"] == status:
                return page
            if time.time() > deadline:
                raise SystemExit(f"{self.target}: {handoff} is not {status}, but {page['status']}: {json.dumps(page)}")
            time.sleep(0.1)


def converse(agent: Agent) -> None:
    agent.start()
    try:
        sender = Sender(agent)
        done = sender.becomes(sender.hand_off("sum"), "COMPLETED")
        assert done["result"] == {"sum": 7}, done
        asked = sender.hand_off("ask")
        page = sender.becomes(asked, "INPUT_REQUIRED")
        assert page["asked"]["question"] == "Which currency?", page
        call(sender.key, "POST", f"/handoffs/{asked}/answer", {"answer": "EUR"})
        assert sender.becomes(asked, "COMPLETED")["result"] == {"currency": "EUR"}
        refused = sender.becomes(sender.hand_off("refuse"), "REJECTED")
        assert refused["reason"] == "NOT_MY_TRADE", refused
        failed = sender.becomes(sender.hand_off("fail"), "FAILED")
        assert failed["reason"] == "A2A_TASK_FAILED", failed
        # Killed at work, and started again: the broker finds its task and gets the result.
        slow = sender.hand_off("slow")
        sender.becomes(slow, "ACCEPTED")
        agent.kill()
        time.sleep(1)
        agent.start()
        agent.gate.touch()
        assert sender.becomes(slow, "COMPLETED")["result"] == {"sum": 7}
        # Away while a handoff is committed: it waits, and is sent once the agent is back.
        agent.kill()
        late = sender.hand_off("sum")
        time.sleep(1)
        agent.start()
        assert sender.becomes(late, "COMPLETED")["result"] == {"sum": 7}
        # Withdrawn.
        agent.gate.unlink()
        slow = sender.hand_off("slow")
        page = sender.becomes(slow, "ACCEPTED")
        call(sender.key, "POST", f"/tasks/{page['taskId']}/cancel", {"reason": "NOT_NEEDED", "graceMs": 0})
        sender.becomes(slow, "CANCELED")
        print(f"{agent.name}: result, question, refusal, failure, killed at work, away, withdrawn: as they should be")
    finally:
        agent.kill()


def main() -> None:
    python = [sys.executable, str(HERE / "strangers_a2a_agent.py")]
    agents = [Agent("python-rpc", python, "JSONRPC", True), Agent("python-rest", python, "HTTP+JSON", True)]
    if os.environ.get("STRANGERS_NPM"):
        node = [os.environ.get("STRANGERS_NODE", "node"), str(HERE / "strangers_a2a_agent.mjs")]
        agents += [Agent("javascript-rpc", node, "JSONRPC", False), Agent("javascript-rest", node, "HTTP+JSON", False)]
    for agent in agents:
        converse(agent)


main()
