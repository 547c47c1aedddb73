"""Run by scripts/console-browser/figures.

Makes the store of `handoffd demo --console` and measures it; hands one task on through 5 000 handoffs (10 000 records) and copies
tasks and handoffs, past the broker, until the store has a million of each; and measures again. SQLite.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import statistics
import subprocess
import tempfile
import time
import urllib.parse

BROKER = os.environ["BROKER"]
FIRST_BYTE_MS = 50
USABLE_MS = 300
Figures = dict[str, tuple[float, float, float, int]]


class Broker:
    """A broker on a store of its own."""

    def __init__(self, args: list[str], **env: str) -> None:
        self.child = subprocess.Popen(
            [BROKER, *args], env=os.environ | env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        words = ""
        for line in self.child.stderr:
            words += line
            if place := re.search(r"the console is at http://([^/\s]+)/console", line):
                self.address = place[1]
                return
        raise SystemExit(f"the broker ended: {words}")

    def stop(self) -> None:
        self.child.send_signal(signal.SIGTERM)
        self.child.stderr.close()
        self.child.wait()

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Visitor:
    """A browser's connection, after the login."""

    def __init__(self, address: str, key: str) -> None:
        self.address = address
        self.connection = http.client.HTTPConnection(address, timeout=600)
        self.key = key
        form = urllib.parse.urlencode({"key": key, "next": "/console"})
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"http://{address}"}
        self.connection.request("POST", "/console/login", form, headers)
        answer = self.connection.getresponse()
        answer.read()
        if answer.status != 303:
            raise SystemExit(f"the login was refused: {answer.status}")
        self.cookie = answer.headers["Set-Cookie"].split(";")[0]

    def page(self, where: str) -> tuple[float, int]:
        """Milliseconds to the first byte, and the size in bytes."""
        start = time.perf_counter()
        self.connection.request("GET", where, headers={"Cookie": self.cookie})
        answer = self.connection.getresponse()
        first = time.perf_counter()
        body = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{where}: {answer.status}")
        return (first - start) * 1000, len(body)

    def api(self, method: str, where: str, body: object = None, key: str = "") -> dict:
        headers = {"Authorization": f"Bearer {key or self.key}", "Content-Type": "application/json"}
        self.connection.request(method, where, None if body is None else json.dumps(body), headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {where}: {answer.status} {text.decode()}")
        return json.loads(text) if text else {}


def screens(visitor: Visitor) -> dict[str, str]:
    """The address of one screen of each kind."""

    def first(where: str, *names: str) -> list[str]:
        items = visitor.api("GET", where)["items"]
        return [urllib.parse.quote(str(items[0][name]), safe="") for name in names] if items else []

    [task] = first("/tasks?status=PENDING_HANDOFF", "taskId")
    [handoff] = first("/handoffs?status=COMPLETED", "handoffId")
    [letter] = first("/dead-letters?status=OPEN", "handoffId")
    [escalation] = first("/escalations?status=OPEN", "escalationId")
    [receiver] = first("/receivers", "agentId")
    places = {
        "Needs attention": "",
        "Tasks": "/tasks",
        "A task": f"/tasks/{task}",
        "A handoff": f"/handoffs/{handoff}",
        "Dead letters": "/dead-letters",
        "A dead letter": f"/dead-letters/{letter}",
        "Decisions": "/decisions",
        "A decision": f"/decisions/{escalation}",
        "Receivers": "/receivers",
        "A receiver": f"/receivers/{receiver}",
        "Refusals": "/refusals",
        "Costs": "/costs",
        "Edges and contracts": "/edges",
        "Evidence": "/evidence",
        "Subscriptions": "/subscriptions",
        "Keys": "/keys",
        "Sessions": "/sessions",
    }
    return {name: f"/console{place}" for name, place in places.items()}


def lists(user: str) -> dict[str, str]:
    """Lists of tasks by filters."""
    places = {
        "Tasks, completed": "status=COMPLETED",
        "Tasks, idle": "status=PENDING_HANDOFF",
        "Tasks of one day": "from=2020-06-01&to=2020-06-02",
        "Tasks, nothing left": "leftAtMostUSD=0",
        "Tasks of a user": f"userRef={urllib.parse.quote(user)}",
    }
    return {name: f"/console/tasks?{query}" for name, query in places.items()}


def measure(visitor: Visitor, places: dict[str, str], rounds: int) -> Figures:
    """Median and largest time to the first byte, median time until usable, and size. The first round is not counted."""
    times: dict[str, list[tuple[float, int]]] = {name: [] for name in places}
    for turn in range(rounds + 1):
        for name, where in places.items():
            one = visitor.page(where)
            if turn:
                times[name].append(one)
    asked = {"address": visitor.address, "key": visitor.key, "places": places, "rounds": rounds}
    script = pathlib.Path(__file__).with_name("usable.mjs")
    answer = subprocess.run(["node", script], input=json.dumps(asked), stdout=subprocess.PIPE, text=True, check=True)
    usable = json.loads(answer.stdout)
    return {
        name: (statistics.median(ms for ms, _ in each), max(ms for ms, _ in each), usable[name], each[-1][1])
        for name, each in times.items()
    }


def long_task(visitor: Visitor, hops: int) -> str:
    """A task that two agents hand to and fro."""
    keys = {}
    for name, other in (("ping", "pong"), ("pong", "ping")):
        agent = {"agentId": name, "delivery": {"mode": "pull"}, "handoffTargets": [other]}
        keys[name] = visitor.api("POST", "/agents", agent)["apiKey"]
    task = "7a000000-0000-4000-8000-00000000000f"
    before = None
    for hop in range(hops):
        source, target = ("ping", "pong") if hop % 2 == 0 else ("pong", "ping")
        handoff = f"7b000000-0000-4000-8000-{hop:012x}"
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        message = {
            "schemaVersion": "2.1", "handoffId": handoff, "taskId": task, "parentHandoffId": before, "timestamp": now,
            "fromAgent": {"agentId": source, "agentVersion": "1.0.0", "executionId": f"7c000000-0000-4000-8000-{hop:012x}"},
            "toAgent": {"agentId": target},
            "taskDescription": "Count to and fro",
            "completedSubtasks": [{"subtaskId": f"s{hop}", "description": "Counted", "result": {"round": hop}, "completedAt": now}],
            "remainingSubtasks": [{"subtaskId": f"s{hop + 1}", "description": "Count on"}],
            "currentState": {"round": hop, "note": f"The counter is at {hop}."},
            "relevantContext": [], "constraints": [],
            "costTracking": {"costSpentSoFarUSD": 0.0, "costBudgetRemainingUSD": 1.0, "tokenSpent": {"prompt": 0, "completion": 0}},
            "conversationHistorySummary": "Two agents count.",
            "conversationHistoryVerbatim": [], "toolCallHistory": [],
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "checkpoint": {"round": hop},
        }
        visitor.api("POST", "/handoffs", message, keys[source])
        claim = visitor.api("GET", f"/agents/{target}/inbox?wait=30", None, keys[target])
        [claim] = claim.get("items", [claim])
        token = {"fencingToken": claim["fencingToken"]}
        visitor.api("POST", f"/handoffs/{handoff}/accept", token, keys[target])
        before = handoff
    return task


def copy(store: pathlib.Path, most: int) -> None:
    """Copies completed tasks and their handoffs under other ids, spread over the years before."""
    [file] = [one for one in store.glob("*.db*") if one.suffix in (".db", ".sqlite")] or list(store.glob("*.sqlite*"))
    db = sqlite3.connect(file)
    db.execute("PRAGMA synchronous = OFF")
    columns = {
        table: [row[1] for row in db.execute(f"PRAGMA table_info({table})")] for table in ("tasks", "handoffs")
    }
    have = db.execute("SELECT count(*) FROM tasks").fetchone()[0]
    db.execute(
        "CREATE TEMP TABLE models AS SELECT row_number() OVER () - 1 AS n, t.tenant, t.task_id, "
        "(SELECT h.handoff_id FROM handoffs AS h WHERE h.tenant = t.tenant AND h.task_id = t.task_id LIMIT 1) AS handoff_id "
        "FROM tasks AS t WHERE t.status = 'COMPLETED' AND t.handoffs > 0"
    )
    models = db.execute("SELECT count(*) FROM models").fetchone()[0]
    uuid = "printf('%s-0000-4000-8000-%012x', '{}', c.n)"
    changed = {"task_id": uuid.format("0e000000"), "handoff_id": uuid.format("0f000000"), "parent_id": "NULL"}
    at = "1577836800000000 + c.n * 150000000"
    changed |= {name: at for name in ("created_at", "updated_at", "accepted_at", "ended_at")}
    numbers = "WITH RECURSIVE c(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM c WHERE n + 1 < ?)"
    for table, key in (("tasks", "task_id"), ("handoffs", "handoff_id")):
        names = columns[table]
        values = ", ".join(changed.get(name, f"x.{name}") for name in names)
        db.execute(
            f"INSERT INTO {table} ({', '.join(names)}) {numbers} SELECT {values} FROM c "
            f"JOIN models AS m ON m.n = c.n % {models} JOIN {table} AS x ON x.tenant = m.tenant AND x.{key} = m.{key}",
            (most - have,),
        )
        print(f"{table}: {db.execute(f'SELECT count(*) FROM {table}').fetchone()[0]}", flush=True)
    db.commit()
    db.close()


def table(title: str, figures: Figures) -> int:
    """Prints the figures, and counts those above an aim."""
    print(f"\n{title}\n| screen | first byte, median | largest | usable, median | bytes |\n|---|---|---|---|---|")
    for name, (first, largest, usable, size) in figures.items():
        print(f"| {name} | {first:.1f} ms | {largest:.1f} ms | {usable:.0f} ms | {size} |", flush=True)
    return sum(first > FIRST_BYTE_MS or usable > USABLE_MS for first, _, usable, _ in figures.values())


def main() -> None:
    options = argparse.ArgumentParser(description="Measures the console's screens.")
    options.add_argument("--tasks", type=int, default=1_000_000)
    options.add_argument("--hops", type=int, default=5_000)
    options.add_argument("--rounds", type=int, default=7)
    given = options.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="handoffd-figures-"))
    store = folder / "store"
    quiet = {"HANDOFFD_LOG__FILTER": "error"}
    try:
        with Broker(["demo", "--console", "--keep", str(store)], **quiet) as broker:
            key = (store / "admin.key").read_text().strip()
            visitor = Visitor(broker.address, key)
            places = screens(visitor)
            [user] = [one["userRef"] for one in visitor.api("GET", "/handoffs?limit=200")["items"] if one.get("userRef")][:1]
            late = table("the store of the demo", measure(visitor, places, given.rounds))
        serve = quiet | {
            "HANDOFFD_DATA_DIR": str(store), "HANDOFFD_LISTEN": broker.address, "HANDOFFD_GATE__MAX_HOPS": "10000", "HANDOFFD_GATE__MAX_EDGE_REPEATS": "10000",
        }
        with Broker(["serve"], **serve) as broker:
            visitor = Visitor(broker.address, key)
            places["A task of many hops"] = f"/console/tasks/{long_task(visitor, given.hops)}"
            places["its records"] = places["A task of many hops"] + "?view=records"
        copy(store, given.tasks)
        with Broker(["serve"], **serve) as broker:
            visitor = Visitor(broker.address, key)
            late += table(f"{given.tasks} tasks", measure(visitor, places | lists(user), given.rounds))
        aims = f"{FIRST_BYTE_MS} ms to the first byte, or {USABLE_MS} ms until usable"
        print(f"\n{late or 'no'} screens above {aims}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
