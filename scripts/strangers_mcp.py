"""Two models as the official Python client (PyPI `mcp`) has them: one hands a task off, the other takes and completes it.

Usage: strangers_mcp.py URL ADMIN_KEY HANDOFFD KEY_FILE
KEY_FILE gets the key of an agent that sends and receives.
Both roads of the client are taken: over HTTP in its newest protocol and in the older one that begins with a handshake,
and over standard input and output by `HANDOFFD mcp`.
"""

import asyncio
import json
import os
import pathlib
import sys
import urllib.request

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

URL, ADMIN_KEY, HANDOFFD, KEY_FILE = sys.argv[1:5]


def register(agent: str, targets: list[str]) -> str:
    body = json.dumps({"agentId": agent, "handoffTargets": targets}).encode()
    headers = {"Authorization": f"Bearer {ADMIN_KEY}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{URL}/agents", body, headers)) as answer:
        return json.load(answer)["apiKey"]


def over_http(key: str, mode: str) -> Client:
    http = create_mcp_http_client(headers={"Authorization": f"Bearer {key}"})
    return Client(streamable_http_client(f"{URL}/mcp", http_client=http), mode=mode)


def over_stdio(key: str) -> Client:
    environment = {**os.environ, "HANDOFFD_API_KEY": key}
    return Client(StdioServerParameters(command=HANDOFFD, args=["mcp", "--url", URL], env=environment))


async def work(client: Client) -> None:
    item = await client.call_tool("take_next", {"waitSeconds": 20})
    assert not item.is_error and "Add the two" in item.content[0].text, item
    held = {name: item.structured_content[name] for name in ("handoffId", "fencingToken")}
    assert not (await client.call_tool("accept", held)).is_error
    done = await client.call_tool("complete", {**held, "result": {"sum": 7}, "summary": "Added."})
    assert not done.is_error and done.structured_content["status"] == "COMPLETED", done


async def converse(name: str, sender: Client, receiver: Client) -> None:
    async with sender, receiver:
        offered = [tool.name for tool in (await sender.list_tools()).tools]
        assert offered[:2] == ["find_agents", "hand_off"], offered
        refused = await sender.call_tool("hand_off", {"target": f"{name}-b", "task": "x"})
        assert refused.is_error and refused.structured_content["code"] == "SCHEMA_INVALID", refused
        given = {"target": f"{name}-b", "task": "Add the two", "summary": "Three and four.", "waitSeconds": 30}
        working = asyncio.create_task(work(receiver))
        result = await sender.call_tool("hand_off", given)
        await working
        assert not result.is_error and result.structured_content["status"] == "COMPLETED", result
        assert "7" in result.content[0].text, result
        print(f"{name}: protocol {sender.protocol_version}, {result.structured_content['handoffId']} completed")


async def main() -> None:
    roads = {
        "modern": lambda key: over_http(key, "auto"),
        "legacy": lambda key: over_http(key, "legacy"),
        "stdio": over_stdio,
    }
    for name, road in roads.items():
        receiver, sender = register(f"{name}-b", []), register(f"{name}-a", [f"{name}-b"])
        await converse(name, road(sender), road(receiver))
        pathlib.Path(KEY_FILE).write_text(sender)


asyncio.run(main())
