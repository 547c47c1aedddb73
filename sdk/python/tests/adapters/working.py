"""Workers and clients of adapter tests."""

from __future__ import annotations

from handoffd import AsyncClient, Client, Worker


def asynchronous(client: Client) -> AsyncClient:
    return AsyncClient(client.url, client.api_key, agent_id=client.agent_id)


class Working:
    """A worker on a thread, stopped at the end."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        # A stop waits for the poll under way.
        worker._poll = min(worker._poll, 1)

    def __enter__(self) -> Worker:
        self.thread = self.worker.start()
        return self.worker

    def __exit__(self, *_: object) -> None:
        self.worker.stop()
        self.thread.join(40)
