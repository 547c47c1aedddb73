"""A triage agent in a process of its own: URL KEY AGENT TARGET RUN. Its model hands off, then repeats what came back."""

from __future__ import annotations

import asyncio
import json
import sys

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from handoffd import AsyncClient
from handoffd.adapters.langgraph import run_durably, transfer_tool

url, key, agent_id, target, run = sys.argv[1:6]


class Scripted(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools, **_):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **_):
        usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
        if isinstance(messages[-1], ToolMessage):
            said = AIMessage(f"Legal says: {messages[-1].content}", usage_metadata=usage)
        else:
            arguments = {"task": "Check clause 4.2", "reason": "clauses are legal's"}
            call = {"name": transfer_tool(target).name, "args": arguments, "id": f"call-{run}"}
            said = AIMessage("", tool_calls=[call], usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=said)])


async def main() -> None:
    graph = create_agent(Scripted(), [transfer_tool(target)], checkpointer=InMemorySaver())
    async with AsyncClient(url, key, agent_id=agent_id) as client:
        print("ready", flush=True)
        question = {"messages": [{"role": "user", "content": "Is clause 4.2 safe?"}]}
        done = await run_durably(graph, question, client=client, run=run, price=lambda used: used["input_tokens"] / 1000)
    print(json.dumps(done.output), flush=True)


asyncio.run(main())
