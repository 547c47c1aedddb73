"""The smallest agent on the official Python SDK (PyPI `a2a-sdk`) that keeps its tasks: it sends each task to a receiver.

Usage: a2a_sdk.py PORT DATABASE RECEIVER
Tasks are in the SQLite file DATABASE, by the SDK's own store. A task that cannot be delivered fails.
"""

import asyncio
import sys

import httpx
import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes.agent_card_routes import create_agent_card_routes
from a2a.server.routes.rest_routes import create_rest_routes
from a2a.server.tasks import DatabaseTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Task, TaskState, TaskStatus
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette

PORT, DATABASE, RECEIVER = int(sys.argv[1]), sys.argv[2], sys.argv[3]


class Clerk(AgentExecutor):
    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def execute(self, context: RequestContext, queue: EventQueue) -> None:
        updater = TaskUpdater(queue, context.task_id, context.context_id)
        status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
        await queue.enqueue_event(
            Task(id=context.task_id, context_id=context.context_id, status=status, history=[context.message])
        )
        await updater.start_work()
        answer = await self.http.post(RECEIVER, json={"messageId": context.message.message_id, "taskId": context.task_id})
        if answer.status_code == 200:
            await updater.complete()
        else:
            await updater.failed()

    async def cancel(self, context: RequestContext, queue: EventQueue) -> None:
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


async def main() -> None:
    store = DatabaseTaskStore(create_async_engine(f"sqlite+aiosqlite:///{DATABASE}", connect_args={"timeout": 60}))
    await store.initialize()
    url = f"http://127.0.0.1:{PORT}/rest"
    card = AgentCard(
        name="a2a-sdk clerk",
        description="Delivers each task to a receiver",
        version="1.0.0",
        supported_interfaces=[AgentInterface(url=url, protocol_binding="HTTP+JSON", protocol_version="1.0")],
        capabilities=AgentCapabilities(),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["application/json"],
        skills=[AgentSkill(id="deliver", name="deliver", description="Delivers tasks", tags=["deliver"])],
    )
    async with httpx.AsyncClient(timeout=120) as http:
        handler = DefaultRequestHandler(agent_executor=Clerk(http), task_store=store, agent_card=card)
        routes = [*create_agent_card_routes(card), *create_rest_routes(handler, path_prefix="/rest")]
        await uvicorn.Server(uvicorn.Config(Starlette(routes=routes), host="127.0.0.1", port=PORT, log_level="warning")).serve()


asyncio.run(main())
