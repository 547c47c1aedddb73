"""A plain queue as many build it: a Redis list, an HTTP front that queues jobs, and a worker that sends each to a receiver.

Usage: redis_queue.py front PORT REDIS_URL
       redis_queue.py worker REDIS_URL RECEIVER
The worker moves a job to a list of its own while it works, so that a job that a crash cut off is taken up at the next start. A job that was
not delivered goes back to the queue after a fifth of a second.
"""

import json
import sys
import time

import httpx
import redis
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

QUEUE, WORKING = "jobs", "jobs:working"


def front(port: int, url: str) -> None:
    import redis.asyncio

    store = redis.asyncio.from_url(url)

    async def submit(request: Request) -> JSONResponse:
        job = await request.json()
        async with store.pipeline(transaction=True) as together:
            together.hset(f"job:{job['id']}", "state", "queued")
            together.lpush(QUEUE, json.dumps(job))
            await together.execute()
        return JSONResponse({"id": job["id"], "state": "queued"}, 202)

    async def show(request: Request) -> JSONResponse:
        state = await store.hget(f"job:{request.path_params['id']}", "state")
        return JSONResponse({"state": state.decode()}) if state else JSONResponse({"error": "no such job"}, 404)

    async def health(_: Request) -> JSONResponse:
        return JSONResponse({"redis": bool(await store.ping())})

    routes = [Route("/jobs", submit, methods=["POST"]), Route("/jobs/{id}", show), Route("/health", health)]
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=port, log_level="warning")


def opened(url: str) -> redis.Redis:
    """The store, once its server has read its log."""
    store = redis.from_url(url)
    while True:
        try:
            store.ping()
            return store
        except redis.ConnectionError:
            time.sleep(0.05)


def worker(url: str, receiver: str) -> None:
    store = opened(url)
    while store.lmove(WORKING, QUEUE, "RIGHT", "RIGHT"):
        pass
    with httpx.Client(timeout=120) as http:
        while True:
            taken = store.blmove(QUEUE, WORKING, 5, "RIGHT", "LEFT")
            if taken is None:
                continue
            job = json.loads(taken)
            store.hset(f"job:{job['id']}", "state", "working")
            answer = http.post(receiver, json=job)
            with store.pipeline(transaction=True) as together:
                together.lrem(WORKING, 1, taken)
                if answer.status_code == 200:
                    together.hset(f"job:{job['id']}", "state", "done")
                else:
                    together.hset(f"job:{job['id']}", "state", "queued")
                    together.lpush(QUEUE, taken)
                together.execute()
            if answer.status_code != 200:
                time.sleep(0.2)


if sys.argv[1] == "front":
    front(int(sys.argv[2]), sys.argv[3])
else:
    worker(sys.argv[2], sys.argv[3])
