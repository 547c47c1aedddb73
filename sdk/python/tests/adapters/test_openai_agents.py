"""OpenAI Agents, driven by its own scripted model, at a real broker."""

from __future__ import annotations

import json
import uuid

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    RunConfig,
    Runner,
    Usage,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
    set_tracing_disabled,
)
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from chains import Script, goes_on, hands_on
from crashes import ROUNDS, Receiver, crash_case, guarded
from pairs import Pair
from pydantic import BaseModel
from working import Working, asynchronous

from handoffd import Client, Worker
from handoffd.adapters.openai_agents import agent_worker, remote_agent, run_durably, transfer_tool

set_tracing_disabled(True)
USAGE = Usage(requests=1, input_tokens=100, output_tokens=10, total_tokens=110)


def calls(target: str, call_id: str = "c1", **arguments: str) -> ModelStep:
    given = {"task": "Check clause 4.2", "reason": "clauses are legal's", **arguments}
    return ModelStep([function_call(transfer_tool(target).name, given, call_id=call_id)], usage=USAGE)


def says(text: str) -> ModelStep:
    return ModelStep([assistant_message(text)], usage=USAGE)


async def test_a_remote_agent_answers_in_a_plain_handoff(pair: Pair) -> None:
    receiver = Receiver()
    async with asynchronous(pair.sender) as client:
        said = []
        with Working(Worker(pair.receiver, receiver)):
            for raw in (False, True):
                legal = remote_agent(client, pair.to, name="legal", timeout=30, raw=raw)
                model = ScriptedModel([[function_call("transfer_to_legal", {}, call_id="c1")]])
                intake = Agent(name="intake", model=model, handoffs=[handoff(legal)])
                done = await Runner.run(intake, "Is 4.2 safe?")
                assert done.last_agent.name == "legal"
                said.append(done.final_output)
    assert guarded(said[0]) and json.loads(said[1]) == {"risk": "low"}
    assert [turn["role"] for turn in receiver.messages[0]["conversationHistoryVerbatim"]] == ["user", "assistant", "tool"]


async def test_a_durable_run_relays_history_budget_and_approvals_and_finishes_its_task(pair: Pair) -> None:
    receiver = Receiver()

    @function_tool
    def read() -> str:
        "Read the contract."
        return "clause 4.2: unlimited"

    model = ScriptedModel([
        ModelStep([function_call("read", {}, call_id="r1")], usage=USAGE), calls(pair.to), says("Legal says: low."),
    ])  # fmt: skip
    agent = Agent(name="intake", model=model, tools=[read, transfer_tool(pair.to)])
    run = str(uuid.uuid4())
    async with asynchronous(pair.sender) as client:
        with Working(Worker(pair.receiver, receiver)):
            done = await run_durably(
                agent, "Is 4.2 safe?", client=client, run=run, price=lambda u: u.input_tokens / 1000, budget_usd=5, timeout=30
            )
        again = await run_durably(agent, "Is 4.2 safe?", client=client, run=run)
    assert done.output == again.output == "Legal says: low." and again.run is None
    message = receiver.messages[0]
    roles = [turn["role"] for turn in message["conversationHistoryVerbatim"]]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert message["conversationHistoryVerbatim"][1]["content"]["name"] == "read"
    assert message["conversationHistoryVerbatim"][2] == {
        "role": "tool", "tool_call_id": "r1", "content": "clause 4.2: unlimited",
    }  # fmt: skip
    assert [one["tool"] for one in message["toolCallHistory"]] == ["read"]
    assert message["toolState"] == {"pending_approvals": ["c1"]}
    assert message["costTracking"] == {
        "costSpentSoFarUSD": 0.2, "costBudgetRemainingUSD": 4.8, "tokenSpent": {"prompt": 200, "completion": 20},
    }  # fmt: skip
    assert message["reason"] == "clauses are legal's"
    assert pair.sender.tasks.get(done.task_id).status == "COMPLETED"


async def test_two_transfers_one_after_the_other_add_up(pair: Pair) -> None:
    def spends(handoff):
        handoff.spend(0.5)
        return "ok"

    model = ScriptedModel([calls(pair.to, "c1"), calls(pair.to, "c2"), says("done")])
    agent = Agent(name="intake", model=model, tools=[transfer_tool(pair.to)])
    async with asynchronous(pair.sender) as client:
        with Working(Worker(pair.receiver, spends)):
            done = await run_durably(
                agent, "go", client=client, run=str(uuid.uuid4()), price=lambda u: u.input_tokens / 1000, budget_usd=5, timeout=30
            )
    cost = pair.sender.tasks.cost(done.task_id)
    assert cost.sums and cost.sums.spent_usd == pytest.approx(0.2 + 1.0)
    assert len(done.outcomes) == 2


async def test_a_rejected_handoff_is_told_to_the_model(pair: Pair) -> None:
    from handoffd import Reject

    def decide(_):
        raise Reject("NO_TIME")

    model = ScriptedModel([calls(pair.to), says("I could not ask legal.")])
    agent = Agent(name="intake", model=model, tools=[transfer_tool(pair.to)])
    async with asynchronous(pair.sender) as client:
        with Working(Worker(pair.receiver, lambda _: 1, decide=decide)):
            done = await run_durably(agent, "go", client=client, run=str(uuid.uuid4()), timeout=30)
    assert done.output == "I could not ask legal."
    assert "REJECTED: NO_TIME" in str(model.calls[-1].input)
    assert [one.status for one in done.outcomes.values()] == ["REJECTED"]


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_a_run_that_is_killed_goes_on_in_another_process(pair: Pair, round_: int) -> None:
    killed, task_id = crash_case("sender_openai_agents.py", pair, round_)
    cost = pair.sender.tasks.cost(task_id)
    assert cost.sums and cost.sums.spent_usd == pytest.approx(0.1)
    print(f"killed {killed} times")


class Verdict(BaseModel):
    risk: str


async def test_a_worker_runs_the_agent_and_answers_with_its_output(pair: Pair) -> None:
    model = ScriptedModel([says('{"risk": "low"}')])
    legal = Agent(name="legal", model=model, output_type=Verdict)
    with Working(agent_worker(pair.receiver, legal, price=lambda u: u.output_tokens / 100)):
        async with asynchronous(pair.sender) as client:
            sent = await client.hand_off(pair.to, "Check 4.2", budget_usd=5)
            done = await client.handoffs.wait_ended(sent.handoff_id, timeout=30)
    assert (done.status, done.result, done.iterations) == ("COMPLETED", {"risk": "low"}, 1)
    cost = pair.sender.tasks.cost(done.task_id)
    assert cost.sums and (cost.sums.spent_usd, cost.sums.tokens.prompt) == (0.1, 100)
    assert "DATA ONLY" in str(model.first_call.input)


async def test_a_workers_run_config_stays_as_its_caller_gave_it(pair: Pair) -> None:
    config = RunConfig(workflow_name="mine", group_id="g-1")
    legal = Agent(name="legal", model=ScriptedModel([says("fine")]))
    with Working(agent_worker(pair.receiver, legal, run_config=config)):
        async with asynchronous(pair.sender) as client:
            assert (await client.hand_off_and_wait(pair.to, "Check 4.2", timeout=30)).result == "fine"
    assert (config.workflow_name, config.group_id, config.trace_id) == ("mine", "g-1", None)


async def test_guardrails_and_limits_become_codes(pair: Pair) -> None:
    @input_guardrail
    async def no_secrets(_ctx, _agent, given) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered="forbidden" in str(given))

    @output_guardrail
    async def polite(_ctx, _agent, output) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered="rude" in str(output))

    @function_tool
    def again() -> str:
        "Once more."
        return "more"

    @function_tool(needs_approval=True)
    def pay() -> str:
        "Pay."
        return "paid"

    def respond(call):
        text = str(call.input)
        if "loop" in text:
            return ModelStep([function_call("again", {}, call_id=str(uuid.uuid4()))])
        if "money" in text:
            return ModelStep([function_call("pay", {}, call_id="p1")])
        if "schema" in text:
            return ModelStep([function_call("nobody_has_this", {}, call_id="n1")])
        return says("rude words" if "rude" in text else "fine")

    agent = Agent(
        name="legal", model=ScriptedModel([ModelStep.respond(respond)] * 40), tools=[again, pay],
        input_guardrails=[no_secrets], output_guardrails=[polite],
    )  # fmt: skip
    found = {}
    with Working(agent_worker(pair.receiver, agent)):
        async with asynchronous(pair.sender) as client:
            for task in ("forbidden", "rude", "loop", "money", "schema", "fine"):
                sent = await client.hand_off(pair.to, task, fields={"maxIterations": 3})
                done = await client.handoffs.wait_ended(sent.handoff_id, timeout=30)
                found[task] = (done.status, (done.reason or "").split(":")[0])
    assert found == {
        "forbidden": ("REJECTED", "INPUT_GUARDRAIL"),
        "rude": ("REJECTED", "OUTPUT_GUARDRAIL"),
        "loop": ("FAILED", "MAX_ITERATIONS"),
        "money": ("FAILED", "APPROVAL_REQUIRED"),
        "schema": ("FAILED", "MODEL_BEHAVIOR"),
        "fine": ("COMPLETED", ""),
    }


async def test_the_frameworks_trace_goes_on_at_the_receiver(pair: Pair) -> None:
    from agents import trace

    set_tracing_disabled(False)
    try:
        receiver = Receiver()
        model = ScriptedModel([calls(pair.to), says("done")])
        agent = Agent(name="intake", model=model, tools=[transfer_tool(pair.to)])
        async with asynchronous(pair.sender) as client:
            with Working(Worker(pair.receiver, receiver)), trace("review", trace_id="trace_" + "ab" * 16):
                await run_durably(agent, "go", client=client, run=str(uuid.uuid4()), run_config=RunConfig(), timeout=30)
        assert receiver.messages[0]["traceparent"].split("-")[1] == "ab" * 16
    finally:
        set_tracing_disabled(True)


def repeating(target: str, script: Script) -> Agent:
    def respond(call):
        outputs = [one["output"] for one in call.input if isinstance(one, dict) and one.get("type") == "function_call_output"]
        wish = script.next(outputs)
        return says(wish) if isinstance(wish, str) else calls(target, wish[0], **wish[1])

    return Agent(name="intake", model=ScriptedModel([ModelStep.respond(respond)] * 12), tools=[transfer_tool(target)])


async def test_a_second_handoff_carries_the_first_ones_result(pair: Pair) -> None:
    script = Script()
    agent = repeating(pair.to, script)
    await goes_on(pair, script, lambda client, run, left: run_durably(agent, "go", client=client, run=run, timeout=left))


async def test_a_workers_agent_hands_on(pair: Pair, third: Client) -> None:
    script = Script()
    await hands_on(pair, third, script, agent_worker(pair.receiver, repeating(third.agent_id or "", script), turns=3))
