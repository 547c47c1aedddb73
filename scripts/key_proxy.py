"""A proxy that adds a key to each request: for judges that cannot send one. One request a connection, streams as they come.

Usage: key_proxy.py URL KEY     (prints its port; serves until it is ended)
"""

import socket
import sys
import threading


class Proxy:
    """Listens at once; passes on once it knows where, and with which key."""

    def __init__(self, to: int = 0, key: str = "") -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.to, self.key = to, key

    def serve(self) -> None:
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.pass_on, args=(client,), daemon=True).start()

    def pass_on(self, client: socket.socket) -> None:
        with client:
            read = b""
            while b"\r\n\r\n" not in read:
                more = client.recv(65536)
                if not more:
                    return
                read += more
            head, _, body = read.partition(b"\r\n\r\n")
            lines = [one for one in head.split(b"\r\n") if not one.lower().startswith((b"connection:", b"authorization:"))]
            lines += [b"Connection: close", b"Authorization: Bearer " + self.key.encode()]
            with socket.create_connection(("127.0.0.1", self.to)) as broker:
                broker.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + body)
                threading.Thread(target=copy, args=(client, broker), daemon=True).start()
                copy(broker, client)


def copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while more := source.recv(65536):
            target.sendall(more)
    except OSError:
        pass


if __name__ == "__main__":
    proxy = Proxy(int(sys.argv[1].rstrip("/").rsplit(":", 1)[1]), sys.argv[2])
    print(proxy.port, flush=True)
    proxy.serve()
