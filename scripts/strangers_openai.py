"""A model's tools as `openai-agents` (PyPI) reads them at the MCP door: list, refusal, hand-off and result.

Usage: strangers_openai.py URL ADMIN_KEY
"""

import asyncio
import json
import sys
import urllib.request

from agents.mcp import MCPServerStreamableHttp

URL, ADMIN_KEY = sys.argv[1:3]


def register(agent: str, targets: list[str]) -> str:
    body = json.dumps({"agentId": agent, "handoffTargets": targets}).encode()
    headers = {"Authorization": f"Bearer {ADMIN_KEY}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{URL}/agents", body, headers)) as answer:
        return json.load(answer)["apiKey"]


def server(key: str) -> MCPServerStreamableHttp:
    params = {"url": f"{URL}/mcp", "headers": {"Authorization": f"Bearer {key}"}, "timeout": 60}
    return MCPServerStreamableHttp(params=params, client_session_timeout_seconds=60)


async def main() -> None:
    receiver, sender = register("openai-b", []), register("openai-a", ["openai-b"])
    async with server(sender) as ours, server(receiver) as theirs:
        names = [tool.name for tool in await ours.list_tools()]
        assert names[:2] == ["find_agents", "hand_off"], names
        refused = await ours.call_tool("hand_off", {"target": "nobody", "task": "x", "summary": "y"})
        assert refused.is_error if hasattr(refused, "is_error") else refused.isError, refused
        given = {"target": "openai-b", "task": "Add the two", "summary": "Three and four.", "waitSeconds": 30}
        handing = asyncio.create_task(ours.call_tool("hand_off", given))
        item = await theirs.call_tool("take_next", {"waitSeconds": 20})
        block = item.content[0].text
        assert "Add the two" in block, block
        held = json.loads(item.content[1].text)
        held = {name: held[name] for name in ("handoffId", "fencingToken")}
        await theirs.call_tool("accept", held)
        await theirs.call_tool("complete", {**held, "result": {"sum": 7}})
        result = await handing
        assert "7" in result.content[0].text, result
        print(f"openai-agents: {held['handoffId']} completed")


asyncio.run(main())
