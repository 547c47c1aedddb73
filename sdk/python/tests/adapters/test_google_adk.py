"""Google ADK with a scripted model, at a real broker."""

from __future__ import annotations

import json
import uuid

import pytest
from adk_script import Scripted, call, responses, script
from chains import Script, goes_on, hands_on
from crashes import ROUNDS, Receiver, crash_case, guarded
from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool
from google.genai import types
from pairs import Pair
from working import Working, asynchronous

from handoffd import Client, Reject, WaitTimeoutError, Worker
from handoffd.adapters.google_adk import agent_worker, remote_agent, run_durably, transfer_tool


def text(said: str) -> list[types.Part]:
    return [types.Part(text=said)]


def transfers(target: str, call_id: str = "c1") -> types.Part:
    return call(transfer_tool(target).name, call_id, task="Check clause 4.2", reason="clauses are legal's")


def read() -> str:
    "Read the contract."
    return "clause 4.2: unlimited"


async def test_a_remote_agent_answers_as_a_sub_agent(pair: Pair) -> None:
    receiver = Receiver()
    async with asynchronous(pair.sender) as client:
        said = []
        with Working(Worker(pair.receiver, receiver)):
            for raw in (False, True):
                legal = remote_agent(client, pair.to, name="legal", timeout=30, raw=raw)
                model = script([call("transfer_to_agent", "t1", agent_name="legal")])
                root = LlmAgent(name="intake", model=model, sub_agents=[legal])
                done = await run_durably(root, "Is 4.2 safe?", client=client, run=str(uuid.uuid4()))
                said.append(done.run.events[-1].content.parts[0].text)
                assert json.loads(done.output) == {"risk": "low"}
    assert guarded(said[0]) and json.loads(said[1]) == {"risk": "low"}
    assert receiver.messages[0]["conversationHistoryVerbatim"][0]["content"] == "Is 4.2 safe?"


async def test_a_durable_run_relays_history_budget_and_approvals_and_finishes_its_task(pair: Pair) -> None:
    receiver = Receiver()
    model = script([call("read", "r1")], [transfers(pair.to)], text("Legal says: low."))
    agent = LlmAgent(name="intake", model=model, tools=[read, transfer_tool(pair.to)])
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
    assert [one["role"] for one in history] == ["user", "assistant", "tool", "assistant"]
    assert history[1]["content"]["function_call"]["name"] == "read"
    assert (history[2]["content"], history[2]["tool_call_id"]) == ({"result": "clause 4.2: unlimited"}, "r1")
    assert [one["tool"] for one in message["toolCallHistory"]] == ["read"]
    assert message["toolState"] == {"pending_approvals": ["c1"]}
    assert message["costTracking"] == {
        "costSpentSoFarUSD": 0.2, "costBudgetRemainingUSD": 4.8, "tokenSpent": {"prompt": 200, "completion": 20},
    }  # fmt: skip
    assert pair.sender.tasks.get(done.task_id).status == "COMPLETED"


async def test_a_rejection_is_told_to_the_model_also_in_another_process(pair: Pair) -> None:
    def decide(_):
        raise Reject("NO_TIME")

    def answer(contents):
        found = responses(contents)
        return text(str(found[-1].response)) if found else [transfers(pair.to)]

    run = str(uuid.uuid4())
    async with asynchronous(pair.sender) as client:
        for timeout in (0.2, 30):
            agent = LlmAgent(name="intake", model=Scripted(model="s", answer=answer), tools=[transfer_tool(pair.to)])
            if timeout < 1:
                with pytest.raises(WaitTimeoutError):
                    await run_durably(agent, "go", client=client, run=run, timeout=timeout)
            else:
                with Working(Worker(pair.receiver, lambda _: 1, decide=decide)):
                    done = await run_durably(agent, "go", client=client, run=run, timeout=timeout)
    assert "REJECTED: NO_TIME" in done.output


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_a_run_that_is_killed_goes_on_in_another_process(pair: Pair, round_: int) -> None:
    killed, task_id = crash_case("sender_google_adk.py", pair, round_)
    cost = pair.sender.tasks.cost(task_id)
    assert cost.sums and cost.sums.spent_usd == pytest.approx(0.1)
    print(f"killed {killed} times")


class Tripped(Exception):
    pass


async def test_a_worker_runs_the_agent_and_maps_its_ends(pair: Pair) -> None:
    def answer(contents):
        said = contents[0].parts[0].text
        if "loop" in said:
            return [call("read", str(uuid.uuid4()))]
        if "money" in said and not responses(contents):
            return [call("pay", "p1")]
        return text('{"risk": "low"}')

    def guard(callback_context, llm_request):
        if "forbidden" in str(llm_request.contents):
            raise Tripped

    def pay() -> str:
        "Pay."
        return "paid"

    agent = LlmAgent(
        name="legal", model=Scripted(model="s", answer=answer), tools=[read, FunctionTool(pay, require_confirmation=True)],
        before_model_callback=guard,
    )  # fmt: skip
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


def repeating(target: str, script: Script) -> LlmAgent:
    def answer(contents):
        wish = script.next([one.response["result"] for one in responses(contents)])
        return text(wish) if isinstance(wish, str) else [call(transfer_tool(target).name, wish[0], **wish[1])]

    return LlmAgent(name="intake", model=Scripted(model="s", answer=answer), tools=[transfer_tool(target)])


async def test_a_second_handoff_carries_the_first_ones_result(pair: Pair) -> None:
    script = Script()
    agent = repeating(pair.to, script)
    await goes_on(pair, script, lambda client, run, left: run_durably(agent, "go", client=client, run=run, timeout=left))


async def test_a_workers_agent_hands_on(pair: Pair, third: Client) -> None:
    script = Script()
    await hands_on(pair, third, script, agent_worker(pair.receiver, repeating(third.agent_id or "", script)))
