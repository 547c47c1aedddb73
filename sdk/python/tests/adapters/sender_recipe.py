"""A recipe's run in a process of its own: RECIPE in the environment; URL KEY AGENT TARGET RUN."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from recipe_models import RECIPES

from handoffd import AsyncClient

url, key, agent_id, target, run = sys.argv[1:6]


async def main() -> None:
    async with AsyncClient(url, key, agent_id=agent_id) as client:
        print("ready", flush=True)
        output = await RECIPES[os.environ["RECIPE"]](client, run, target)
    print(json.dumps(output), flush=True)


asyncio.run(main())
