"""Receives handoffs from a JetStream stream with nats-py, and answers on the reply subject.

    pip install nats-py
    export HANDOFF_WEBHOOK_SECRET=whsec_… HANDOFF_SIGNING_SECRET=hss_…
    python nats_receiver.py nats://127.0.0.1:4222 HANDOFFS handoffs.legal

With a number behind it, the receiver ends after so many handoffs.
"""

import asyncio
import json
import sys

import nats
from nats.js.api import AckPolicy, ConsumerConfig
from verdicts import checked, verdict


async def main(server: str, stream: str, subject: str, count: int | None) -> None:
    connection = await nats.connect(server)
    queue = connection.jetstream()
    settings = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=60)
    pulling = await queue.pull_subscribe(subject, durable="receiver", stream=stream, config=settings)
    done = 0
    while count is None or done < count:
        try:
            [message] = await pulling.fetch(1, timeout=5)
        except nats.errors.TimeoutError:
            continue
        if not checked(message.headers, message.data):
            await message.term()
            continue
        if message.headers.get("Handoff-Test") == "true":
            await message.ack()
            continue
        handoff = json.loads(message.data)
        reply_to = message.headers["Handoff-Reply-To"]
        # What stands here twice changes nothing: a verdict may be repeated.
        await queue.publish(reply_to, verdict(message.headers, "accept"))
        result = {"summary": f"read {len(handoff['remainingSubtasks'])} open points"}
        await queue.publish(reply_to, verdict(message.headers, "complete", result=result))
        # Only now: a receiver that dies before this line gets the handoff again.
        await message.ack()
        done += 1
    await connection.drain()


if __name__ == "__main__":
    server, stream, subject, *rest = sys.argv[1:]
    asyncio.run(main(server, stream, subject, int(rest[0]) if rest else None))
