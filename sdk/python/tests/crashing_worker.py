"""A worker in a process of its own: URL KEY AGENT FOLDER. It saves after each of five steps, and writes each step's effect
to a file once."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from handoffd import Client, Handoff, Worker

url, key, agent, folder = sys.argv[1:5]
steps = Path(folder)


def work(handoff: Handoff) -> dict[str, object]:
    state = handoff.restore() or {"done": []}
    done = list(state["done"])
    for step in range(len(done), 5):
        handoff.check()
        with (steps / f"{handoff.handoff_id}.{step}").open("a") as effect:
            effect.write("x")
        done.append(step)
        handoff.save({"done": done})
        print(step, flush=True)
        time.sleep(0.15)
    return {"done": done, "resumed": handoff.resumed}


Worker(Client(url, key, agent_id=agent), work, heartbeat=0.2, poll=2).run()
