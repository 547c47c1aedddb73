from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from broker import Broker
from pairs import Pair

from handoffd import Client


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = Broker(tmp_path_factory.mktemp("broker")).start()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def admin(broker: Broker) -> Iterator[Client]:
    with Client.local(broker.url, data_dir=broker.data_dir) as client:
        yield client


@pytest.fixture
def pair(admin: Client) -> Iterator[Pair]:
    name = uuid.uuid4().hex[:8]
    with (
        admin.enroll(f"legal-{name}") as receiver,
        admin.enroll(f"intake-{name}", handoff_targets=[f"legal-{name}"]) as sender,
    ):
        yield Pair(sender, receiver)
