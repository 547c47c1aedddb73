"""An agent as the official Python SDK (PyPI `a2a-sdk`) has it, which knows nothing of the broker.

Usage: strangers_a2a_agent.py PORT DATABASE GATE BINDING
Where CARD_KEY names a private key (PEM, P-256), the SDK signs the card with it. Tasks and push configurations are in the SQLite file DATABASE, so the agent can be killed and started again. A task that says
`"do": "slow"` is worked on until the file GATE is there; one that was cut off by a kill is gone on with at the next start.
"""

import asyncio
import os
import pathlib
import sys

import httpx
import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes.agent_card_routes import create_agent_card_routes
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.routes.rest_routes import create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    DatabasePushNotificationConfigStore,
    DatabaseTaskStore,
    TaskUpdater,
)
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Artifact,
    ListTasksRequest,
    Part,
    Task,
    TaskState,
    TaskStatus,
)
from google.protobuf import json_format
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette

PORT, DATABASE, GATE, BINDING = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]), sys.argv[4]
URL = f"http://127.0.0.1:{PORT}"


def handed(message) -> dict:
    """The handoff that came as a data part."""
    for part in message.parts:
        if part.HasField("data"):
            return json_format.MessageToDict(part.data)
    return {}


def data(value: dict) -> Part:
    part = Part()
    part.data.struct_value.update(value)
    return part


async def opened() -> None:
    while not GATE.exists():
        await asyncio.sleep(0.05)


class Clerk(AgentExecutor):
    async def execute(self, context: RequestContext, queue: EventQueue) -> None:
        updater = TaskUpdater(queue, context.task_id, context.context_id)
        if context.current_task is None:
            await queue.enqueue_event(
                Task(
                    id=context.task_id,
                    context_id=context.context_id,
                    status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
                    history=[context.message],
                )
            )
        state = handed(context.message).get("currentState", {})
        work = state.get("do", "answered")
        await updater.start_work()
        if work == "refuse":
            await updater.reject(updater.new_agent_message([Part(text="NOT_MY_TRADE")]))
        elif work == "fail":
            await updater.failed(updater.new_agent_message([Part(text="no paper left")]))
        elif work == "ask":
            await updater.requires_input(updater.new_agent_message([Part(text="Which currency?")]))
        elif work == "answered":
            text = next(part.text for part in context.message.parts if part.text)
            await updater.add_artifact([data({"currency": text})])
            await updater.complete()
        else:
            if work == "slow":
                await opened()
            await updater.add_artifact([data({"sum": sum(state["invoices"])})])
            await updater.complete()

    async def cancel(self, context: RequestContext, queue: EventQueue) -> None:
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


async def go_on(store: DatabaseTaskStore) -> None:
    """Finishes what a kill cut off."""
    context = ServerCallContext()
    listed = await store.list(ListTasksRequest(status=TaskState.TASK_STATE_WORKING), context)
    for known in listed.tasks:
        task = await store.get(known.id, context)
        state = handed(task.history[0]).get("currentState", {})
        if state.get("do") == "slow":
            await opened()
        if "invoices" in state:
            task.artifacts.append(Artifact(artifact_id="sum", parts=[data({"sum": sum(state["invoices"])})]))
        task.status.state = TaskState.TASK_STATE_COMPLETED
        await store.save(task, context)


async def main() -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{DATABASE}")
    store, pushes = DatabaseTaskStore(engine), DatabasePushNotificationConfigStore(engine)
    await store.initialize()
    path = "/rpc" if BINDING == "JSONRPC" else "/rest"
    card = AgentCard(
        name="Clerk",
        description="Adds up invoices",
        version="1.0.0",
        supported_interfaces=[AgentInterface(url=f"{URL}{path}", protocol_binding=BINDING, protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["application/json"],
        skills=[AgentSkill(id="sums", name="sums", description="Adds up invoices", tags=["sums"])],
    )
    if key := os.environ.get("CARD_KEY"):
        from a2a.utils.signing import create_agent_card_signer

        sign = create_agent_card_signer(pathlib.Path(key).read_text(), {"alg": "ES256", "kid": "card", "jku": None, "typ": "JOSE"})
        card = sign(card)
    async with httpx.AsyncClient() as http:
        handler = DefaultRequestHandler(
            agent_executor=Clerk(),
            task_store=store,
            agent_card=card,
            push_config_store=pushes,
            push_sender=BasePushNotificationSender(http, pushes),
        )
        routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc"), *create_rest_routes(handler, path_prefix="/rest")]
        server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), host="127.0.0.1", port=PORT, log_level="warning"))
        going_on = asyncio.create_task(go_on(store))
        await server.serve()
        going_on.cancel()


asyncio.run(main())
