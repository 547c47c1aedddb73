"""The last step of a workflow: it says what came back."""

from agent_framework import Executor, WorkflowContext, handler


class Say(Executor):
    def __init__(self, seen: list[str] | None) -> None:
        super().__init__(id="say")
        self.seen = seen

    @handler
    async def say(self, back: str, ctx: WorkflowContext[str, str]) -> None:
        if self.seen is not None:
            self.seen[:] = [back]
        await ctx.yield_output(f"Legal says: {back}")
