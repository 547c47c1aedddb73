"""One task over four frameworks in two languages, each agent a process of its own, models scripted.

OpenAI Agents triage -> LangGraph extractor -> Google ADK scorer -> AI SDK summariser. On the way: a rejection with rollback and
repair, two kills (the triage and the extractor, each while it waits), and a hop whose context is compressed. The program prints
the trace, verifies the log, checks each of its claims, and exits with 0 only if all hold.

    PIPELINE_PYTHON      Python with handoffd[openai-agents,langgraph]; this one unless said
    PIPELINE_PYTHON_ADK  Python with handoffd[google-adk]; the same unless said
    PIPELINE_NODE        Node 22 or newer; `node` unless said
    HANDOFFD_BINARY      the broker; `handoffd` unless said
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from handoffd import Client

T = TypeVar("T")
HERE = Path(__file__).parent
PYTHON = os.environ.get("PIPELINE_PYTHON", sys.executable)
PYTHON_ADK = os.environ.get("PIPELINE_PYTHON_ADK", PYTHON)
NODE = os.environ.get("PIPELINE_NODE", "node")
BINARY = os.environ.get("HANDOFFD_BINARY", "handoffd")
WINDOW = 3000
"""The summariser's context window, in tokens: less than the conversation that reaches it."""

AGENTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "triage": ([PYTHON, "triage.py"], {"handoff_targets": ["extractor"]}),
    "extractor": ([PYTHON, "extractor.py"], {"handoff_targets": ["scorer"]}),
    "scorer": ([PYTHON_ADK, "scorer.py"], {"handoff_targets": ["summariser"]}),
    "summariser": ([NODE, "summariser.mjs"], {"context_window_tokens": WINDOW, "context_policy": "compress"}),
}


class Pipeline:
    """The broker, and a process for each agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{found.getsockname()[1]}"
        own = {name: value for name, value in os.environ.items() if not name.startswith("HANDOFFD_")}
        data = {"HANDOFFD_LISTEN": self.url.removeprefix("http://"), "HANDOFFD_DATA_DIR": str(folder / "data")}
        self.env = {**own, "OTEL_SDK_DISABLED": "true"}
        self.broker_env = {**own, **data}
        self.processes: list[subprocess.Popen[str]] = []
        self.broker = self._start([BINARY, "serve"], self.broker_env, "broker")
        until(self._is_ready, "the broker")
        self.admin = Client.local(self.url, data_dir=folder / "data")
        self.keys = {name: self.admin.enroll(name, **spec).api_key for name, (_, spec) in AGENTS.items()}

    def _is_ready(self) -> bool:
        assert self.broker.poll() is None, (self.folder / "broker.log").read_text()
        try:
            return httpx2.get(f"{self.url}/readyz", timeout=2).status_code == 200
        except httpx2.TransportError:
            return False

    def _start(self, command: list[str], env: dict[str, str], log: str) -> subprocess.Popen[str]:
        with (self.folder / f"{log}.log").open("a") as errors:
            process = subprocess.Popen(
                command, cwd=HERE, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.processes.append(process)
        return process

    def agent(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        """Starts an agent under its own key."""
        key = {"HANDOFFD_URL": self.url, "HANDOFFD_API_KEY": self.keys[name] or "", "HANDOFFD_AGENT_ID": name}
        return self._start([*AGENTS[name][0], *arguments], {**self.env, **key}, name)

    def command(self, *arguments: str) -> str:
        """One of the broker's commands."""
        done = subprocess.run([BINARY, *arguments], env=self.broker_env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def stop(self) -> None:
        """Stops everything, the broker last."""
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()


def until(found: Callable[[], T], what: str, seconds: float = 120) -> T:
    """Waits until something is found."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.1)
    raise TimeoutError(f"{what}: not within {seconds:.0f} s")


def kill(process: subprocess.Popen[str], name: str) -> None:
    """SIGKILL: no code of the process runs any more."""
    process.kill()
    assert process.wait(10) == -9, f"{name} was at work"
    print(f"killed: {name}, while it waits", flush=True)


def tell(pipeline: Pipeline) -> None:
    """The story."""
    admin, run = pipeline.admin, str(uuid.uuid4())

    def status(source: str, target: str) -> list[str]:
        found = admin.handoffs.list(from_agent=source, to_agent=target).items
        return [one.status for one in sorted(found, key=lambda one: one.created_at)]

    extractor = pipeline.agent("extractor")
    triage = pipeline.agent("triage", run)
    until(lambda: status("triage", "extractor") == ["ACCEPTED"], "the extractor accepts")
    kill(triage, "triage")

    pipeline.agent("scorer")
    until(lambda: status("extractor", "scorer") == ["REJECTED", "ACCEPTED"], "the scorer rejects, then accepts")
    kill(extractor, "extractor")

    # New processes, other process ids: what they need is at the broker.
    pipeline.agent("extractor")
    pipeline.agent("summariser")
    triage = pipeline.agent("triage", run)
    said = dict(line.split(" ", 1) for line in (triage.communicate(timeout=180)[0]).splitlines())
    assert triage.returncode == 0, (pipeline.folder / "triage.log").read_text()
    task, answer = said["TASK"], said["ANSWER"]

    print(pipeline.command("trace", task, "--url", pipeline.url))
    print(pipeline.command("verify"))
    trace = json.loads(pipeline.command("trace", task, "--url", pipeline.url, "--output", "json"))
    check("the answer came back to the triage", answer == "Do not sign yet: clause 9.3 has no cap.")
    hops = [(one["fromAgent"]["agentId"], one["toAgent"]["agentId"], one["status"]) for one in trace["handoffs"]]
    check(
        "four handoffs: each carried out once, one rejected",
        hops
        == [
            ("triage", "extractor", "COMPLETED"),
            ("extractor", "scorer", "REJECTED"),
            ("extractor", "scorer", "COMPLETED"),
            ("scorer", "summariser", "COMPLETED"),
        ],
    )
    kinds = [one["kind"] for one in trace["records"]]
    check("the rejection rolled the task back", kinds.count("ROLLED_BACK") == 1)
    check("one hop was compressed to the summariser's window", kinds.count("COMPRESSED") == 1)
    check("the task is completed", trace["status"] == "COMPLETED")
    check("the evidence verifies", trace["verification"]["ok"])


def check(claim: str, holds: bool) -> None:
    """Prints a claim with its verdict; ends the program where it does not hold."""
    print(f"{'ok    ' if holds else 'FAILED'} {claim}", flush=True)
    if not holds:
        raise SystemExit(1)


def main() -> None:
    """Runs the story in a folder that is removed."""
    with tempfile.TemporaryDirectory(prefix="mixed-pipeline-") as folder:
        pipeline = Pipeline(Path(folder))
        try:
            tell(pipeline)
        except (AssertionError, TimeoutError, subprocess.TimeoutExpired):
            for log in sorted(Path(folder).glob("*.log")):
                print(f"--- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
            raise
        finally:
            pipeline.stop()


if __name__ == "__main__":
    main()
