"""Semantic Kernel: a chat whose handoffs go over the broker, and go on in another process after a crash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from semantic_kernel import Kernel
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.prompt_execution_settings import PromptExecutionSettings
from semantic_kernel.contents import ChatHistory, ChatMessageContent, FunctionCallContent, FunctionResultContent
from semantic_kernel.functions import kernel_function

from handoffd import AsyncClient, AsyncHandoff, Worker
from handoffd.adapters import BrokerRun, call_of, transfer_description, transfer_name


def add_transfer(kernel: Kernel, target: str) -> None:
    """Gives the kernel the function by which its model hands off. The kernel does not call it: `run_durably` does."""

    @kernel_function(name=transfer_name(target), description=transfer_description(target))
    def transfer(task: str, reason: str) -> str:
        raise RuntimeError("run the chat with run_durably")

    kernel.add_function("broker", transfer)


async def run_durably(kernel: Kernel, question: str, *, client: AsyncClient, run: str, targets: Sequence[str]) -> str:
    """Runs a chat until its model calls no function any more. Functions of the kernel besides transfers are invoked."""
    broker = BrokerRun(client, run, framework="semantic-kernel")
    by_name = {f"broker-{transfer_name(target)}": target for target in targets}
    kept = await broker.load()
    if kept is not None and "output" in kept:
        await broker.finish(kept["output"])
        return str(kept["output"])
    history = ChatHistory() if kept is None else ChatHistory.model_validate(kept["snapshot"]["history"])
    if kept is None:
        history.add_user_message(question)
    chat: Any = kernel.get_service(type=ChatCompletionClientBase)
    settings = PromptExecutionSettings(function_choice_behavior=FunctionChoiceBehavior.Auto(auto_invoke=False))
    while True:
        if kept is None:
            (said,) = await chat.get_chat_message_contents(history, settings, kernel=kernel)
            history.add_message(said)
        kept = None
        calls = [one for one in history.messages[-1].items if isinstance(one, FunctionCallContent)]
        if not calls:
            break
        snapshot = {"history": history.model_dump(mode="json", exclude_none=True)}
        ours = [one for one in calls if one.name in by_name]
        for place, one in enumerate(ours):
            call = call_of(one.id or "", by_name[one.name or ""], one.parse_arguments() or {})
            await broker.hand_off(call, snapshot, history=_turns(history), siblings=len(ours) - place)
        for one in calls:
            if one.name in by_name:
                said = (await broker.outcome(one.id or "")).text
            else:
                said = str(await kernel.invoke(plugin_name=one.plugin_name, function_name=one.function_name, **_given(one)))
            result = FunctionResultContent.from_function_call_content_and_result(one, said)
            history.add_message(result.to_chat_message_content())
    output = str(await broker.output(str(history.messages[-1].content)))
    await broker.finish(output)
    return output


def _given(call: FunctionCallContent) -> Mapping[str, Any]:
    return call.parse_arguments() or {}


def _turns(history: ChatHistory) -> list[dict[str, Any]]:
    """The chat as turns, with roles and calls."""
    return [{"role": one.role.value, "content": _content(one)} for one in history.messages]


def _content(message: ChatMessageContent) -> Any:
    parts = [one.model_dump(mode="json", exclude_none=True) for one in message.items]
    return message.content if len(parts) == 1 and parts[0].get("content_type") == "text" else parts


def chat_worker(client: AsyncClient, chat: ChatCompletionClientBase) -> Worker:
    """A worker: the guarded prompt is the user's message, the model's answer the result."""

    async def handler(handoff: AsyncHandoff) -> str:
        history = ChatHistory()
        history.add_user_message(await handoff.prompt())
        (said,) = await chat.get_chat_message_contents(history, PromptExecutionSettings())
        return str(said.content)

    return Worker(client, handler)
