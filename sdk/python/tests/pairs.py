"""Two agents of a test."""

from __future__ import annotations

from dataclasses import dataclass

from handoffd import Client


@dataclass
class Pair:
    """Two agents of a test's own: `sender` may hand off to `receiver`."""

    sender: Client
    receiver: Client

    @property
    def to(self) -> str:
        assert self.receiver.agent_id
        return self.receiver.agent_id
