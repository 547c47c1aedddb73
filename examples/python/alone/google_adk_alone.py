import asyncio

from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner

legal = LlmAgent(name="legal", model="gemini-3-flash", instruction="Review clauses.", description="Knows contracts.")
intake = LlmAgent(name="intake", model="gemini-3-flash", instruction="Route to legal.", sub_agents=[legal])


async def main() -> None:
    for event in await InMemoryRunner(agent=intake).run_debug("Is clause 4.2 safe?"):
        if event.is_final_response() and event.content:
            print(event.content.parts[0].text)


asyncio.run(main())
