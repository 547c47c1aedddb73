"""Receives handoffs from a RabbitMQ queue with pika, and answers on the reply queue.

    pip install pika
    export HANDOFF_WEBHOOK_SECRET=whsec_… HANDOFF_SIGNING_SECRET=hss_…
    python amqp_receiver.py amqp://guest:guest@127.0.0.1:5672/%2F handoffs.legal

With a number behind it, the receiver ends after so many handoffs.
"""

import json
import sys

import pika
from verdicts import checked, verdict


def main(server: str, queue: str, count: int | None) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(server))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
    channel.basic_qos(prefetch_count=1)
    channel.confirm_delivery()
    done = 0

    def answer(properties: pika.BasicProperties, kind: str, **fields: object) -> None:
        channel.basic_publish(
            "",
            properties.reply_to,
            verdict(properties.headers, kind, **fields),
            pika.BasicProperties(
                delivery_mode=pika.DeliveryMode.Persistent,
                content_type="application/json",
                correlation_id=properties.correlation_id,
            ),
            mandatory=True,
        )

    for method, properties, body in channel.consume(queue):
        if not checked(properties.headers, body):
            channel.basic_reject(method.delivery_tag, requeue=False)
            continue
        if properties.headers.get("Handoff-Test") == "true":
            channel.basic_ack(method.delivery_tag)
            continue
        handoff = json.loads(body)
        # What stands here twice changes nothing: a verdict may be repeated.
        answer(properties, "accept")
        result = {"summary": f"read {len(handoff['remainingSubtasks'])} open points"}
        answer(properties, "complete", result=result)
        # Only now: a receiver that dies before this line gets the handoff again.
        channel.basic_ack(method.delivery_tag)
        done += 1
        if done == count:
            break
    channel.cancel()
    connection.close()


if __name__ == "__main__":
    server, queue, *rest = sys.argv[1:]
    main(server, queue, int(rest[0]) if rest else None)
