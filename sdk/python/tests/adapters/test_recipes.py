"""The recipes of docs/sdk/recipes.md: AutoGen, Semantic Kernel, workflows of Agent Framework, with scripted models."""

from __future__ import annotations

import uuid

import pytest
from broker import REPOSITORY
from crashes import ROUNDS, SAID, Receiver, crash_case, guarded
from pairs import Pair
from recipe_models import RECIPES
from working import Working, asynchronous

from handoffd import Worker


@pytest.mark.parametrize("recipe", RECIPES)
async def test_a_recipe_waits_for_the_answer_and_ends_once(pair: Pair, recipe: str) -> None:
    receiver, seen, run = Receiver(), [], str(uuid.uuid4())
    with Working(Worker(pair.receiver, receiver)):
        async with asynchronous(pair.sender) as client:
            first = await RECIPES[recipe](client, run, pair.to, seen)
            again = await RECIPES[recipe](client, run, pair.to)
    assert first == again == SAID and guarded(seen[-1])
    assert len(receiver.carried_out) == 1
    message = receiver.messages[0]
    assert "Check clause 4.2" in str(message["remainingSubtasks"])
    if recipe != "workflow":
        assert message["conversationHistoryVerbatim"][0]["role"] == "user"


@pytest.mark.parametrize("round_", range(ROUNDS))
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_that_is_killed_goes_on_in_another_process(
    pair: Pair, recipe: str, round_: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECIPE", recipe)
    killed, _ = crash_case("sender_recipe.py", pair, round_)
    print(f"killed {killed} times")


async def test_workers_of_the_recipes_answer_handoffs(pair: Pair) -> None:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.conditions import TextMessageTermination
    from autogen_agentchat.teams import RoundRobinGroupChat
    from autogen_ext.models.replay import ReplayChatCompletionClient
    from autogen_handoff import team_worker
    from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
    from semantic_kernel.contents import AuthorRole, ChatMessageContent
    from semantic_kernel_handoff import chat_worker

    class Scripted(ChatCompletionClientBase):
        async def _inner_get_chat_message_contents(self, chat_history, settings):
            assert "[CONTEXT FROM PREVIOUS AGENT" in chat_history.messages[0].content
            return [ChatMessageContent(role=AuthorRole.ASSISTANT, content="low, says the kernel")]

    legal = AssistantAgent("legal", model_client=ReplayChatCompletionClient(["low, says the team"]))
    team = RoundRobinGroupChat([legal], termination_condition=TextMessageTermination("legal"))
    workers = [lambda client: team_worker(client, team), lambda client: chat_worker(client, Scripted(ai_model_id="scripted"))]
    said = []
    for make in workers:
        async with asynchronous(pair.sender) as client:
            with Working(make(asynchronous(pair.receiver))):
                said.append((await client.hand_off_and_wait(pair.to, "Check clause 4.2", timeout=30)).result)
    assert said == ["low, says the team", "low, says the kernel"]


@pytest.mark.parametrize("name", ["autogen_handoff", "semantic_kernel_handoff", "workflow_handoff"])
def test_the_page_shows_the_recipes_as_they_are(name: str) -> None:
    text = (REPOSITORY / "examples" / "python" / "recipes" / f"{name}.py").read_text()
    assert f"```python\n{text}```" in (REPOSITORY / "docs" / "sdk" / "recipes.md").read_text()
