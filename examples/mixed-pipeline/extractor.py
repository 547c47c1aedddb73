"""LangGraph: reads the contract, hands what it found to `scorer`, and mends it where the scorer rejects it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from handoffd import Client
from handoffd.adapters.langgraph import graph_worker, transfer_tool

CONTRACT = Path(__file__).with_name("contract.txt")


@tool
def read_pages(first: int, last: int) -> str:
    """Read pages of the contract."""
    pages = CONTRACT.read_text().split("\f")
    return "\n".join(pages[first - 1 : last])


class Scripted(BaseChatModel):
    """What a model would do here, by the answers that it has so far."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        answers = [one for one in messages if isinstance(one, ToolMessage)]
        return ChatResult(generations=[ChatGeneration(message=STEPS[len(answers)](answers))])


def call(name: str, call_id: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": call_id}])


def transfer(call_id: str, clauses: str) -> AIMessage:
    return call("transfer_to_scorer", call_id, task=f"Score these clauses. {clauses}", reason="the clauses are found")


def mended(answers: list[ToolMessage]) -> AIMessage:
    assert "REJECTED: MISSING_CLAUSE_TEXT" in str(answers[-1].content)
    return call("read_pages", "read-14", first=14, last=14)


STEPS = [
    lambda _: call("read_pages", "read-1", first=1, last=13),
    lambda _: transfer("score-1", "4.2: capped at the fees of a year. 9.3: (no text)."),
    mended,
    lambda _: transfer("score-2", "4.2: capped at the fees of a year. 9.3: unlimited for data."),
    lambda answers: AIMessage('{"clauses": ["4.2", "9.3"], "judged": true}'),
]

graph = create_agent(Scripted(), [read_pages, transfer_tool("scorer")], checkpointer=InMemorySaver())
# A heartbeat each second: after four missed ones another process takes the work up.
graph_worker(Client(), graph, heartbeat=1.0, poll=2).run()
