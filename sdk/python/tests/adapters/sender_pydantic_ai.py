"""A triage agent in a process of its own: URL KEY AGENT TARGET RUN. Its model hands off, then repeats what came back."""

from __future__ import annotations

import asyncio
import json
import sys

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from handoffd import AsyncClient
from handoffd.adapters._core import transfer_name
from handoffd.adapters.pydantic_ai import run_durably

url, key, agent_id, target, run = sys.argv[1:6]


def answer(messages, _):
    usage = RequestUsage(input_tokens=100, output_tokens=10)
    returns = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if returns:
        return ModelResponse([TextPart(f"Legal says: {returns[-1].content}")], usage=usage)
    arguments = {"task": "Check clause 4.2", "reason": "clauses are legal's"}
    return ModelResponse([ToolCallPart(transfer_name(target), arguments, tool_call_id=f"call-{run}")], usage=usage)


async def main() -> None:
    agent = Agent(FunctionModel(answer))
    async with AsyncClient(url, key, agent_id=agent_id) as client:
        print("ready", flush=True)
        done = await run_durably(
            agent, "Is clause 4.2 safe?", client=client, run=run, targets=[target], price=lambda used: used.input_tokens / 1000
        )
    print(json.dumps(done.output), flush=True)


asyncio.run(main())
