"""A real broker for tests: a process of the built binary on a free port, with a store of its own."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import time
from pathlib import Path

import httpx2

REPOSITORY = Path(__file__).resolve().parents[3]


def binary() -> Path:
    """The broker under test: `HANDOFFD_BINARY`, else this workspace's build, else the path's."""
    for place in (
        os.environ.get("HANDOFFD_BINARY"),
        REPOSITORY / "target" / "release" / "handoffd",
        REPOSITORY / "target" / "debug" / "handoffd",
        shutil.which("handoffd"),
    ):
        if place and Path(place).is_file():
            return Path(place)
    raise RuntimeError("no broker: set HANDOFFD_BINARY, or build the workspace")


def free_port() -> int:
    """A port below those that the system gives to connections: a broker that restarts gets it again."""
    while True:
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port := random.randrange(10_000, 30_000)))
            return port


class Broker:
    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.settings = settings
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def data_dir(self) -> Path:
        return self.folder / "handoffd-data"

    def start(self) -> Broker:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HANDOFFD_")}
        own = {
            "HANDOFFD_LISTEN": f"127.0.0.1:{self.port}",
            "HANDOFFD_DATA_DIR": str(self.data_dir),
            "HANDOFFD_EGRESS_ALLOW": "127.0.0.0/8",
        }
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(
                [binary(), "serve"], env={**inherited, **own, **self.settings}, stdout=log, stderr=log, cwd=self.folder
            )
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise RuntimeError((self.folder / "broker.log").read_text()[-2000:])
            try:
                if httpx2.get(f"{self.url}/readyz", timeout=2).status_code == 200:
                    return self
            except httpx2.TransportError:
                time.sleep(0.05)
        raise RuntimeError("the broker is not ready after 60 s")

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)
            self.process = None

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)
        self.process = None
