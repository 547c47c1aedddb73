import asyncio

from pydantic_ai import Agent

legal = Agent("openai:gpt-5", instructions="Review clauses.")
intake = Agent("openai:gpt-5", instructions="Route to legal.")


@intake.tool_plain
async def transfer_to_legal(task: str) -> str:
    """Hand a task to legal."""
    return (await legal.run(task)).output


async def main() -> None:
    print((await intake.run("Is clause 4.2 safe?")).output)


asyncio.run(main())
