"""OpenAI Agents: takes the question and hands it to `extractor`. Its argument is the run's name."""

from __future__ import annotations

import asyncio
import sys

from agents import Agent, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from handoffd import AsyncClient
from handoffd.adapters.openai_agents import run_durably, transfer_tool

set_tracing_disabled(True)


def model(call):
    """What a model would do here: hand off, then say what came back."""
    outputs = [one["output"] for one in call.input if isinstance(one, dict) and one.get("type") == "function_call_output"]
    if not outputs:
        wish = {"task": "Find the clauses on liability in the contract and have them judged", "reason": "a contract"}
        return ModelStep([function_call("transfer_to_extractor", wish, call_id="to-extractor")])
    assert outputs[0].startswith("[CONTEXT FROM PREVIOUS AGENT"), "a result comes as a guarded turn"
    return ModelStep([assistant_message("Do not sign yet: clause 9.3 has no cap.")])


async def main(run: str) -> None:
    triage = Agent(name="triage", model=ScriptedModel([ModelStep.respond(model)] * 4), tools=[transfer_tool("extractor")])
    async with AsyncClient() as client:
        done = await run_durably(triage, "May we sign?", client=client, run=run, budget_usd=2.0, price=lambda _: 0.01)
    print(f"TASK {done.task_id}\nANSWER {done.output}", flush=True)


asyncio.run(main(sys.argv[1]))
