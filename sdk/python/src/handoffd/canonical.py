"""RFC 8785 canonical JSON, and the signature of a message over it."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

PREFIX: Final = "hmac-sha256:"


def encode(value: Any) -> bytes:
    """The canonical form: members sorted by UTF-16 code units, no blanks, numbers as ECMAScript writes them.

    Raises:
        ValueError: A number that is not finite, or a lone surrogate.
        TypeError: A value that JSON cannot hold.
    """
    out: list[str] = []
    _write(value, out)
    return "".join(out).encode()


def _write(value: Any, out: list[str]) -> None:
    if value is None or isinstance(value, bool | str):
        out.append(json.dumps(value, ensure_ascii=False))
    elif isinstance(value, int | float):
        out.append(number(value))
    elif isinstance(value, Mapping):
        out.append("{")
        for place, name in enumerate(sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))):
            if not isinstance(name, str):
                raise TypeError("a member's name must be text")
            out.append("," if place else "")
            out.append(json.dumps(name, ensure_ascii=False) + ":")
            _write(value[name], out)
        out.append("}")
    elif isinstance(value, list | tuple):
        out.append("[")
        for place, item in enumerate(value):
            out.append("," if place else "")
            _write(item, out)
        out.append("]")
    else:
        raise TypeError(f"JSON has no {type(value).__name__}")


def number(value: float) -> str:
    """A number as ECMAScript's `Number.prototype.toString` writes it (RFC 8785 §3.2.2.3)."""
    value = float(value)
    if not math.isfinite(value):
        raise ValueError("JSON has finite numbers only")
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text, point = "".join(map(str, digits)), len(digits) + int(exponent)
    minus = "-" if sign else ""
    if 0 < point <= 21:
        text = text.ljust(point, "0")
        return minus + text[:point] + ("." + text[point:] if len(text) > point else "")
    if -6 < point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
    power = point - 1
    return f"{minus}{mantissa}e{'+' if power > 0 else '-'}{abs(power)}"


def sign_message(message: Mapping[str, Any], signing_secret: str) -> dict[str, Any]:
    """The message with its `signature`: HMAC-SHA-256 over the canonical form without it.

    Args:
        message: The message; a signature that it has is replaced.
        signing_secret: The agent's `hss_…`, prefix included.
    """
    unsigned = {name: value for name, value in message.items() if name != "signature"}
    tag = hmac.new(signing_secret.encode(), encode(unsigned), hashlib.sha256).hexdigest()
    return {**unsigned, "signature": PREFIX + tag}


def is_signed(message: Mapping[str, Any], signing_secret: str) -> bool:
    """Whether the message's `signature` is that of this secret."""
    given = message.get("signature")
    if not isinstance(given, str):
        return False
    expected = sign_message(message, signing_secret)["signature"]
    return hmac.compare_digest(given.lower().encode(errors="replace"), expected.encode())
