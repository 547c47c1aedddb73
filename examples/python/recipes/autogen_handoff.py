"""AutoGen: a team whose handoffs go over the broker, and go on in another process after a crash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage
from autogen_agentchat.teams import BaseGroupChat

from handoffd import AsyncClient, AsyncHandoff, Worker
from handoffd.adapters import BrokerRun, Call


async def run_durably(team: BaseGroupChat, question: str, *, client: AsyncClient, run: str, targets: Mapping[str, str]) -> str:
    """Runs a team that stops at a `HandoffMessage` (`HandoffTermination`).

    `targets` has the agents at the broker by their names in the team.
    """
    broker = BrokerRun(client, run, framework="autogen")
    kept = await broker.load()
    if kept is not None and "output" in kept:
        await broker.finish(kept["output"])
        return str(kept["output"])
    if kept is None:
        turns = _turns(await team.run(task=question))
    else:
        await team.load_state(kept["snapshot"]["team"])
        turns = kept["snapshot"]["turns"]
    while (target := turns[-1].get("target")) is not None:
        # The team's state is committed with the handoff: one does not exist without the other.
        snapshot = {"team": dict(await team.save_state()), "turns": turns}
        call = Call(f"handoff-{len(turns)}", targets[target], question)
        history = [{"role": turn["role"], "name": turn["name"], "content": turn["content"]} for turn in turns]
        await broker.hand_off(call, snapshot, history=history)
        outcome = await broker.outcome(call.call_id)
        back = HandoffMessage(source=target, target=turns[-1]["name"], content=outcome.text)
        turns += _turns(await team.run(task=back))
    output = str(await broker.output(turns[-1]["content"]))
    await broker.finish(output)
    return output


def _turns(result: TaskResult) -> list[dict[str, Any]]:
    """A team's messages as turns; a handoff has its target."""
    said = [one for one in result.messages if isinstance(one, BaseChatMessage)]
    return [
        {
            "role": "user" if one.source == "user" else "assistant",
            "name": one.source,
            "content": one.to_text(),
            "target": one.target if isinstance(one, HandoffMessage) else None,
        }
        for one in said
    ]


def team_worker(client: AsyncClient, team: BaseGroupChat) -> Worker:
    """A worker: the guarded prompt is the team's task, its last message the result."""

    async def handler(handoff: AsyncHandoff) -> str:
        await team.reset()
        result = await team.run(task=await handoff.prompt())
        return str(_turns(result)[-1]["content"])

    return Worker(client, handler)
