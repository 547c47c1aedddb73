"""Scripted runs of the recipes: what the tests and the crashed processes share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "examples" / "python" / "recipes"))

TASK = "Check clause 4.2"


async def autogen(client: Any, run: str, target: str, seen: list[str] | None = None) -> str:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.base import Handoff
    from autogen_agentchat.conditions import HandoffTermination, TextMessageTermination
    from autogen_agentchat.teams import RoundRobinGroupChat
    from autogen_core import FunctionCall
    from autogen_core.models import CreateResult, ModelFamily, RequestUsage
    from autogen_ext.models.replay import ReplayChatCompletionClient
    from autogen_handoff import run_durably

    class Scripted(ReplayChatCompletionClient):
        async def create(self, messages: Any, **_: Any) -> CreateResult:
            usage = RequestUsage(prompt_tokens=100, completion_tokens=10)
            backs = [one.content for one in messages if "[CONTEXT FROM" in str(one.content)]
            if seen is not None:
                seen[:] = backs
            if backs:
                return CreateResult(finish_reason="stop", content=f"Legal says: {backs[-1]}", usage=usage, cached=False)
            call = FunctionCall(id="c1", name="transfer_to_legal", arguments="{}")
            return CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False)

    info = {
        "vision": False,
        "function_calling": True,
        "json_output": False,
        "family": ModelFamily.UNKNOWN,
        "structured_output": False,
    }
    model = Scripted([], model_info=info)  # type: ignore[arg-type]
    intake = AssistantAgent("intake", model_client=model, handoffs=[Handoff(target="legal", description="Knows contracts.")])
    team = RoundRobinGroupChat([intake], termination_condition=HandoffTermination("legal") | TextMessageTermination("intake"))
    return await run_durably(team, TASK, client=client, run=run, targets={"legal": target})


async def semantic_kernel(client: Any, run: str, target: str, seen: list[str] | None = None) -> str:
    from semantic_kernel import Kernel
    from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
    from semantic_kernel.contents import AuthorRole, ChatMessageContent, FunctionCallContent, FunctionResultContent
    from semantic_kernel.functions import kernel_function
    from semantic_kernel_handoff import add_transfer, run_durably

    from handoffd.adapters import transfer_name

    class Scripted(ChatCompletionClientBase):
        SUPPORTS_FUNCTION_CALLING = True

        async def _inner_get_chat_message_contents(self, chat_history: Any, settings: Any) -> Any:
            backs = [
                item.result for one in chat_history.messages for item in one.items if isinstance(item, FunctionResultContent)
            ]
            if seen is not None:
                seen[:] = [str(back) for back in backs]
            if len(backs) == 2:
                return [ChatMessageContent(role=AuthorRole.ASSISTANT, content=f"Legal says: {backs[-1]}")]
            wishes = [
                ("read", "clauses-read", {}),
                ("c1", f"broker-{transfer_name(target)}", {"task": TASK, "reason": "clauses"}),
            ]
            call_id, name, arguments = wishes[len(backs)]
            call = FunctionCallContent(id=call_id, name=name, arguments=arguments)
            return [ChatMessageContent(role=AuthorRole.ASSISTANT, items=[call])]

        def _update_function_choice_settings_callback(self) -> Any:
            return lambda *_, **__: None

    class Clauses:
        @kernel_function(name="read")
        def read(self) -> str:
            "Read the contract."
            return "clause 4.2: unlimited"

    kernel = Kernel(services=[Scripted(ai_model_id="scripted", service_id="scripted")])
    kernel.add_plugin(Clauses(), "clauses")
    add_transfer(kernel, target)
    return await run_durably(kernel, "Is 4.2 safe?", client=client, run=run, targets=[target])


async def workflow(client: Any, run: str, target: str, seen: list[str] | None = None) -> str:
    from agent_framework import WorkflowBuilder
    from recipe_say import Say
    from workflow_handoff import HandOff, run_durably

    def build(storage: Any) -> Any:
        ask = HandOff(target)
        return WorkflowBuilder(name="intake", start_executor=ask, checkpoint_storage=storage).add_edge(ask, Say(seen)).build()

    return str(await run_durably(build, TASK, client=client, run=run))


RECIPES = {"autogen": autogen, "semantic_kernel": semantic_kernel, "workflow": workflow}
