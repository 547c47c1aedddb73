"""The broker's way to read a message body: what two readers could understand differently is refused.

RFC 8259 and RFC 7493 (I-JSON). The C parser does the work; only a document with a fault is walked in Python, to say where.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from .errors import Failure

MAX_DEPTH = 64
"""Deepest nesting of arrays and objects, the top-level object counted."""
MAX_VALUES = 500_000
"""Most members and elements of one document."""
MAX_SAFE_INTEGER = 2**53 - 1
MAX_ECHO = 80


@dataclass(frozen=True, slots=True)
class JsonFault(Exception):
    """Why a body was refused."""

    failure: Failure
    malformed: bool
    """Whether it is not JSON, or ambiguous JSON (HTTP 400 instead of 422)."""


class _Duplicate(Exception):
    pass


def escape(segment: str) -> str:
    """One reference token of a JSON pointer (RFC 6901 §3)."""
    return segment.replace("~", "~0").replace("/", "~1")


def fault(message: str, pointer: str = "", *, malformed: bool = True) -> JsonFault:
    """A failure of the schema stage."""
    return JsonFault(Failure("schema", "SCHEMA_INVALID", pointer, message), malformed)


def kind_of(value: object) -> str:
    """A JSON type in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list | tuple) else "an object"


def position(text: str, offset: int) -> tuple[int, int]:
    """Line and column, both from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


# Outside of strings: a nesting mark, a separator, or a number.
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{},:]|[-0-9][0-9.eE+-]*', re.S)


def parse(body: bytes | str) -> dict[str, Any]:
    """Reads a message.

    Raises:
        JsonFault: No unambiguous JSON, no object, or an integer beyond ±(2^53 - 1).
    """
    if isinstance(body, bytes):
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            line, column = position(body[: error.start].decode(errors="replace"), error.start)
            raise fault(f"The body is not valid UTF-8 at line {line}, column {column}.") from None
    else:
        text = body
    # Deeper than the separators of a document allow is found below; this bounds the C parser's recursion.
    if text.count("[") + text.count("{") > MAX_DEPTH or text.count(",") + text.count(":") > MAX_VALUES:
        _prescan(text)
    integers: list[str] = []

    def integer(literal: str) -> int:
        if len(literal) > 17 or abs(int(literal)) > MAX_SAFE_INTEGER:
            integers.append(literal)
            return 0
        return int(literal)

    def number(literal: str) -> float:
        value = float(literal)
        if math.isinf(value):
            raise ValueError("number out of range")
        return value

    def constant(literal: str) -> Any:
        raise ValueError(f"expected value, found {literal}")

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise _Duplicate
        return found

    try:
        value = json.loads(text, parse_int=integer, parse_float=number, parse_constant=constant, object_pairs_hook=members)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except _Duplicate:
        raise _duplicate(text) from None
    except json.JSONDecodeError as error:
        raise fault(f"The body is not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}.") from None
    except UnicodeEncodeError:
        raise fault("The body is not valid JSON: a lone surrogate in a string.") from None
    except ValueError as error:
        raise fault(f"The body is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise fault(f"The body must be a JSON object and is {kind_of(value)}.", malformed=False)
    if integers:
        raise _unsafe_integer(text)
    return value


def _prescan(text: str) -> None:
    depth = values = 0
    for token in _TOKENS.finditer(text):
        mark = token[0]
        if mark in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                line, column = position(text, token.start())
                raise fault(f"The body nests more than {MAX_DEPTH} arrays and objects at line {line}, column {column}.")
        elif mark in "]}":
            depth = max(0, depth - 1)
        elif mark in ",:":
            values += 1
            if values > MAX_VALUES:
                raise fault(f"The body holds more than {MAX_VALUES} members and elements.")


class _Level:
    """An open array or object while a document is walked."""

    def __init__(self, *, array: bool) -> None:
        self.array = array
        self.index = 0
        self.key = ""
        self.keys: set[str] = set()
        self.expects_key = not array


def _walk(text: str) -> Any:
    """Each key and each number with the levels around it: `(token, levels, is_key)`."""
    levels: list[_Level] = []
    for token in _TOKENS.finditer(text):
        mark = token[0]
        if mark in "[{":
            levels.append(_Level(array=mark == "["))
        elif mark in "]}":
            levels.pop()
        elif mark == ",":
            if levels[-1].array:
                levels[-1].index += 1
            else:
                levels[-1].expects_key = True
        elif mark != ":":
            is_key = mark[0] == '"' and bool(levels) and levels[-1].expects_key
            if is_key:
                levels[-1].expects_key = False
                levels[-1].key = json.loads(mark)
            yield token, levels, is_key


def _pointer(levels: list[_Level]) -> str:
    return "".join("/" + (str(level.index) if level.array else escape(level.key)) for level in levels)


def _duplicate(text: str) -> JsonFault:
    try:
        for token, levels, is_key in _walk(text):
            if not is_key:
                continue
            level = levels[-1]
            if level.key in level.keys:
                line, column = position(text, token.end() - 1)
                name = level.key[:MAX_ECHO]
                return fault(f"The key `{name}` occurs twice in one object (line {line}, column {column}).", _pointer(levels))
            level.keys.add(level.key)
    except (IndexError, ValueError):
        # The syntax breaks before or behind it.
        pass
    return fault("The body is not valid JSON: a key occurs twice in one object.")


def _unsafe_integer(text: str) -> JsonFault:
    for token, levels, is_key in _walk(text):
        literal = token[0]
        if is_key or literal[0] == '"' or not literal.lstrip("-").isdigit():
            continue
        if abs(int(literal)) > MAX_SAFE_INTEGER:
            line, column = position(text, token.start())
            return fault(
                f"The integer at line {line}, column {column} lies beyond ±{MAX_SAFE_INTEGER} (2^53 − 1) and cannot be "
                "kept exactly; send it as a string.",
                _pointer(levels),
                malformed=False,
            )
    raise AssertionError("an integer was out of range")
