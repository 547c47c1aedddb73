"""Microsoft Agent Framework with a scripted chat client, at a real broker."""

from __future__ import annotations

import json
import uuid

import pytest
from af_script import Scripted, call, results, script, text
from agent_framework import Agent, AgentMiddleware, tool
from chains import Script, goes_on, hands_on
from crashes import ROUNDS, Receiver, crash_case, guarded
from pairs import Pair
from working import Working, asynchronous

from handoffd import Client, Reject, WaitTimeoutError, Worker
from handoffd.adapters.agent_framework import RemoteAgent, agent_worker, run_durably, transfer_tool


def transfers(target: str, call_id: str = "c1", **arguments: str):
    given = {"task": "Check clause 4.2", "reason": "clauses are legal's", **arguments}
    return call(transfer_tool(target).name, call_id, **given)


@tool
def read() -> str:
    "Read the contract."
    return "clause 4.2: unlimited"


@tool(approval_mode="always_require")
def pay() -> str:
    "Pay."
    return "paid"


async def test_a_remote_agent_answers(pair: Pair) -> None:
    receiver = Receiver()
    async with asynchronous(pair.sender) as client:
        with Working(Worker(pair.receiver, receiver)):
            done = await RemoteAgent(client, pair.to, name="legal", timeout=30).run("Is 4.2 safe?")
            raw = await RemoteAgent(client, pair.to, name="legal", timeout=30, raw=True).run("Is 4.2 safe?")
    assert guarded(done.text) and json.loads(raw.text) == {"risk": "low"}
    assert receiver.messages[0]["conversationHistoryVerbatim"] == [{"role": "user", "content": "Is 4.2 safe?"}]


async def test_a_durable_run_relays_history_budget_and_approvals_and_finishes_its_task(pair: Pair) -> None:
    receiver = Receiver()
    chat = script([call("read", "r1")], [transfers(pair.to)], text("Legal says: low."))
    agent = Agent(client=chat, name="intake", tools=[read, transfer_tool(pair.to)])
    run = str(uuid.uuid4())
    async with asynchronous(pair.sender) as client:
        with Working(Worker(pair.receiver, receiver)):
            done = await run_durably(
                agent, "Is 4.2 safe?", client=client, run=run, price=lambda prompt, _: prompt / 1000, budget_usd=5, timeout=30
            )
        again = await run_durably(agent, "Is 4.2 safe?", client=client, run=run)
    assert done.output == again.output == "Legal says: low." and again.run is None
    message = receiver.messages[0]
    history = message["conversationHistoryVerbatim"]
    assert [one["role"] for one in history] == ["user", "assistant", "tool", "assistant", "assistant"]
    assert history[1]["content"]["name"] == "read"
    assert (history[2]["content"], history[2]["tool_call_id"]) == ("clause 4.2: unlimited", "r1")
    assert history[4]["content"]["type"] == "function_approval_request"
    assert [one["tool"] for one in message["toolCallHistory"]] == ["read"]
    assert message["toolState"] == {"pending_approvals": ["c1"]}
    assert message["costTracking"] == {
        "costSpentSoFarUSD": 0.2, "costBudgetRemainingUSD": 4.8, "tokenSpent": {"prompt": 200, "completion": 20},
    }  # fmt: skip
    assert pair.sender.tasks.get(done.task_id).status == "COMPLETED"
    assert guarded(results(chat.seen[-1])[-1].result)


async def test_a_rejection_is_told_to_the_model_also_in_another_process(pair: Pair) -> None:
    def decide(_):
        raise Reject("NO_TIME")

    def answer(messages):
        found = results(messages)
        return text(str(found[-1].result)) if found else [transfers(pair.to)]

    run = str(uuid.uuid4())
    async with asynchronous(pair.sender) as client:
        for timeout in (0.2, 30):
            agent = Agent(client=Scripted(answer), name="intake", tools=[transfer_tool(pair.to)])
            if timeout < 1:
                with pytest.raises(WaitTimeoutError):
                    await run_durably(agent, "go", client=client, run=run, timeout=timeout)
            else:
                with Working(Worker(pair.receiver, lambda _: 1, decide=decide)):
                    done = await run_durably(agent, "go", client=client, run=run, timeout=timeout)
    assert "REJECTED: NO_TIME" in done.output


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_a_run_that_is_killed_goes_on_in_another_process(pair: Pair, round_: int) -> None:
    killed, task_id = crash_case("sender_agent_framework.py", pair, round_)
    cost = pair.sender.tasks.cost(task_id)
    assert cost.sums and cost.sums.spent_usd == pytest.approx(0.1)
    print(f"killed {killed} times")


class Tripped(Exception):
    pass


class Guard(AgentMiddleware):
    async def process(self, context, call_next):
        if "forbidden" in str([one.text for one in context.messages]):
            raise Tripped
        await call_next()


async def test_a_worker_runs_the_agent_and_maps_its_ends(pair: Pair) -> None:
    def answer(messages):
        said = " ".join(one.text for one in messages)
        if "loop" in said:
            return [call("read", str(uuid.uuid4()))]
        if "money" in said and not results(messages):
            return [call("pay", "p1")]
        return text('{"risk": "low"}')

    agent = Agent(client=Scripted(answer), name="legal", tools=[read, pay], middleware=[Guard()])
    found, result = {}, None
    worker = agent_worker(pair.receiver, agent, rejections={Tripped: "INPUT_GUARDRAIL"}, price=lambda _, out: out / 100)
    with Working(worker):
        async with asynchronous(pair.sender) as client:
            for task in ("forbidden", "loop", "money", "fine"):
                sent = await client.hand_off(pair.to, task, budget_usd=5, fields={"maxIterations": 3})
                done = await client.handoffs.wait_ended(sent.handoff_id, timeout=30)
                found[task] = (done.status, (done.reason or "").split(":")[0])
                result = done
    assert found == {
        "forbidden": ("REJECTED", "INPUT_GUARDRAIL"),
        "loop": ("FAILED", "MAX_ITERATIONS"),
        "money": ("FAILED", "APPROVAL_REQUIRED"),
        "fine": ("COMPLETED", ""),
    }
    assert result and (result.result, result.iterations) == ({"risk": "low"}, 1)
    cost = pair.sender.tasks.cost(result.task_id)
    assert cost.sums and (cost.sums.spent_usd, cost.sums.tokens.prompt) == (0.1, 100)


def repeating(target: str, script: Script) -> Agent:
    def answer(messages):
        wish = script.next([str(one.result) for one in results(messages)])
        return text(wish) if isinstance(wish, str) else [call(transfer_tool(target).name, wish[0], **wish[1])]

    return Agent(client=Scripted(answer), name="intake", tools=[transfer_tool(target)])


async def test_a_second_handoff_carries_the_first_ones_result(pair: Pair) -> None:
    script = Script()
    agent = repeating(pair.to, script)
    await goes_on(pair, script, lambda client, run, left: run_durably(agent, "go", client=client, run=run, timeout=left))


async def test_a_workers_agent_hands_on(pair: Pair, third: Client) -> None:
    script = Script()
    await hands_on(pair, third, script, agent_worker(pair.receiver, repeating(third.agent_id or "", script)))
