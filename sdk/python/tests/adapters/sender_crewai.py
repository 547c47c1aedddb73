"""A flow in a process of its own: URL KEY AGENT TARGET RUN. It hands off, then repeats what came back."""

from __future__ import annotations

import asyncio
import json
import sys

from crewai.flow.flow import Flow, listen, start

from handoffd import AsyncClient
from handoffd.adapters.crewai import handoff_to, run_durably

url, key, agent_id, target, run = sys.argv[1:6]


class Triage(Flow):
    @start()
    @handoff_to(target)
    def ask(self):
        self.state["asked"] = True
        return {"task": "Check clause 4.2", "reason": "clauses are legal's", "clause": "4.2"}

    @listen(ask)
    def answer(self, found):
        assert self.state["asked"] is True
        return f"Legal says: {found.feedback}"


async def main() -> None:
    async with AsyncClient(url, key, agent_id=agent_id) as client:
        print("ready", flush=True)
        done = await run_durably(Triage, client=client, run=run, suppress_flow_events=True)
    print(json.dumps(done.output), flush=True)


asyncio.run(main())
