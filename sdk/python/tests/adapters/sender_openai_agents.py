"""A triage agent in a process of its own: URL KEY AGENT TARGET RUN. Its model hands off, then repeats what came back."""

from __future__ import annotations

import asyncio
import json
import sys

from agents import Agent, Usage, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from handoffd import AsyncClient
from handoffd.adapters.openai_agents import run_durably, transfer_tool

set_tracing_disabled(True)
url, key, agent_id, target, run = sys.argv[1:6]


def answer(call):
    outputs = [item for item in call.input if isinstance(item, dict) and item.get("type") == "function_call_output"]
    usage = Usage(requests=1, input_tokens=100, output_tokens=10, total_tokens=110)
    if outputs:
        return ModelStep([assistant_message(f"Legal says: {outputs[-1]['output']}")], usage=usage)
    arguments = {"task": "Check clause 4.2", "reason": "clauses are legal's"}
    return ModelStep([function_call(transfer_tool(target).name, arguments, call_id=f"call-{run}")], usage=usage)


async def main() -> None:
    model = ScriptedModel([ModelStep.respond(answer)] * 3)
    agent = Agent(name="intake", instructions="route", model=model, tools=[transfer_tool(target)])
    async with AsyncClient(url, key, agent_id=agent_id) as client:
        print("ready", flush=True)
        done = await run_durably(
            agent, "Is clause 4.2 safe?", client=client, run=run, price=lambda usage: usage.input_tokens / 1000
        )
    print(json.dumps(done.output), flush=True)


asyncio.run(main())
