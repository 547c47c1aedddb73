"""A triage agent in a process of its own: URL KEY AGENT TARGET RUN. Its model hands off, then repeats what came back."""

from __future__ import annotations

import asyncio
import json
import sys

from af_script import Scripted, call, results, text
from agent_framework import Agent

from handoffd import AsyncClient
from handoffd.adapters.agent_framework import run_durably, transfer_tool

url, key, agent_id, target, run = sys.argv[1:6]
tool = transfer_tool(target)


def answer(messages):
    found = results(messages)
    if found:
        return text(f"Legal says: {found[-1].result}")
    return [call(tool.name, f"call-{run}", task="Check clause 4.2", reason="clauses are legal's")]


async def main() -> None:
    agent = Agent(client=Scripted(answer), name="intake", instructions="route", tools=[tool])
    async with AsyncClient(url, key, agent_id=agent_id) as client:
        print("ready", flush=True)
        done = await run_durably(agent, "Is clause 4.2 safe?", client=client, run=run, price=lambda prompt, _: prompt / 1000)
    print(json.dumps(done.output), flush=True)


asyncio.run(main())
