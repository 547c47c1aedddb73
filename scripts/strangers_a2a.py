"""A client as the official Python SDK (PyPI `a2a-sdk`) has it: a message to an agent behind the broker, a question, the artifact.

Usage: strangers_a2a.py URL ADMIN_KEY
Both bindings are taken, waiting and as a stream. The agent is a plain receiver of the broker that looks into its inbox.
"""

import asyncio
import json
import sys
import urllib.request

import httpx
from a2a.client import ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    TaskState,
)
from a2a.utils.signing import create_signature_verifier
from jwt.api_jwk import PyJWK

URL, ADMIN_KEY = sys.argv[1:3]


def call(key: str, method: str, path: str, body: dict | None = None) -> dict:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{URL}{path}", data, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def register(agent: str, **more: object) -> str:
    return call(ADMIN_KEY, "POST", "/agents", {"agentId": agent, **more})["apiKey"]


def work(agent: str, key: str) -> None:
    """Takes one handoff, asks, waits for the answer, and completes with it."""
    item = call(key, "GET", f"/agents/{agent}/inbox?wait=20")["items"][0]
    path, token = f"/handoffs/{item['message']['handoffId']}", item["fencingToken"]
    call(key, "POST", f"{path}/accept", {"fencingToken": token})
    call(key, "POST", f"{path}/ask", {"fencingToken": token, "question": "Which currency?"})
    page = call(key, "GET", f"{path}?wait=30&until=answered")
    result = {"sum": sum(item["message"]["currentState"]["invoices"]), "currency": page["asked"]["answer"]}
    call(key, "POST", f"{path}/complete", {"fencingToken": page["fencingToken"], "result": result})


def keys(kid: str | None, jku: str | None) -> PyJWK:
    with urllib.request.urlopen(jku) as answer:
        return PyJWK(next(key for key in json.load(answer)["keys"] if key["kid"] == kid))


def message(number: int, text: str, **more: object) -> SendMessageRequest:
    parts = [Part(text=text)]
    if "task_id" not in more:
        data = Part()
        data.data.struct_value.update({"invoices": [3, 4]})
        parts.append(data)
    said = Message(message_id=f"m-{number}-{text}", role=Role.ROLE_USER, parts=parts, **more)
    return SendMessageRequest(message=said, configuration=SendMessageConfiguration())


async def converse(binding: str, streaming: bool, number: int) -> None:
    name = f"clerk-{number}"
    receiver = register(name, card={}, description="Adds up invoices", capabilities=["sums"])
    sender = register(f"client-{number}", handoffTargets=[name])
    headers = {"Authorization": f"Bearer {sender}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        card = await A2ACardResolver(http, f"{URL}/a2a/{name}").get_agent_card(
            signature_verifier=create_signature_verifier(keys, ["EdDSA"])
        )
        config = ClientConfig(streaming=streaming, httpx_client=http, supported_protocol_bindings=[binding])
        client = ClientFactory(config).create(card)
        working = asyncio.get_running_loop().run_in_executor(None, work, name, receiver)
        task, artifacts = None, []

        async def say(request: SendMessageRequest) -> None:
            nonlocal task
            async for update in client.send_message(request):
                if update.HasField("task"):
                    task = update.task
                    artifacts.extend(task.artifacts)
                elif update.HasField("status_update"):
                    task.status.CopyFrom(update.status_update.status)
                elif update.HasField("artifact_update"):
                    artifacts.append(update.artifact_update.artifact)

        await say(message(number, "Add up the invoices"))
        assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED, task
        assert task.status.message.parts[0].text == "Which currency?", task
        await say(message(number, "EUR", task_id=task.id, context_id=task.context_id))
        await working
        assert task.status.state == TaskState.TASK_STATE_COMPLETED, task
        result = dict(artifacts[-1].parts[0].data.struct_value)
        assert result == {"sum": 7.0, "currency": "EUR"}, result
        whole = await client.get_task(GetTaskRequest(id=task.id))
        assert [one.role for one in whole.history] == [Role.ROLE_USER, Role.ROLE_AGENT, Role.ROLE_USER], whole
        listed = await client.list_tasks(ListTasksRequest(context_id=task.context_id))
        assert [one.id for one in listed.tasks] == [task.id] and listed.total_size == 1, listed
        # The context goes on; nobody takes this one, and the client withdraws it.
        request = message(number, "And the taxes", context_id=task.context_id)
        request.configuration.return_immediately = True
        polling = ClientFactory(ClientConfig(streaming=False, httpx_client=http, supported_protocol_bindings=[binding])).create(card)
        async for update in polling.send_message(request):
            assert update.task.status.state == TaskState.TASK_STATE_SUBMITTED, update
            canceled = await polling.cancel_task(CancelTaskRequest(id=update.task.id))
            assert canceled.status.state == TaskState.TASK_STATE_CANCELED, canceled
        print(f"a2a-sdk: {binding}, {'stream' if streaming else 'wait'}: {task.id} completed")


async def main() -> None:
    roads = [(binding, streaming) for binding in ("JSONRPC", "HTTP+JSON") for streaming in (False, True)]
    for number, (binding, streaming) in enumerate(roads):
        await converse(binding, streaming, number)


asyncio.run(main())
