"""An agent that hands a task to `legal`, in another process, and prints what came of it."""

from handoffd import Client

with Client.local() as operator:  # http://127.0.0.1:8080, with the key in ./handoffd-data
    intake = operator.enroll("intake", handoff_targets=["legal"])

with intake:
    done = intake.hand_off_and_wait("legal", "Check clause 4.2", state={"clause": "4.2"}, timeout=60)
    print(f"{done.status}: {done.result}")
