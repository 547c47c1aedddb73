"""LangGraph and LangChain agents with a scripted chat model, at a real broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from chains import Script, goes_on, hands_on
from crashes import ROUNDS, Receiver, crash_case, guarded
from langchain.agents import create_agent
from langchain.agents.middleware import PIIMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt
from pairs import Pair
from working import Working, asynchronous

from handoffd import Client, Reject, Worker
from handoffd.adapters.langgraph import graph_worker, remote_node, run_durably, transfer_tool
from handoffd.errors import HandoffdError

USAGE = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
ASK = {"messages": [{"role": "user", "content": "Is clause 4.2 safe?"}]}


class Scripted(BaseChatModel):
    """Answers by a function of the messages."""

    answer: Callable[[list[BaseMessage]], AIMessage]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.answer(messages))])


def script(*turns: AIMessage) -> Scripted:
    left = list(turns)
    return Scripted(answer=lambda _: left.pop(0))


def calls(name: str, call_id: str = "c1", **arguments: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": call_id}], usage_metadata=USAGE)


def transfers(target: str, call_id: str = "c1") -> AIMessage:
    return calls(transfer_tool(target).name, call_id, task="Check clause 4.2", reason="clauses are legal's")


def says(text: str) -> AIMessage:
    return AIMessage(text, usage_metadata=USAGE)


@tool
def read() -> str:
    "Read the contract."
    return "clause 4.2: unlimited"


async def test_a_remote_node_waits_for_the_answer(pair: Pair) -> None:
    receiver = Receiver()
    async with asynchronous(pair.sender) as client:
        building = StateGraph(MessagesState)
        building.add_node("legal", remote_node(client, pair.to, timeout=30))
        building.add_node("again", remote_node(client, pair.to, timeout=30, raw=True))
        building.add_edge(START, "legal")
        building.add_edge("legal", "again")
        building.add_edge("again", END)
        with Working(Worker(pair.receiver, receiver)):
            state = await building.compile().ainvoke(ASK)
    assert guarded(state["messages"][-2].content) and json.loads(state["messages"][-1].content) == {"risk": "low"}
    assert receiver.messages[0]["conversationHistoryVerbatim"][0] == {"role": "user", "content": "Is clause 4.2 safe?"}


async def test_a_durable_run_relays_history_budget_and_approvals_and_finishes_its_task(pair: Pair) -> None:
    receiver = Receiver()
    model = script(calls("read", "r1"), transfers(pair.to), says("Legal says: low."))
    graph = create_agent(model, [read, transfer_tool(pair.to)], checkpointer=InMemorySaver())
    run = str(uuid.uuid4())
    async with asynchronous(pair.sender) as client:
        with Working(Worker(pair.receiver, receiver)):
            done = await run_durably(
                graph, ASK, client=client, run=run, price=lambda u: u["input_tokens"] / 1000, budget_usd=5, timeout=30
            )
        again = await run_durably(graph, ASK, client=client, run=run)
    assert done.output == again.output == "Legal says: low." and again.run is None
    message = receiver.messages[0]
    history = message["conversationHistoryVerbatim"]
    assert [turn["role"] for turn in history] == ["user", "assistant", "tool", "assistant"]
    assert history[1]["tool_calls"][0]["name"] == "read"
    assert (history[2]["content"], history[2]["tool_call_id"]) == ("clause 4.2: unlimited", "r1")
    assert [one["tool"] for one in message["toolCallHistory"]] == ["read"]
    assert message["toolState"] == {"pending_approvals": ["c1"]}
    assert message["costTracking"] == {
        "costSpentSoFarUSD": 0.2, "costBudgetRemainingUSD": 4.8, "tokenSpent": {"prompt": 200, "completion": 20},
    }  # fmt: skip
    assert pair.sender.tasks.get(done.task_id).status == "COMPLETED"


async def test_two_transfers_at_once_are_two_handoffs(pair: Pair) -> None:
    def spends(handoff):
        handoff.spend(0.5)
        return handoff.task

    name = transfer_tool(pair.to).name
    both = AIMessage("", tool_calls=[
        {"name": name, "args": {"task": f"part {n}", "reason": "r"}, "id": f"c{n}"} for n in (1, 2)
    ])  # fmt: skip
    seen: list[list[BaseMessage]] = []
    turns = [both, says("done")]

    def answer(messages: list[BaseMessage]) -> AIMessage:
        seen.append(messages)
        return turns.pop(0)

    graph = create_agent(Scripted(answer=answer), [transfer_tool(pair.to)], checkpointer=InMemorySaver())
    async with asynchronous(pair.sender) as client:
        with Working(Worker(pair.receiver, spends, concurrency=2)):
            done = await run_durably(graph, ASK, client=client, run=str(uuid.uuid4()), budget_usd=5, timeout=30)
    told = {one.tool_call_id: one.content for one in seen[-1] if isinstance(one, ToolMessage)}
    assert "\n| part 1\n" in told["c1"] and "\n| part 2\n" in told["c2"] and set(told) == {"c1", "c2"}
    assert len(done.outcomes) == 2


async def test_a_rejected_handoff_is_told_to_the_model(pair: Pair) -> None:
    def decide(_):
        raise Reject("NO_TIME")

    model = script(transfers(pair.to), says("I could not ask legal."))
    graph = create_agent(model, [transfer_tool(pair.to)], checkpointer=InMemorySaver())
    async with asynchronous(pair.sender) as client:
        with Working(Worker(pair.receiver, lambda _: 1, decide=decide)):
            done = await run_durably(graph, ASK, client=client, run=str(uuid.uuid4()), timeout=30)
    assert done.output == "I could not ask legal."
    assert [one.status for one in done.outcomes.values()] == ["REJECTED"]
    assert "REJECTED: NO_TIME" in next(one.content for one in done.run["messages"] if isinstance(one, ToolMessage))


async def test_without_a_checkpointer_it_is_refused(pair: Pair) -> None:
    async with asynchronous(pair.sender) as client:
        with pytest.raises(HandoffdError, match="checkpointer"):
            await run_durably(create_agent(script(), []), ASK, client=client, run="x")


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_a_graph_that_is_killed_goes_on_in_another_process(pair: Pair, round_: int) -> None:
    killed, task_id = crash_case("sender_langgraph.py", pair, round_)
    cost = pair.sender.tasks.cost(task_id)
    assert cost.sums and cost.sums.spent_usd == pytest.approx(0.1)
    print(f"killed {killed} times")


async def test_a_worker_runs_the_graph_and_maps_its_ends(pair: Pair) -> None:
    @tool
    def pay() -> str:
        "Pay."
        return str(interrupt("may I?"))

    def answer(messages: list[BaseMessage]) -> AIMessage:
        text = str(messages[0].content)
        if "loop" in text:
            return calls("read", str(uuid.uuid4()))
        if "money" in text:
            return calls("pay")
        return says('{"risk": "low"}')

    graph = create_agent(
        Scripted(answer=answer), [read, pay], checkpointer=InMemorySaver(),
        middleware=[PIIMiddleware("credit_card", strategy="block")],
    )  # fmt: skip
    found, result = {}, None
    with Working(graph_worker(pair.receiver, graph, price=lambda u: u["output_tokens"] / 100)):
        async with asynchronous(pair.sender) as client:
            for task in ("card 4111 1111 1111 1111", "loop", "money", "fine"):
                sent = await client.hand_off(pair.to, task, budget_usd=5, fields={"maxIterations": 3})
                done = await client.handoffs.wait_ended(sent.handoff_id, timeout=30)
                found[task[:5].strip()] = (done.status, (done.reason or "").split(":")[0])
                result = done
    assert found == {
        "card": ("REJECTED", "INPUT_GUARDRAIL"),
        "loop": ("FAILED", "MAX_ITERATIONS"),
        "money": ("FAILED", "APPROVAL_REQUIRED"),
        "fine": ("COMPLETED", ""),
    }
    assert result and (result.result, result.iterations) == ({"risk": "low"}, 1)
    cost = pair.sender.tasks.cost(result.task_id)
    assert cost.sums and (cost.sums.spent_usd, cost.sums.tokens.prompt) == (0.1, 100)


def repeating(target: str, script: Script) -> Any:
    def answer(messages: list[BaseMessage]) -> AIMessage:
        wish = script.next([str(one.content) for one in messages if isinstance(one, ToolMessage)])
        return says(wish) if isinstance(wish, str) else calls(transfer_tool(target).name, wish[0], **wish[1])

    return create_agent(Scripted(answer=answer), [transfer_tool(target)], checkpointer=InMemorySaver())


async def test_a_second_handoff_carries_the_first_ones_result(pair: Pair) -> None:
    script = Script()

    def go(client, run, left):
        # A checkpointer of its own, as in another process.
        return run_durably(repeating(pair.to, script), ASK, client=client, run=run, timeout=left)

    await goes_on(pair, script, go)


async def test_a_workers_graph_hands_on(pair: Pair, third: Client) -> None:
    script = Script()
    await hands_on(pair, third, script, graph_worker(pair.receiver, repeating(third.agent_id or "", script)))
