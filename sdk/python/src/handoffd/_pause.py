"""Sleeping, in both worlds."""

from asyncio import sleep as async_sleep
from time import sleep as sync_sleep

__all__ = ["async_sleep", "sync_sleep"]
