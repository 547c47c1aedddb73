"""Workflows of Microsoft Agent Framework: a request for information leaves the process as a handoff."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_framework import (
    CheckpointStorage,
    Executor,
    InMemoryCheckpointStorage,
    Workflow,
    WorkflowCheckpoint,
    WorkflowContext,
    handler,
    response_handler,
)
from agent_framework._workflows._checkpoint_encoding import decode_checkpoint_value, encode_checkpoint_value

from handoffd import AsyncClient
from handoffd.adapters import BrokerRun, Call


class HandOff(Executor):
    """A step that hands its input to an agent at the broker, and sends the guarded result on."""

    def __init__(self, target: str) -> None:
        super().__init__(id="hand_off")
        self.target = target

    @handler
    async def ask(self, task: str, ctx: WorkflowContext[str]) -> None:
        """Stops the workflow."""
        await ctx.request_info({"target": self.target, "task": task}, str)

    @response_handler
    async def answer(self, request: dict[str, str], response: str, ctx: WorkflowContext[str]) -> None:
        """Goes on."""
        await ctx.send_message(response)


async def run_durably(build: Callable[[CheckpointStorage], Workflow], message: Any, *, client: AsyncClient, run: str) -> Any:
    """Runs a workflow whose requests for information are those of `HandOff`, and returns its last output."""
    broker = BrokerRun(client, run, framework="agent-framework-workflow")
    kept = await broker.load()
    if kept is not None and "output" in kept:
        await broker.finish(kept["output"])
        return kept["output"]
    storage = InMemoryCheckpointStorage()
    workflow = build(storage)
    if kept is None:
        result = await workflow.run(message)
    else:
        point = WorkflowCheckpoint.from_dict(decode_checkpoint_value(kept["snapshot"]))
        await storage.save(point)
        result = await workflow.run(checkpoint_id=point.checkpoint_id)
    outputs = list(result.get_outputs())
    while asked := result.get_request_info_events():
        point = next(p for p in reversed(await _newest_last(storage, workflow)) if p.pending_request_info_events)
        snapshot = encode_checkpoint_value(point.to_dict())
        for place, one in enumerate(asked):
            call = Call(one.request_id, one.data["target"], one.data["task"])
            await broker.hand_off(call, snapshot, siblings=len(asked) - place)
        answers = {one.request_id: (await broker.outcome(one.request_id)).text for one in asked}
        result = await workflow.run(responses=answers)
        outputs += result.get_outputs()
    output = await broker.output(outputs[-1] if outputs else None)
    await broker.finish(output)
    return output


async def _newest_last(storage: CheckpointStorage, workflow: Workflow) -> list[WorkflowCheckpoint]:
    return sorted(await storage.list_checkpoints(workflow_name=workflow.name), key=lambda point: point.timestamp)
