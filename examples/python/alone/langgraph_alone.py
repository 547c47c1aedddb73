import asyncio

from langchain.agents import create_agent
from langchain_core.tools import tool

legal = create_agent("openai:gpt-5", [])


@tool
async def transfer_to_legal(task: str) -> str:
    """Hand a task to legal."""
    done = await legal.ainvoke({"messages": [{"role": "user", "content": task}]})
    return done["messages"][-1].text


async def main() -> None:
    intake = create_agent("openai:gpt-5", [transfer_to_legal])
    done = await intake.ainvoke({"messages": [{"role": "user", "content": "Is clause 4.2 safe?"}]})
    print(done["messages"][-1].text)


asyncio.run(main())
