import asyncio

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient

legal = Agent(client=OpenAIChatClient(model="gpt-5"), name="legal", instructions="Review clauses.")


async def main() -> None:
    intake = Agent(client=OpenAIChatClient(model="gpt-5"), name="intake", instructions="Route to legal.", tools=[legal.as_tool()])
    print((await intake.run("Is clause 4.2 safe?")).text)


asyncio.run(main())
