"""Pydantic AI with its own function model, at a real broker."""

from __future__ import annotations

import uuid

import pytest
from chains import Script, goes_on, hands_on
from crashes import ROUNDS, Receiver, crash_case, guarded
from pairs import Pair
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage
from working import Working, asynchronous

from handoffd import Client, Reject, WaitTimeoutError, Worker
from handoffd.adapters._core import transfer_name
from handoffd.adapters.pydantic_ai import agent_worker, remote_tool, run_durably


def turn(*parts):
    return ModelResponse(list(parts), usage=RequestUsage(input_tokens=100, output_tokens=10))


def script(*turns):
    left, seen = list(turns), []

    def answer(messages, _):
        seen.append(messages)
        return left.pop(0)

    model = FunctionModel(answer)
    model.seen = seen  # type: ignore[attr-defined]
    return model


def transfers(target: str, call_id: str = "c1") -> ToolCallPart:
    arguments = {"task": "Check clause 4.2", "reason": "clauses are legal's"}
    return ToolCallPart(transfer_name(target), arguments, tool_call_id=call_id)


async def test_a_remote_tool_waits_for_the_answer(pair: Pair) -> None:
    receiver = Receiver()
    model = script(turn(transfers(pair.to)), turn(TextPart("Legal says: low.")))
    async with asynchronous(pair.sender) as client:
        agent = Agent(model, tools=[remote_tool(client, pair.to, timeout=30)])
        with Working(Worker(pair.receiver, receiver)):
            done = await agent.run("Is 4.2 safe?")
    assert done.output == "Legal says: low."
    assert guarded(model.seen[-1][-1].parts[0].content)
    assert receiver.messages[0]["conversationHistoryVerbatim"][0]["content"] == "Is 4.2 safe?"


async def test_a_durable_run_relays_history_budget_and_approvals_and_finishes_its_task(pair: Pair) -> None:
    receiver = Receiver()
    model = script(
        turn(ToolCallPart("read", {}, tool_call_id="r1")), turn(transfers(pair.to)), turn(TextPart("Legal says: low."))
    )
    agent = Agent(model, instructions="route")

    @agent.tool_plain
    def read() -> str:
        return "clause 4.2: unlimited"

    run = str(uuid.uuid4())
    async with asynchronous(pair.sender) as client:
        given = {"client": client, "run": run, "targets": [pair.to]}
        with Working(Worker(pair.receiver, receiver)):
            done = await run_durably(
                agent, "Is 4.2 safe?", price=lambda u: u.input_tokens / 1000, budget_usd=5, timeout=30, **given
            )
        again = await run_durably(agent, "Is 4.2 safe?", **given)
    assert done.output == again.output == "Legal says: low." and again.run is None
    message = receiver.messages[0]
    history = message["conversationHistoryVerbatim"]
    assert [one["role"] for one in history] == ["user", "assistant", "tool", "assistant"]
    assert history[1]["content"]["tool_name"] == "read"
    assert (history[2]["content"], history[2]["tool_call_id"]) == ("clause 4.2: unlimited", "r1")
    assert [one["tool"] for one in message["toolCallHistory"]] == ["read"]
    assert message["toolState"] == {"pending_approvals": ["c1"]}
    assert message["costTracking"] == {
        "costSpentSoFarUSD": 0.2, "costBudgetRemainingUSD": 4.8, "tokenSpent": {"prompt": 200, "completion": 20},
    }  # fmt: skip
    assert pair.sender.tasks.get(done.task_id).status == "COMPLETED"


async def test_a_transfer_beside_other_tools_and_a_rejection(pair: Pair) -> None:
    def decide(_):
        raise Reject("NO_TIME")

    model = script(turn(ToolCallPart("read", {}, tool_call_id="r1"), transfers(pair.to)), turn(TextPart("nobody had time")))
    agent = Agent(model)

    @agent.tool_plain
    def read() -> str:
        return "text"

    run = str(uuid.uuid4())
    async with asynchronous(pair.sender) as client:
        with pytest.raises(WaitTimeoutError):
            await run_durably(agent, "go", client=client, run=run, targets=[pair.to], timeout=0.2)
        # As another process does: from what was committed with the handoff.
        with Working(Worker(pair.receiver, lambda _: 1, decide=decide)):
            done = await run_durably(agent, "go", client=client, run=run, targets=[pair.to], timeout=30)
    assert done.output == "nobody had time" and len(model.seen) == 2
    assert "REJECTED: NO_TIME" in str(model.seen[-1])


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_a_run_that_is_killed_goes_on_in_another_process(pair: Pair, round_: int) -> None:
    killed, task_id = crash_case("sender_pydantic_ai.py", pair, round_)
    cost = pair.sender.tasks.cost(task_id)
    assert cost.sums and cost.sums.spent_usd == pytest.approx(0.1)
    print(f"killed {killed} times")


class Verdict(BaseModel):
    risk: str


class Tripped(Exception):
    pass


async def test_a_worker_runs_the_agent_and_maps_its_ends(pair: Pair) -> None:
    def answer(messages, info):
        text = str(messages)
        if "forbidden" in text:
            raise Tripped
        if "loop" in text:
            return turn(ToolCallPart("read", {}, tool_call_id=str(uuid.uuid4())))
        if "money" in text:
            return turn(ToolCallPart("pay", {}, tool_call_id="p1"))
        if "schema" in text:
            return turn(ToolCallPart(info.output_tools[0].name, {"risk": []}, tool_call_id=str(uuid.uuid4())))
        return turn(ToolCallPart(info.output_tools[0].name, {"risk": "low"}, tool_call_id="o1"))

    agent = Agent(FunctionModel(answer), output_type=Verdict)

    @agent.tool_plain
    def read() -> str:
        return "more"

    @agent.tool_plain(requires_approval=True)
    def pay() -> str:
        return "paid"

    found, result = {}, None
    rejections = {Tripped: "INPUT_GUARDRAIL"}
    with Working(agent_worker(pair.receiver, agent, rejections=rejections, price=lambda u: u.output_tokens / 100)):
        async with asynchronous(pair.sender) as client:
            for task in ("forbidden", "loop", "money", "schema", "fine"):
                sent = await client.hand_off(pair.to, task, budget_usd=5, fields={"maxIterations": 3})
                done = await client.handoffs.wait_ended(sent.handoff_id, timeout=30)
                found[task] = (done.status, (done.reason or "").split(":")[0])
                result = done
    assert found == {
        "forbidden": ("REJECTED", "INPUT_GUARDRAIL"),
        "loop": ("FAILED", "MAX_ITERATIONS"),
        "money": ("FAILED", "APPROVAL_REQUIRED"),
        "schema": ("FAILED", "MODEL_BEHAVIOR"),
        "fine": ("COMPLETED", ""),
    }
    assert result and (result.result, result.iterations) == ({"risk": "low"}, 1)
    cost = pair.sender.tasks.cost(result.task_id)
    assert cost.sums and (cost.sums.spent_usd, cost.sums.tokens.prompt) == (0.1, 100)


def repeating(target: str, script: Script) -> Agent:
    def answer(messages, _):
        returns = [part.content for one in messages for part in one.parts if part.part_kind == "tool-return"]
        wish = script.next(returns)
        if isinstance(wish, str):
            return turn(TextPart(wish))
        return turn(ToolCallPart(transfer_name(target), wish[1], tool_call_id=wish[0]))

    return Agent(FunctionModel(answer))


async def test_a_second_handoff_carries_the_first_ones_result(pair: Pair) -> None:
    script = Script()
    agent = repeating(pair.to, script)

    def go(client, run, left):
        return run_durably(agent, "go", client=client, run=run, targets=[pair.to], timeout=left)

    await goes_on(pair, script, go)


async def test_a_workers_agent_hands_on(pair: Pair, third: Client) -> None:
    script, to = Script(), third.agent_id or ""
    await hands_on(pair, third, script, agent_worker(pair.receiver, repeating(to, script), targets=[to]))
