"""A server that says whatever bytes a test wants, a connection each."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

Saying = bytes | Callable[[socket.socket], None]
"""What is sent before the connection is closed, or what is done with the connection."""


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    """A whole answer; its `content-length` may be said otherwise."""
    said = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    said |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in said.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def reset(connection: socket.socket) -> None:
    """Ends the connection by a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def request_of(connection: socket.socket) -> bytes:
    """One request with its body, or what came of it."""
    seen = b""
    while b"\r\n\r\n" not in seen:
        part = connection.recv(65536)
        if not part:
            return seen
        seen += part
    head, _, body = seen.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().splitlines() if line.startswith(b"content-length:")]
    while len(body) < int(lengths[0] if lengths else 0):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def lying(sayings: Sequence[Saying]) -> Iterator[tuple[str, list[bytes]]]:
    """Its URL, and the requests that it saw. Connections after the last saying get `{"items": []}`."""
    seen: list[bytes] = []
    left = list(sayings)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    seen.append(request_of(connection))
                    if not seen[-1]:
                        return
                    saying = left.pop(0) if left else answer(200, b'{"items": []}')
                    if callable(saying):
                        saying(connection)
                    else:
                        connection.sendall(saying)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", seen
        finally:
            # An empty connection ends the thread.
            socket.create_connection(server.getsockname()).close()
            thread.join()
