#!/usr/bin/env python3
"""Submits handoffs to a chart's ready brokers, as its Service would choose them, and counts what their receiver got.

    kubernetes_load.py NAMESPACE ADMIN_KEY RECEIVER_HOST STOP_FILE

It asks `kubectl` for the ready addresses four times a second, sends to each in turn from four threads, and repeats a submission that failed,
under its id, at the next address. The receiver listens on a free port of this machine and accepts. When STOP_FILE is there, it waits
until everything acknowledged has arrived (60 s at most), prints the counts as JSON, and exits with 1 where a handoff is missing.
"""

import collections
import http.server
import json
import pathlib
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid

NAMESPACE, ADMIN, HOST, STOP = sys.argv[1], sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4])
SENDERS, PAUSE_S, PATIENCE_S = 4, 0.05, 60

lock = threading.Lock()
ready: list[str] = []
delivered: collections.Counter[str] = collections.Counter()
acknowledged: list[str] = []
failures: collections.Counter[str] = collections.Counter()
brokers: collections.Counter[str] = collections.Counter()
slowest = 0.0


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with lock:
            delivered[message["handoffId"]] += 1
        answer = b'{"status":"ACCEPTED"}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


def watch() -> None:
    command = ["kubectl", "-n", NAMESPACE, "get", "endpointslices", "-l", "kubernetes.io/service-name=handoffd", "-o", "json"]
    while True:
        slices = json.loads(subprocess.check_output(command))["items"]
        points = [point for one in slices for point in one.get("endpoints") or []]
        ready[:] = [address for point in points if point["conditions"].get("ready") for address in point["addresses"]]
        time.sleep(0.25)


def call(address: str, path: str, key: str, body: dict) -> dict:
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    request = urllib.request.Request(f"http://{address}:8080{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def message(sender: str, receiver: str) -> dict:
    return {
        "schemaVersion": "2.1", "handoffId": str(uuid.uuid4()), "taskId": str(uuid.uuid4()), "parentHandoffId": None,
        "fromAgent": {"agentId": sender, "agentVersion": "1.0.0", "executionId": str(uuid.uuid4())}, "toAgent": {"agentId": receiver},
        "timestamp": "2026-06-12T08:00:00Z", "taskDescription": "INITIAL", "completedSubtasks": [],
        "remainingSubtasks": [{"subtaskId": "s1", "description": "Read clause 7"}], "currentState": {"documentId": "contract-7"},
        "relevantContext": [], "constraints": [], "conversationHistorySummary": "", "conversationHistoryVerbatim": [], "toolCallHistory": [],
        "costTracking": {"costSpentSoFarUSD": 0.01, "costBudgetRemainingUSD": 0.4, "tokenSpent": {"prompt": 10, "completion": 2}},
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    }


def send(sender: str, receiver: str, key: str, turn: int) -> None:
    global slowest
    while not STOP.exists():
        body, begun = message(sender, receiver), time.monotonic()
        while True:
            turn += 1
            addresses = list(ready)
            try:
                address = addresses[turn % len(addresses)]
                call(address, "/handoffs", key, body)
            except (ZeroDivisionError, urllib.error.URLError, OSError) as failure:
                with lock:
                    failures["no ready broker" if isinstance(failure, ZeroDivisionError) else str(failure)] += 1
                time.sleep(0.1)
                continue
            with lock:
                acknowledged.append(body["handoffId"])
                brokers[address] += 1
                slowest = max(slowest, time.monotonic() - begun)
            break
        time.sleep(PAUSE_S)


def main() -> int:
    server = http.server.ThreadingHTTPServer(("", 0), Receiver)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=watch, daemon=True).start()
    while not ready:
        time.sleep(0.1)
    webhook = {"mode": "webhook", "url": f"http://{HOST}:{server.server_address[1]}/"}
    call(ready[0], "/agents", ADMIN, {"agentId": "receiver", "delivery": webhook})
    key = call(ready[0], "/agents", ADMIN, {"agentId": "sender", "handoffTargets": ["receiver"]})["apiKey"]
    time.sleep(2)  # auth.cache_ttl_ms: the other brokers know the key then
    senders = [threading.Thread(target=send, args=("sender", "receiver", key, turn)) for turn in range(SENDERS)]
    for one in senders:
        one.start()
    print("sending", flush=True)
    for one in senders:
        one.join()
    patience = time.monotonic() + PATIENCE_S
    while time.monotonic() < patience and any(one not in delivered for one in acknowledged):
        time.sleep(0.2)
    missing = [one for one in acknowledged if one not in delivered]
    again = [one for one in acknowledged if delivered[one] > 1]
    counts = {"acknowledged": len(acknowledged), "missing": len(missing), "delivered again": len(again)}
    print(json.dumps({**counts, "failed calls": failures, "by broker": brokers, "slowest s": round(slowest, 2)}))
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
