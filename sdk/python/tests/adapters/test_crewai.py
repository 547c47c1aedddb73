"""CrewAI flows and crews with a scripted model, at a real broker."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from chains import Script, goes_on, hands_on
from crashes import ROUNDS, SAID, Receiver, crash_case, guarded
from crewai import Agent, BaseLLM, Crew, Task
from crewai.flow.flow import Flow, listen, start
from pairs import Pair
from working import Working, asynchronous

from handoffd import Client, Reject, WaitTimeoutError, Worker
from handoffd.adapters.crewai import crew_worker, handoff_to, rejecting, remote_tool, run_durably


class Scripted(BaseLLM):
    answers: list[str] = []

    def call(self, messages: Any, *_: Any, **__: Any) -> str:
        self._track_token_usage_internal({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110})
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def supports_function_calling(self) -> bool:
        return False


def model(*answers: str) -> Scripted:
    return Scripted(model="scripted", answers=list(answers))


def crew(*answers: str, tools: Any = (), guardrail: Any = None) -> Crew:
    agent = Agent(role="legal", goal="review", backstory="a lawyer", llm=model(*answers), tools=list(tools), max_retry_limit=0)
    task = Task(description="{prompt}", expected_output="a verdict", agent=agent, guardrail=guardrail, guardrail_max_retries=0)
    return Crew(agents=[agent], tasks=[task])


def triage(target: str, told: list[str]) -> type[Flow[Any]]:
    class Triage(Flow[dict[str, Any]]):
        @start()
        @handoff_to(target)
        def ask(self) -> Any:
            self.state["asked"] = True
            history = [{"role": "user", "content": "Is 4.2 safe?"}]
            return {"task": "Check clause 4.2", "reason": "clauses are legal's", "clause": "4.2", "history": history}

        @listen(ask)
        def answer(self, found: Any) -> str:
            assert self.state["asked"] is True
            told.append(found.feedback)
            return f"Legal says: {found.feedback}"

    return Triage


async def test_a_tool_of_a_crew_waits_for_the_answer(pair: Pair) -> None:
    receiver = Receiver()
    tool = remote_tool(pair.sender, pair.to, timeout=30)
    action = json.dumps({"task": "Check clause 4.2", "reason": "r"})
    steps = (f"Thought: ask\nAction: {tool.name}\nAction Input: {action}", "Thought: done\nFinal Answer: legal says low")
    with Working(Worker(pair.receiver, receiver)):
        done = await crew(*steps, tools=[tool]).kickoff_async(inputs={"prompt": "Is 4.2 safe?"})
    assert done.raw == "legal says low" and len(receiver.carried_out) == 1


async def test_a_durable_flow_relays_state_history_and_budget_and_finishes_its_task(pair: Pair) -> None:
    receiver = Receiver()
    told: list[str] = []
    run, flow = str(uuid.uuid4()), triage(pair.to, told)
    async with asynchronous(pair.sender) as client:
        with pytest.raises(WaitTimeoutError):
            await run_durably(flow, client=client, run=run, budget_usd=5, timeout=0.2)
        # As another process does: from what was committed with the handoff.
        with Working(Worker(pair.receiver, receiver)):
            done = await run_durably(flow, client=client, run=run, timeout=30)
        again = await run_durably(flow, client=client, run=run)
    assert done.output == again.output == SAID and again.run is None and guarded(told[-1])
    message = receiver.messages[0]
    assert message["conversationHistoryVerbatim"] == [{"role": "user", "content": "Is 4.2 safe?"}]
    assert message["currentState"] == {"clause": "4.2"}
    assert message["toolState"] == {"pending_approvals": ["ask-1"]}
    assert message["costTracking"]["costBudgetRemainingUSD"] == 5
    assert pair.sender.tasks.get(done.task_id).status == "COMPLETED"


async def test_two_handoffs_of_a_flow_and_a_rejection(pair: Pair) -> None:
    class Twice(Flow[dict[str, Any]]):
        @start()
        @handoff_to(pair.to, raw=True)
        def first(self) -> str:
            return "first"

        @listen(first)
        @handoff_to(pair.to)
        def second(self, found: Any) -> str:
            self.state["first"] = found.feedback
            return "second"

        @listen(second)
        def both(self, found: Any) -> list[str]:
            return [self.state["first"], found.feedback]

    def decide(handoff):
        if handoff.task == "second":
            raise Reject("NO_TIME")

    async with asynchronous(pair.sender) as client:
        with Working(Worker(pair.receiver, lambda one: one.task, decide=decide)):
            done = await run_durably(Twice, client=client, run=str(uuid.uuid4()), timeout=30)
    assert done.output[0] == "first" and done.output[1] == "The handoff ended REJECTED: NO_TIME."
    assert [one.status for one in done.outcomes.values()] == ["COMPLETED", "REJECTED"]


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_a_run_that_is_killed_goes_on_in_another_process(pair: Pair, round_: int) -> None:
    killed, _ = crash_case("sender_crewai.py", pair, round_)
    print(f"killed {killed} times")


async def test_a_worker_runs_a_crew_and_maps_its_ends(pair: Pair) -> None:
    def polite(output: Any) -> tuple[bool, Any]:
        passed = "rude" not in output.raw
        return passed, output.raw if passed else "be polite"

    answers = iter(["Thought: x\nFinal Answer: rude words", 'Thought: x\nFinal Answer: {"risk": "low"}'])
    found, result = {}, None
    worker = crew_worker(
        pair.receiver, lambda: crew(next(answers), guardrail=rejecting(polite)), price=lambda _, out: out / 100, accept_within=20
    )
    with Working(worker):
        async with asynchronous(pair.sender) as client:
            for task in ("first", "second"):
                sent = await client.hand_off(pair.to, task, budget_usd=5)
                result = await client.handoffs.wait_ended(sent.handoff_id, timeout=60)
                found[task] = (result.status, (result.reason or "").split(":")[0])
    assert found == {"first": ("REJECTED", "OUTPUT_GUARDRAIL"), "second": ("COMPLETED", "")}
    assert result and result.result == {"risk": "low"}
    cost = pair.sender.tasks.cost(result.task_id)
    assert cost.sums and (cost.sums.spent_usd, cost.sums.tokens.prompt) == (0.1, 100)


def repeating(target: str, script: Script) -> type[Flow[Any]]:
    class Repeating(Flow[dict[str, Any]]):
        @start()
        @handoff_to(target)
        def first(self) -> Any:
            return {"task": "first", "history": [{"role": "user", "content": self.state.get("prompt", "go")}]}

        @listen(first)
        @handoff_to(target)
        def second(self, found: Any) -> Any:
            self.state["first"] = found.feedback
            history = [{"role": "user", "content": self.state.get("prompt", "go")}, {"role": "tool", "content": found.feedback}]
            return {"task": "second", "history": history}

        @listen(second)
        def both(self, found: Any) -> Any:
            return script.next([self.state["first"], found.feedback])

    return Repeating


async def test_a_second_handoff_carries_the_first_ones_result(pair: Pair) -> None:
    script = Script()
    flow = repeating(pair.to, script)
    await goes_on(pair, script, lambda client, run, left: run_durably(flow, client=client, run=run, timeout=left))


async def test_a_workers_flow_hands_on(pair: Pair, third: Client) -> None:
    script = Script()
    await hands_on(pair, third, script, crew_worker(pair.receiver, repeating(third.agent_id or "", script)))
