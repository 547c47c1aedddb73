"""An agent that reviews clauses: it waits for handoffs, and answers each with a result."""

from handoffd import Client, Handoff, Worker


def review(handoff: Handoff) -> dict[str, str]:
    print(f"legal: {handoff.task} {handoff.state}")
    return {"clause": handoff.state["clause"], "risk": "low"}


with Client.local() as operator:  # http://127.0.0.1:8080, with the key in ./handoffd-data
    legal = operator.enroll("legal")

print("legal waits for handoffs")
Worker(legal, review).run()
