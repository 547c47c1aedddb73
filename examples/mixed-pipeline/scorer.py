"""Google ADK: judges clauses, rejects a handoff that lacks a clause's text, and has the judgement put into words."""

from __future__ import annotations

import json
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types

from handoffd import Client
from handoffd.adapters.google_adk import agent_worker, transfer_tool


class MissingClauseText(Exception):
    """A clause came without its text."""


class Scripted(BaseLlm):
    """What a model would do here: have the judgement summarised, then answer."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        answers = [part.function_response for one in llm_request.contents for part in one.parts or [] if part.function_response]
        if answers:
            said = types.Part(text=json.dumps({"risk": "high", "clause": "9.3"}))
        else:
            wish = {"task": "Put the judgement into two sentences: 4.2 is fair, 9.3 has no cap", "reason": "it is for a person"}
            said = types.Part(function_call=types.FunctionCall(id="to-summariser", name="transfer_to_summariser", args=wish))
        yield LlmResponse(content=types.Content(role="model", parts=[said]))


def complete(callback_context: Any, llm_request: Any) -> None:
    """A guardrail: the prompt has a text for each clause."""
    if "(no text)" in str(llm_request.contents[0]):
        raise MissingClauseText


scorer = LlmAgent(
    name="scorer",
    model=Scripted(model="scripted"),
    tools=[transfer_tool("summariser")],
    before_model_callback=complete,
)
agent_worker(Client(), scorer, rejections={MissingClauseText: "MISSING_CLAUSE_TEXT"}, poll=2).run()
