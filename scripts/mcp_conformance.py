"""Runs the MCP conformance suite for 2026-07-28 against the MCP door, twice, and compares each failed check with the list of expected ones.

Usage: mcp_conformance.py CONFORMANCE HANDOFFD WORK
CONFORMANCE is the suite's program (npm `@modelcontextprotocol/conformance`), on a Node of at least 22 in PATH. The suite sends no
key, so a proxy in between adds one.

The suite asks for tools, resources, prompts and completions of its own making. The first run judges the broker as it ships, which
has none of them: those checks are expected to fail. The second run judges the program `tests/mcp_fixture`, whose door is the
broker's and whose handler has what the suite asks for. MCP_FIXTURE names that program, else cargo builds it.
"""

import dataclasses
import json
import os
import pathlib
import re
import secrets
import subprocess
import sys
import threading
import time
import urllib.request

from key_proxy import Proxy

CONFORMANCE, HANDOFFD, WORK = (pathlib.Path(one).resolve() for one in sys.argv[1:4])
ROOT = pathlib.Path(__file__).resolve().parent.parent

FIXTURE = "asks for a fixture tool, and the broker has its own tools alone"
NO_RESOURCES = "the door has no resources (docs/doors/mcp.md#what-is-not-there)"
NO_PROMPTS = "the door has no prompts (docs/doors/mcp.md#what-is-not-there)"
# Scenario, or scenario and check -> why it fails at the broker as it ships.
SHIPPED = {
    "completion-complete": "the door has no completion: its tools' arguments have no prompts to complete",
    **dict.fromkeys([f"tools-call-{one}" for one in (
        "simple-text", "image", "audio", "embedded-resource", "mixed-content", "error", "with-progress")], FIXTURE),
    **dict.fromkeys(["resources-list", "resources-read-text", "resources-read-binary", "resources-templates-read"], NO_RESOURCES),
    **dict.fromkeys([f"prompts-{one}" for one in (
        "list", "get-simple", "get-with-args", "get-embedded-resource", "get-with-image")], NO_PROMPTS),
    "caching/sep-2549-prompts-list-caching-hints": NO_PROMPTS,
    "caching/sep-2549-resources-list-caching-hints": NO_RESOURCES,
    "caching/sep-2549-resources-templates-list-caching-hints": NO_RESOURCES,
    "caching/sep-2549-resources-read-caching-hints": NO_RESOURCES,
    **dict.fromkeys([f"server-stateless/sep-2575-{one}" for one in (
        "server-rejects-undeclared-capability", "missing-capability-http-400",
        "http-server-no-independent-requests-on-stream", "server-no-log-without-loglevel")], FIXTURE),
    **dict.fromkeys([f"input-required-result-{one}" for one in (
        "basic-elicitation", "basic-sampling", "basic-list-roots", "request-state", "multiple-input-requests", "multi-round",
        "non-tool-request", "result-type", "tampered-state", "capability-check")], FIXTURE),
    # Recommendations, not requirements.
    "input-required-result-ignore-extra-params/sep-2322-ignore-unexpected-params": FIXTURE,
    "input-required-result-missing-input-response/sep-2322-missing-response-rerequests": FIXTURE,
    "sep-2164-resource-not-found/sep-2164-error-code": NO_RESOURCES,
    "sep-2164-resource-not-found/sep-2164-data-uri": NO_RESOURCES,
}
# The same for the door with the suite's fixtures.
FIXTURES: dict[str, str] = {}
# Run by the suite, and no part of what 2026-07-28 requires: an extension, and what asks for fixtures.
TASKS = "tasks-.*"
OPTIONAL = f"{TASKS}|json-schema-2020-12|http-header-validation|http-custom-header-server-validation"


@dataclasses.dataclass
class Run:
    """One run of the suite: its name, the program that serves the door, what does not count, the expected failures, and the fewest checks that pass."""

    name: str
    command: list
    optional: str
    expected: dict[str, str]
    least: int

    def path(self, what: str) -> pathlib.Path:
        return WORK / f"mcp-{self.name}-{what}"

    def start(self, proxy: Proxy, admin: str) -> tuple[subprocess.Popen, str]:
        environment = {
            **os.environ,
            "HANDOFFD_DATA_DIR": str(self.path("data")),
            "HANDOFFD_LISTEN": "127.0.0.1:0",
            "HANDOFFD_ADMIN_KEY": admin,
            "HANDOFFD_SERVER__PUBLIC_URL": f"http://localhost:{proxy.port}",
        }
        environment.pop("HANDOFFD_DATABASE_URL", None)
        log = self.path("broker.log")
        broker = subprocess.Popen(self.command, env=environment, stderr=log.open("wb"), stdout=subprocess.DEVNULL)
        for _ in range(300):
            found = re.search(r"listens on (http://\S+)", log.read_text())
            if found:
                return broker, found.group(1)
            time.sleep(0.1)
        broker.kill()
        sys.exit(log.read_text())

    def judged(self) -> bool:
        """Runs the suite, prints its totals, and says whether all is as expected."""
        proxy, admin = Proxy(), secrets.token_hex(24)
        broker, url = self.start(proxy, admin)
        try:
            register(url, admin, {"agentId": "peer"})
            proxy.to, proxy.key = int(url.rstrip("/").rsplit(":", 1)[1]), register(url, admin, {"agentId": "kit", "handoffTargets": ["peer"]})
            threading.Thread(target=proxy.serve, daemon=True).start()
            subprocess.run(
                [CONFORMANCE, "server", "--url", f"http://localhost:{proxy.port}/mcp", "--requirements", "2026-07-28",
                 "--timeout", "30000", "-o", self.path("checks")],
                check=False, stdout=self.path("conformance.log").open("wb"), stderr=subprocess.STDOUT,
            )
            return self.judge()
        finally:
            broker.kill()
            broker.wait()

    def judge(self) -> bool:
        passed, expected, unexpected, stale = 0, 0, [], set(self.expected)
        for path in sorted(self.path("checks").glob("server-*/checks.json")):
            scenario = re.sub(r"-\d{4}-\d\d-\d\dT.*$", "", path.parent.name).removeprefix("server-")
            if re.fullmatch(self.optional, scenario):
                continue
            for check in json.loads(path.read_text()):
                name = f"{scenario}/{check['id']}"
                if check["status"] == "SUCCESS":
                    passed += 1
                elif check["status"] in ("FAILURE", "WARNING"):
                    known = [one for one in (scenario, name) if one in self.expected]
                    if known and check["id"] != "wire-schema-valid":
                        expected += 1
                        stale -= set(known)
                    else:
                        unexpected.append(f"{name}: {check.get('errorMessage')}")
                elif name in self.expected:
                    stale.discard(name)
        print(f"MCP conformance, 2026-07-28, {self.name}: {passed} checks pass, {expected} fail as expected, {len(unexpected)} fail")
        for one in unexpected:
            print(f"  UNEXPECTED {one}")
        for one in sorted(stale):
            print(f"  {one} passes: take it from the list of exceptions")
        return not unexpected and passed >= self.least


def register(url: str, admin: str, agent: dict) -> str:
    headers = {"Authorization": f"Bearer {admin}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/agents", json.dumps(agent).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["apiKey"]


def fixture() -> str:
    """The program that has the suite's fixtures."""
    if named := os.environ.get("MCP_FIXTURE"):
        return named
    build = ["cargo", "build", "--locked", "--example", "mcp-fixture", "--message-format=json-render-diagnostics"]
    built = subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    made = [json.loads(line).get("executable") for line in built.stdout.splitlines() if '"mcp-fixture"' in line]
    return next(one for one in made if one)


def main() -> int:
    runs = [
        Run("shipped", [HANDOFFD, "serve"], OPTIONAL, SHIPPED, 60),
        Run("fixtures", [fixture()], TASKS, FIXTURES, 140),
    ]
    return 0 if all([run.judged() for run in runs]) else 1


sys.exit(main())
