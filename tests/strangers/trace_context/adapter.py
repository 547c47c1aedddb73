"""Connects the W3C Trace Context test harness to a broker.

The harness asks a service to call it back, and looks at the trace context of the call. Here each call is a
handoff: the headers of the harness go to `POST /handoffs` as they came, byte for byte, and the handoff's
receiver is the harness itself. It judges the requests of the broker's own dispatcher.

Usage: adapter.py BROKER ADMIN_KEY      prints the address to give to the harness
"""

import http.client
import json
import secrets
import socketserver
import sys
import urllib.parse
import urllib.request
import uuid

broker, admin_key = sys.argv[1], sys.argv[2]
# Headers of the harness's request that are about that request alone.
OWN = {"host", "content-length", "content-type", "connection", "accept", "accept-encoding", "user-agent"}


def create(agent):
    request = urllib.request.Request(
        broker + "/agents",
        method="POST",
        data=json.dumps(agent).encode(),
        headers={"Authorization": f"Bearer {admin_key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        return json.loads(response.read())


def hand_off(url, lines):
    """One handoff whose receiver is `url`; returns once its only attempt is over."""
    receiver = "harness-" + uuid.uuid4().hex
    create({"agentId": receiver, "agentType": "harness", "delivery": {"mode": "webhook", "url": url}})
    # The sender works in a trace of its own, which the harness has not seen.
    own = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"
    message = {
        "schemaVersion": "2.1", "handoffId": str(uuid.uuid4()), "taskId": str(uuid.uuid4()), "parentHandoffId": None,
        "fromAgent": {"agentId": sender["agentId"], "agentVersion": "1.0.0", "executionId": str(uuid.uuid4())},
        "toAgent": {"agentId": receiver}, "timestamp": "2026-01-01T00:00:00Z", "taskDescription": "INITIAL",
        "completedSubtasks": [], "remainingSubtasks": [], "currentState": {}, "relevantContext": [], "constraints": [],
        "costTracking": {
            "costSpentSoFarUSD": 0, "costBudgetRemainingUSD": 1, "tokenSpent": {"prompt": 0, "completion": 0},
        },
        "conversationHistorySummary": "", "conversationHistoryVerbatim": [], "toolCallHistory": [],
        "traceparent": own,
    }
    body = json.dumps(message).encode()
    at = urllib.parse.urlsplit(broker)
    connection = http.client.HTTPConnection(at.hostname, at.port, timeout=20)
    connection.connect()
    head = [
        b"POST /handoffs HTTP/1.1", f"Host: {at.netloc}".encode(), b"Connection: close",
        f"Authorization: Bearer {sender['apiKey']}".encode(), b"Content-Type: application/json",
        f"Content-Length: {len(body)}".encode(), b"Prefer: wait=5", *lines,
    ]
    connection.sock.sendall(b"\r\n".join(head) + b"\r\n\r\n" + body)
    response = http.client.HTTPResponse(connection.sock, method="POST")
    response.begin()
    said = response.read()
    connection.close()
    if response.status not in (200, 202):
        raise RuntimeError(f"the broker answered {response.status}: {said.decode()}")


class Adapter(socketserver.StreamRequestHandler):
    def handle(self):
        self.rfile.readline()
        lines, length = [], 0
        while (line := self.rfile.readline().rstrip(b"\r\n")):
            name = line.split(b":", 1)[0].decode("latin-1").lower()
            if name == "content-length":
                length = int(line.split(b":", 1)[1])
            if name not in OWN:
                lines.append(line)
        status, answer = b"200 OK", b"null"
        try:
            for call in json.loads(self.rfile.read(length)):
                hand_off(call["url"], lines)
        except Exception as error:
            status, answer = b"502 Bad Gateway", json.dumps(str(error)).encode()
        self.wfile.write(b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\nConnection: close\r\n"
                         b"Content-Length: " + str(len(answer)).encode() + b"\r\n\r\n" + answer)


sender = create({"agentId": "adapter-" + uuid.uuid4().hex, "handoffTargets": ["type:harness"]})
socketserver.ThreadingTCPServer.daemon_threads = True
with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Adapter) as server:
    print(f"http://127.0.0.1:{server.server_address[1]}/test", flush=True)
    server.serve_forever()
