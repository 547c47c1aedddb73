"""A scripted model of Google ADK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.adk.models import BaseLlm, LlmResponse
from google.genai import types

USAGE = types.GenerateContentResponseUsageMetadata(prompt_token_count=100, candidates_token_count=10, total_token_count=110)


class Scripted(BaseLlm):
    """Answers by a function of the request's contents."""

    answer: Callable[[Any], list[types.Part]]

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        parts = self.answer(llm_request.contents)
        yield LlmResponse(content=types.Content(role="model", parts=parts), usage_metadata=USAGE)


def script(*turns: list[types.Part]) -> Scripted:
    left = list(turns)
    return Scripted(model="scripted", answer=lambda _: left.pop(0))


def call(name: str, call_id: str, **arguments: str) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=call_id, name=name, args=arguments))


def responses(contents: Any) -> list[types.FunctionResponse]:
    return [part.function_response for one in contents for part in one.parts or [] if part.function_response]
