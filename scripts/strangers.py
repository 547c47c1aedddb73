"""A receiver written with the official Standard Webhooks library: one handoff must verify and be accepted."""

import json
import sys
import threading
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, HTTPServer

from standardwebhooks import Webhook

url, admin_key, receipt_file = sys.argv[1:4]
seen = {}


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        # Raises when the signature, the id or the timestamp does not hold.
        message = Webhook(seen["secret"]).verify(body, dict(self.headers))
        seen["message"] = message
        answer = json.dumps({"status": "ACCEPTED"}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def call(method, path, key, body=None, headers=None):
    request = urllib.request.Request(
        url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json", **(headers or {})},
    )
    with urllib.request.urlopen(request) as response:
        return json.loads(response.read() or b"null")


receiver = HTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=receiver.serve_forever, daemon=True).start()
suffix = uuid.uuid4().hex[:8]
target = call("POST", "/agents", admin_key, {
    "agentId": f"receiver-{suffix}",
    "delivery": {"mode": "webhook", "url": f"http://127.0.0.1:{receiver.server_port}/"},
})
seen["secret"] = target["webhookSecret"]
source = call("POST", "/agents", admin_key, {"agentId": f"sender-{suffix}", "handoffTargets": [target["agentId"]]})
handoff = {
    "schemaVersion": "2.1", "handoffId": str(uuid.uuid4()), "taskId": str(uuid.uuid4()), "parentHandoffId": None,
    "fromAgent": {"agentId": source["agentId"], "agentVersion": "1.0.0", "executionId": str(uuid.uuid4())},
    "toAgent": {"agentId": target["agentId"]},
    "timestamp": "2026-01-01T00:00:00Z", "taskDescription": "INITIAL",
    "completedSubtasks": [], "remainingSubtasks": [], "currentState": {"umlaut": "Grüße, 世界 🌍"},
    "relevantContext": [], "constraints": [],
    "costTracking": {"costSpentSoFarUSD": 0, "costBudgetRemainingUSD": 1, "tokenSpent": {"prompt": 0, "completion": 0}},
    "conversationHistorySummary": "", "conversationHistoryVerbatim": [], "toolCallHistory": [],
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
}
answer = call("POST", "/handoffs", source["apiKey"], handoff, {"Prefer": "wait=20"})
assert answer["status"] == "ACCEPTED", answer
assert seen["message"]["handoffId"] == handoff["handoffId"]
print("verified and accepted")
answer = call("POST", "/handoffs", source["apiKey"], {**handoff, "handoffId": str(uuid.uuid4())})
with open(receipt_file, "w") as out:
    json.dump(answer["receipt"], out)
