"""Each framework has an environment of its own: what is not installed here is not collected here."""

from __future__ import annotations

import importlib.util
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pairs import Pair

from handoffd import Client

sys.path.insert(0, str(Path(__file__).parent))

MODULES = {
    "openai_agents": "agents",
    "langgraph": "langgraph",
    "pydantic_ai": "pydantic_ai",
    "google_adk": "google.adk",
    "agent_framework": "agent_framework",
    "crewai": "crewai",
    "recipes": "autogen_agentchat",
}


def installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


missing = [name for name in os.environ.get("SDK_FRAMEWORKS", "").split() if not installed(MODULES[name])]
if missing:
    raise pytest.UsageError(f"not installed, though scripts/sdk-python asks for them: {', '.join(missing)}")
collect_ignore = [f"test_{name}.py" for name, module in MODULES.items() if not installed(module)]


@pytest.fixture
def third(admin: Client, pair: Pair) -> Iterator[Client]:
    """An agent to which the pair's receiver may hand on."""
    name = f"expert-{uuid.uuid4().hex[:8]}"
    with admin.enroll(name) as client:
        admin.agents.update(pair.to, handoff_targets=[name])
        yield client
