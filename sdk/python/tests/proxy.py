"""A proxy in front of a broker that answers some requests with a page of its own."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

PAGE = b"<html>default backend</html>"


@contextmanager
def proxying(broker: str, path: str, status: int, times: int = 1, page: bytes = PAGE) -> Iterator[tuple[str, list[str]]]:
    """Its URL, and the paths that it answered itself: the first `times` whose method and path match `path`."""
    own: list[str] = []

    class Proxy(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if len(own) < times and re.search(path, f"{self.command} {self.path}"):
                own.append(self.path)
                self.say(status, "text/html" if page == PAGE else "application/problem+json", page)
                return
            headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "accept-encoding")}
            answer = httpx2.request(self.command, broker + self.path, content=body, headers=headers, timeout=90)
            self.say(answer.status_code, answer.headers.get("content-type", "application/json"), answer.content)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = answer  # noqa: N815

        def say(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", own
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
