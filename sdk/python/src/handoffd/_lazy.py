"""Modules that are loaded at their first use: the broker's models take a third of a second, and many programs use few of them."""

from __future__ import annotations

import importlib
import types
from typing import Any


class LazyModule(types.ModuleType):
    """Replaces a module until one of its members is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


models = LazyModule("handoffd.models")
