"""Deliveries by webhook from a real broker, and the published library's signatures."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from broker import REPOSITORY, free_port
from standardwebhooks.webhooks import Webhook

from handoffd import Client, Delivery, VerificationError, verify_webhook
from handoffd.webhooks import accepted, rejected

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@contextmanager
def receiving(secret: list[str], answers: list[dict[str, object]]) -> Iterator[tuple[str, list[Delivery]]]:
    seen: list[Delivery] = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            try:
                seen.append(verify_webhook(body, dict(self.headers), secret))
                answer, status = answers.pop(0), 200
            except VerificationError as error:
                answer, status = {"error": str(error)}, 401
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_delivery_is_verified_and_answered(admin: Client) -> None:
    name = uuid.uuid4().hex[:8]
    secret: list[str] = []
    with receiving(secret, [accepted(), rejected("NO_TIME", {"until": "noon"})]) as (url, seen):
        created = admin.agents.create(agent_id=f"hook-{name}", delivery={"mode": "webhook", "url": url})
        secret.append(created.webhook_secret)
        with admin.enroll(f"from-{name}", handoff_targets=[f"hook-{name}"]) as sender:
            first = sender.hand_off(f"hook-{name}", "Check it", wait=20)
            second = sender.hand_off(f"hook-{name}", "Check it", wait=20)
        assert (first.status, second.status, second.reason) == ("ACCEPTED", "REJECTED", "NO_TIME")
        assert [one.handoff_id for one in seen] == [first.handoff_id, second.handoff_id]
        assert seen[0].body["handoffId"] == seen[0].webhook_id == first.handoff_id
        assert (seen[0].attempt, seen[0].task_id) == (1, first.task_id) and seen[0].traceparent
        with Client(admin.url, created.api_key, agent_id=created.agent_id) as receiver:
            assert seen[0].fencing_token
            done = receiver.handoffs.complete(first.handoff_id, fencing_token=seen[0].fencing_token, result=1)
        assert done.status == "COMPLETED"


def headers_of(body: bytes, at: datetime.datetime) -> dict[str, str]:
    signature = Webhook(SECRET).sign("msg_1", at, body.decode())
    return {"Webhook-Id": "msg_1", "webhook-timestamp": str(int(at.timestamp())), "WEBHOOK-SIGNATURE": signature}


def test_the_signature_is_that_of_standard_webhooks() -> None:
    body = b'{"a": 1}'
    now = datetime.datetime.now(datetime.UTC)
    headers = headers_of(body, now)
    assert verify_webhook(body, headers, SECRET).body == {"a": 1}
    assert verify_webhook(body, headers, ["whsec_AAAA", SECRET]).webhook_id == "msg_1"
    two = {**headers, "WEBHOOK-SIGNATURE": "v1,AAAA " + headers["WEBHOOK-SIGNATURE"]}
    assert verify_webhook(body, two, SECRET).webhook_id == "msg_1"


def test_a_chunk_and_a_test_are_told_from_a_handoff() -> None:
    body, now = b'{"seq": 3, "append": []}', datetime.datetime.now(datetime.UTC)
    plain = {**headers_of(body, now), "Handoff-Id": "h1"}
    found = [verify_webhook(body, {**plain, **more}, SECRET) for more in ({}, {"Handoff-Chunk": "3"}, {"Handoff-Test": "true"})]
    assert [(one.chunk, one.test) for one in found] == [(None, False), (3, False), (None, True)]


def test_the_brokers_own_test_is_told_from_a_handoff(admin: Client) -> None:
    name = f"tried-{uuid.uuid4().hex[:8]}"
    secret: list[str] = []
    with receiving(secret, [accepted()]) as (url, seen):
        created = admin.agents.create(agent_id=name, delivery={"mode": "webhook", "url": url})
        secret.append(created.webhook_secret)
        admin.agents.test_delivery(name)
    assert [one.test for one in seen] == [True]


@pytest.mark.parametrize(
    "what",
    ["body", "id", "secret", "old", "future", "missing", "v2", "number", "another number", "another digit", "no text", "nothing"],
)
def test_what_does_not_fit_is_refused(what: str) -> None:
    body, now = b'{"a": 1}', datetime.datetime.now(datetime.UTC)
    if what in ("old", "future"):
        now += datetime.timedelta(seconds=-400 if what == "old" else 400)
    headers = headers_of(body, now)
    if what == "id":
        headers["Webhook-Id"] = "msg_2"
    if what == "missing":
        del headers["WEBHOOK-SIGNATURE"]
    if what == "v2":
        headers["WEBHOOK-SIGNATURE"] = headers["WEBHOOK-SIGNATURE"].replace("v1,", "v2,")
    if what == "number":
        headers["webhook-timestamp"] = "now"
    if what == "another number":
        headers["webhook-timestamp"] = "+" + headers["webhook-timestamp"]
    if what == "another digit":
        headers["webhook-timestamp"] = headers["webhook-timestamp"][:-1] + "\xb2"
    if what == "no text":
        headers["WEBHOOK-SIGNATURE"] = "v1,\udcff\xe9"
    if what == "nothing":
        headers["WEBHOOK-SIGNATURE"] = ""
    with pytest.raises(VerificationError):
        verify_webhook(b'{"a": 2}' if what == "body" else body, headers, "whsec_AAAA" if what == "secret" else SECRET)


def test_a_secret_that_is_no_base64_is_the_callers_error() -> None:
    with pytest.raises(ValueError, match="whsec_"):
        verify_webhook(b"{}", headers_of(b"{}", datetime.datetime.now(datetime.UTC)), "whsec_?")


@pytest.mark.parametrize("body", [b"", b"7", b"[]", b'"text"', b"{", b"\xff"])
def test_a_signed_body_that_is_no_object_is_refused(body: bytes) -> None:
    at = int(time.time())
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    tag = base64.b64encode(hmac.new(key, f"msg_1.{at}.".encode() + body, hashlib.sha256).digest()).decode()
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(at), "webhook-signature": f"v1,{tag}"}
    with pytest.raises(VerificationError, match="JSON"):
        verify_webhook(body, headers, SECRET)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_?", ["whsec_"]])
def test_a_secret_that_a_deployment_left_empty_lets_nothing_through(secret: str | list[str]) -> None:
    at = int(time.time())
    tag = base64.b64encode(hmac.new(b"", f"msg_1.{at}.{{}}".encode(), hashlib.sha256).digest()).decode()
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(at), "webhook-signature": f"v1,{tag}"}
    with pytest.raises(ValueError, match="whsec_"):
        verify_webhook(b"{}", headers, secret)
    with pytest.raises(VerificationError):
        verify_webhook(b"{}", headers, [])


def test_headers_that_are_not_signed_are_numbers_or_nothing() -> None:
    """Attempt and fencing token stand beside the signed body."""
    headers = headers_of(b"{}", datetime.datetime.now(datetime.UTC))
    for said, read in (("7", 7), ("\xb2", None), ("-1", None), ("1e3", None), ("9" * 5000, None), ("", None)):
        delivery = verify_webhook(b"{}", {**headers, "handoff-attempt": said, "handoff-fencing-token": said}, SECRET)
        assert (delivery.attempt, delivery.fencing_token) == (read, read)


def test_a_delivery_has_the_task_the_message_and_the_state() -> None:
    body = json.dumps(
        {"taskDescription": "INITIAL", "remainingSubtasks": [{"description": "Check it"}], "currentState": {"a": 1}}
    ).encode()
    plain = {**headers_of(body, datetime.datetime.now(datetime.UTC)), "Handoff-Id": "h1"}
    found = verify_webhook(body, plain, SECRET)
    assert (found.task, found.state, found.message) == ("Check it", {"a": 1}, found.body)
    for more in ({"Handoff-Chunk": "3"}, {"Handoff-Test": "true"}):
        other = verify_webhook(body, {**plain, **more}, SECRET)
        assert (other.task, other.message, other.state) == (None, None, {})
    event = verify_webhook(body, headers_of(body, datetime.datetime.now(datetime.UTC)), SECRET)
    assert (event.task, event.message) == (None, None)


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(urllib.request.Request(url, data=b"{}"), timeout=5)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def test_the_documented_receiver_takes_handoffs_of_this_sdk_and_an_operators_test(admin: Client) -> None:
    """Finding K5 of 0.3.0: it refused every first handoff, and crashed on a test."""
    page = (REPOSITORY / "docs" / "delivery.md").read_text()
    (program,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "HTTPServer(" in block]
    name, port = uuid.uuid4().hex[:8], free_port()
    url = f"http://127.0.0.1:{port}/"
    created = admin.agents.create(agent_id=f"doc-{name}", delivery={"mode": "webhook", "url": url})
    settings = {**os.environ, "WEBHOOK_SECRET": str(created.webhook_secret), "PORT": str(port)}
    receiver = subprocess.Popen([sys.executable, "-c", program], env=settings, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while not answers(url) and time.monotonic() < end:
            time.sleep(0.05)
        with admin.enroll(f"to-doc-{name}", handoff_targets=[created.agent_id]) as sender:
            first = sender.hand_off(created.agent_id, "Check it", state={"clause": "4.2"}, wait=30)
            other = sender.hand_off(created.agent_id, "Check it", wait=30)
        assert (first.status, other.status, other.reason) == ("ACCEPTED", "REJECTED", "MISSING_CLAUSE")
        assert admin.agents.test_delivery(created.agent_id).delivered
        assert receiver.poll() is None
    finally:
        receiver.kill()
        receiver.wait()
