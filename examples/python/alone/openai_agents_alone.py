import asyncio

from agents import Agent, Runner

legal = Agent(name="legal", instructions="Review clauses.")
intake = Agent(name="intake", instructions="Route to legal.", handoffs=[legal])


async def main() -> None:
    done = await Runner.run(intake, "Is clause 4.2 safe?")
    print(done.final_output)


asyncio.run(main())
