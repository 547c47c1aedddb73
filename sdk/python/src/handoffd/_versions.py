"""Semantic versions, and ranges of them as npm writes them: their syntax, as the broker reads it."""

from __future__ import annotations

import re

_MAX_TEXT = 256
_MAX_COMPARATORS = 64
_MAX_NUMBER = 2**64 - 1

_NUMBER = r"(0|[1-9][0-9]*)"
_IDENTIFIERS = r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_PRE = re.compile(rf"{_IDENTIFIERS}(?:\.{_IDENTIFIERS})*", re.A)
_BUILD = re.compile(r"[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*", re.A)
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_IDENTIFIERS}(?:\.{_IDENTIFIERS})*)?(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?",
    re.A,
)
_OPERATORS = (">=", "<=", "~>", ">", "<", "=", "~", "^")


def is_version(text: str) -> bool:
    """Whether it is a semantic version (semver.org 2.0.0), as `2.1.0-rc.1`."""
    found = _VERSION.fullmatch(text)
    return found is not None and all(int(number) <= _MAX_NUMBER for number in found.groups()[:3])


def is_range(text: str) -> bool:
    """Whether it is a range, as `>=1.5.0` or `^1.5 || ^2.0`."""
    if len(text.encode(errors="replace")) > _MAX_TEXT or not text.strip():
        return False
    counts = [_alternative(part) for part in text.split("||")]
    return None not in counts and sum(count or 0 for count in counts) <= _MAX_COMPARATORS


def _alternative(text: str) -> int | None:
    """The number of comparators, or `None` if it is not a range."""
    words = text.split()
    if len(words) == 3 and words[1] == "-":
        bounds = [_comparator("", words[0]), _comparator("", words[2])]
        return None if None in bounds else sum(bound or 0 for bound in bounds)
    count = 0
    rest = text.strip()
    while rest:
        sign = next((sign for sign in _OPERATORS if rest.startswith(sign)), "")
        after = rest[len(sign) :].lstrip()
        end = next((at for at, c in enumerate(after) if c.isspace() or c == ","), len(after))
        one = _comparator(sign, after[:end])
        if one is None:
            return None
        count += one
        rest = after[end:].lstrip()
        if rest.startswith(","):
            rest = rest[1:].lstrip()
            if not rest:
                return None
    return count


def _comparator(sign: str, text: str) -> int | None:
    """1, or 0 for one that excludes nothing; `None` if it is not a version."""
    text = text.removeprefix("v")
    text, plus, build = text.partition("+")
    if plus and not _BUILD.fullmatch(build):
        return None
    numbers, dash, pre = text.partition("-")
    if dash and not _PRE.fullmatch(pre):
        return None
    parts = numbers.split(".")
    if len(parts) > 3:
        return None
    anything = []
    for part in parts:
        if part in ("x", "X", "*"):
            anything.append(True)
        elif re.fullmatch(_NUMBER, part, re.A) and int(part) <= _MAX_NUMBER:
            anything.append(False)
        else:
            return None
    if anything[0]:
        return 1 if sign in (">", "<") else 0
    whole = len(parts) == 3 and not any(anything)
    return None if dash and not whole else 1
