"""Adapters for agent frameworks: import the module of yours. Each needs the extra of its name.

`BrokerRun` is what they share: a framework's run as the broker sees it. For a framework without a module it is the whole adapter
but for the framework's own snapshot (docs/sdk/recipes.md).
"""

from ._core import (
    BrokerRun,
    Call,
    DurableResult,
    Outcome,
    Spent,
    ask,
    call_of,
    plain,
    transfer_description,
    transfer_name,
)

__all__ = [
    "BrokerRun",
    "Call",
    "DurableResult",
    "Outcome",
    "Spent",
    "ask",
    "call_of",
    "plain",
    "transfer_description",
    "transfer_name",
]
