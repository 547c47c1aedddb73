"""The A2A bridge of PyPI `dhp-protocol` over HTTP, and a worker that sends each handoff to a receiver.

Usage: dhp_bridge.py front PORT FOLDER
       dhp_bridge.py worker FOLDER RECEIVER
The library has the bridge in one process, without HTTP: the front adds `message:send`, `GET /tasks/{id}` and a card, and nothing else. Its
supervisor (`dhp-supervisor`) runs beside them. The worker claims what waits, recovers what the supervisor orphaned, and releases what it
could not deliver.
"""

import os
import sys
import time

import httpx
import uvicorn
from dhp import Store, claim, recover
from dhp.a2a_bridge import DHPBridge
from dhp.errors import DHPError
from google.protobuf import json_format
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

RESULT = {"type": "object", "properties": {"delivered": {"type": "boolean"}}, "required": ["delivered"]}


def front(port: int, folder: str) -> None:
    bridge = DHPBridge(folder, bridge_id=f"front-{os.getpid()}")

    def shown(task) -> dict:
        return json_format.MessageToDict(task)

    async def send(request: Request) -> JSONResponse:
        message = (await request.json())["message"]
        text = "\n".join(part["text"] for part in message["parts"] if "text" in part)
        inputs = {"messageId": message["messageId"], "parts": message["parts"]}
        task = bridge.submit_task(text, task_kind="certify.deliver", inputs=inputs, output_schema=RESULT)
        return JSONResponse({"task": shown(task)})

    async def task(request: Request) -> JSONResponse:
        name = request.path_params["id"]
        if name not in bridge.tasks:
            return JSONResponse({"error": {"code": 404, "details": [{"reason": "TASK_NOT_FOUND"}]}}, 404)
        return JSONResponse(shown(bridge.get_task(name)))

    async def card(_: Request) -> JSONResponse:
        return JSONResponse({"name": "dhp-protocol bridge", "version": __import__("dhp").__version__})

    routes = [
        Route("/message:send", send, methods=["POST"]),
        Route("/tasks/{id}", task),
        Route("/.well-known/agent-card.json", card),
    ]
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=port, log_level="warning")


def worker(folder: str, receiver: str) -> None:
    store, name = Store(folder), f"worker-{os.getpid()}"
    over: set[str] = set()
    with httpx.Client(timeout=120) as http:
        while True:
            worked = False
            for hid in store.all_hids():
                if hid in over:
                    continue
                envelope = store.get_envelope(hid)
                status = envelope["execution"]["status"]
                if status in ("completed", "failed"):
                    over.add(hid)
                if status not in ("pending", "orphaned"):
                    continue
                try:
                    context = (claim if status == "pending" else recover)(store, hid, name)
                except DHPError:
                    # Released a moment ago, or another has it.
                    continue
                worked = True
                inputs = envelope["task"]["inputs"]["inline"]
                answer = http.post(receiver, json={"messageId": inputs["messageId"], "handoff": hid})
                if answer.status_code == 200:
                    context.complete({"delivered": True})
                    over.add(hid)
                else:
                    context.release(f"the receiver answered {answer.status_code}")
                    time.sleep(0.2)
            if not worked:
                time.sleep(0.02)


if sys.argv[1] == "front":
    front(int(sys.argv[2]), sys.argv[3])
else:
    worker(sys.argv[2], sys.argv[3])
