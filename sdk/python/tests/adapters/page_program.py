"""Runs a program of a framework's page as it stands there, a scripted model in the place of the one that it names: PAGE PLACE.

The first program hands off and repeats what came back, the last one is a worker whose model answers at once."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

PAGES = Path(__file__).resolve().parents[4] / "docs" / "sdk"
TOOL, ASKED, VERDICT = "transfer_to_legal", {"task": "Check clause 4.2", "reason": "clauses are legal's"}, '{"risk": "low"}'


def openai_agents(is_worker: bool) -> None:
    import agents
    from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

    import handoffd.adapters.openai_agents  # noqa: F401  (before the class is replaced)

    agents.set_tracing_disabled(True)

    def respond(call: Any) -> Any:
        outputs = [one for one in call.input if isinstance(one, dict) and one.get("type") == "function_call_output"]
        if is_worker or outputs:
            return ModelStep([assistant_message(VERDICT if is_worker else f"Legal says: {outputs[-1]['output']}")])
        return ModelStep([function_call(TOOL, ASKED, call_id="c1")])

    agents.Agent = partial(agents.Agent, model=ScriptedModel([ModelStep.respond(respond)] * 9))  # type: ignore[misc]


def langgraph(is_worker: bool) -> None:
    import langchain.agents
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
            if is_worker:
                said = AIMessage(VERDICT)
            elif isinstance(messages[-1], ToolMessage):
                said = AIMessage(f"Legal says: {messages[-1].content}")
            else:
                said = AIMessage("", tool_calls=[{"name": TOOL, "args": ASKED, "id": "c1"}])
            return ChatResult(generations=[ChatGeneration(message=said)])

    real = langchain.agents.create_agent
    langchain.agents.create_agent = lambda _, *rest, **more: real(Scripted(), *rest, **more)


def pydantic_ai(is_worker: bool) -> None:
    import pydantic_ai
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    import handoffd.adapters.pydantic_ai  # noqa: F401  (before the class is replaced)

    def answer(messages: Any, _: Any) -> ModelResponse:
        returns = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        if is_worker or returns:
            return ModelResponse([TextPart(VERDICT if is_worker else f"Legal says: {returns[-1].content}")])
        return ModelResponse([ToolCallPart(TOOL, ASKED, tool_call_id="c1")])

    real = pydantic_ai.Agent
    pydantic_ai.Agent = lambda _, **more: real(FunctionModel(answer), **more)  # type: ignore[misc]


def google_adk(is_worker: bool) -> None:
    import google.adk.agents
    from adk_script import Scripted, call, responses
    from google.genai import types as genai

    import handoffd.adapters.google_adk  # noqa: F401  (before the class is replaced)

    def answer(contents: Any) -> Any:
        found = responses(contents)
        if is_worker or found:
            return [genai.Part(text=VERDICT if is_worker else f"Legal says: {found[-1].response['result']}")]
        return [call(TOOL, "c1", **ASKED)]

    real = google.adk.agents.LlmAgent
    scripted = Scripted(model="scripted", answer=answer)
    google.adk.agents.LlmAgent = lambda **given: real(**{**given, "model": scripted})  # type: ignore[misc]


def agent_framework(is_worker: bool) -> None:
    from af_script import Scripted, call, results, text

    def answer(messages: Any) -> Any:
        found = results(messages)
        if is_worker or found:
            return text(VERDICT if is_worker else f"Legal says: {found[-1].result}")
        return [call(TOOL, "c1", **ASKED)]

    # The package of the clients for OpenAI is not the framework's own.
    clients = types.ModuleType("agent_framework.openai")
    # It has no model of its own accord.
    clients.OpenAIChatClient = lambda model: Scripted(answer)  # type: ignore[attr-defined]
    sys.modules["agent_framework.openai"] = clients


def crewai(is_worker: bool) -> None:
    import crewai
    from crewai import BaseLLM

    class Scripted(BaseLLM):
        def call(self, messages: Any, *_: Any, **__: Any) -> str:
            return f"Thought: done\nFinal Answer: {VERDICT}"

        def supports_function_calling(self) -> bool:
            return False

    if is_worker:
        crewai.Agent = partial(crewai.Agent, llm=Scripted(model="scripted"))  # type: ignore[misc]


SCRIPTED: dict[str, Callable[[bool], None]] = {
    "openai-agents": openai_agents,
    "langgraph": langgraph,
    "pydantic-ai": pydantic_ai,
    "google-adk": google_adk,
    "agent-framework": agent_framework,
    "crewai": crewai,
}

if __name__ == "__main__":
    page, place = sys.argv[1], int(sys.argv[2])
    programs = re.findall(r"```python\n(.*?)```", (PAGES / f"{page}.md").read_text(), re.S)
    SCRIPTED[page](place != 0)
    exec(compile(programs[place], f"{page}.md", "exec"), {"__name__": "__main__"})
