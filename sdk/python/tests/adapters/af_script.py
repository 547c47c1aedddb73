"""A scripted chat client of Agent Framework, with the layers that its own clients have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_framework import BaseChatClient, ChatMiddlewareLayer, ChatResponse, Content, FunctionInvocationLayer, Message


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Answers by a function of the messages."""

    def __init__(self, answer: Callable[[list[Message]], list[Content]]) -> None:
        super().__init__()
        self.answer = answer
        self.seen: list[list[Message]] = []

    async def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> ChatResponse:
        self.seen.append(list(messages))
        said = Message("assistant", self.answer(list(messages)))
        usage = {"input_token_count": 100, "output_token_count": 10, "total_token_count": 110}
        return ChatResponse(messages=[said], response_id="r", usage_details=usage)


def script(*turns: list[Content]) -> Scripted:
    left = list(turns)
    return Scripted(lambda _: left.pop(0))


def text(said: str) -> list[Content]:
    return [Content.from_text(said)]


def call(name: str, call_id: str, **arguments: str) -> Content:
    return Content.from_function_call(call_id=call_id, name=name, arguments=arguments)


def results(messages: list[Message]) -> list[Content]:
    return [one for message in messages for one in message.contents if one.type == "function_result"]
