"""The schema stage: the message schemas of this package, held against a message in the broker's words.

The keywords of JSON Schema 2020-12 that the message schemas use, and no others: an unknown keyword fails at the first use.
Sentences are those of the gate; values are repeated only when short, and never from below `/personalDataPayload` or
`/checkpoint`.
"""

from __future__ import annotations

import functools
import importlib.resources
import itertools
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

from ._strict_json import escape, kind_of
from ._versions import is_range, is_version
from .errors import Failure

MAJOR: Final = 2
VERSION: Final = "/schemaVersion"
MAX_FAILURES: Final = 100
MAX_NULS: Final = 32
"""Most texts with a NUL that are named."""
NUL: Final = "The text has the character U+0000, which no database keeps: leave it out."
MAX_ITEMS: Final = 10_000
SAMPLE_ITEMS: Final = 100
MAX_ECHO: Final = 80
MAX_NAME: Final = 256
NEAR: Final = 0.7
FAN_OUT_MINOR: Final = 2
"""From this minor on the broker sends to each receiver of `receiverList`."""
MAX_RECEIVERS: Final = 100

CONTENT_MEMBERS: Final = frozenset(
    {
        "taskDescription", "completedSubtasks", "remainingSubtasks", "currentState", "relevantContext", "constraints",
        "conversationHistorySummary", "conversationHistoryVerbatim", "toolCallHistory", "taskSummary", "provenance",
        "reason", "userId", "toolState", "metadata", "extensions", "checkpoint",
    }
)  # fmt: skip
"""Members in which values may be marked as personal."""

_IGNORED = frozenset({"$schema", "$id", "$defs", "title", "description", "x-droppable"})
_ORDER = ("null", "boolean", "integer", "number", "string", "array", "object")
_NAMES = {
    "array": "an array", "object": "an object", "integer": "an integer", "string": "a string", "number": "a number",
    "boolean": "a boolean",
}  # fmt: skip


@functools.cache
def documents() -> dict[str, dict[str, Any]]:
    """The schemas by version, oldest first."""
    folder = importlib.resources.files("handoffd") / "schemas"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))
    return {name.removesuffix(".json"): json.loads((folder / name).read_text("utf-8")) for name in names}


@functools.cache
def _open() -> dict[str, Any]:
    """The newest schema, open at the top level and for any `schemaVersion`: for newer minors."""
    newest = list(documents().values())[-1]
    properties = {**newest["properties"], "schemaVersion": {"type": "string"}}
    return {**newest, "additionalProperties": True, "properties": properties}


def parse_version(text: str) -> tuple[int, int] | None:
    """Major and minor of `2.1` or `2.1.7`; digits without leading zeros."""
    parts = text.split(".")
    if len(parts) not in (2, 3) or not all(re.fullmatch(r"0|[1-9][0-9]*", part, re.A) for part in parts):
        return None
    numbers = [int(part) for part in parts]
    return None if max(numbers) >= 2**32 else (numbers[0], numbers[1])


class Found:
    """Failures so far, each pair of pointer and sentence once."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self._seen: set[tuple[str, str]] = set()

    def add(self, pointer: str, message: str) -> None:
        """Notes one, up to the bound."""
        if len(self.failures) < MAX_FAILURES and (pointer, message) not in self._seen:
            self._seen.add((pointer, message))
            self.failures.append(Failure("schema", "SCHEMA_INVALID", pointer, message))

    @property
    def full(self) -> bool:
        """Whether no more are noted."""
        return len(self.failures) >= MAX_FAILURES


def check(message: dict[str, Any]) -> list[Failure]:
    """The faults of a message under the schema of the version that it claims, and each text with a NUL; at most
    `MAX_FAILURES` and `MAX_NULS`."""
    nuls = list(itertools.islice(_nuls(message, ""), MAX_NULS))
    return [*(Failure("schema", "SCHEMA_INVALID", pointer, NUL) for pointer in nuls), *_misfits(message)]


def _nuls(value: Any, at: str) -> Iterator[str]:
    """The places of texts with a NUL. A member whose name has one is named by its object."""
    if isinstance(value, str):
        if "\0" in value:
            yield at
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _nuls(item, f"{at}/{index}")
    elif isinstance(value, dict):
        if any("\0" in name for name in value):
            yield at
        for name, item in value.items():
            if "\0" not in name:
                yield from _nuls(item, f"{at}/{escape(name)}")


def _misfits(message: dict[str, Any]) -> list[Failure]:
    found = Found()
    known = documents()
    versions = list(known)
    name, schema, minor = versions[-1], _open(), 0
    if "schemaVersion" in message:
        claimed = message["schemaVersion"]
        version = parse_version(claimed) if isinstance(claimed, str) else None
        if version is None:
            found.add(VERSION, f"`schemaVersion` must be a string like `{versions[-1]}`{shown(claimed)}.")
        elif version[0] != MAJOR:
            takes = " and ".join(versions)
            found.add(VERSION, f"Schema major version {version[0]} is not supported; this broker takes {takes}.")
            return found.failures
        else:
            minor = version[1]
            if f"{MAJOR}.{minor}" in known:
                name = f"{MAJOR}.{minor}"
                schema = known[name]
    sample = _sampled(message, schema, found)
    for pointer, sentence in _Checker(schema, name).errors(sample):
        if found.full:
            break
        if pointer == VERSION and any(one.pointer == VERSION for one in found.failures):
            continue
        found.add(pointer, sentence)
    _semantic(message, found)
    if minor >= FAN_OUT_MINOR:
        for pointer, sentence in _receivers(message):
            found.add(pointer, sentence)
    return found.failures


def _sampled(message: dict[str, Any], schema: dict[str, Any], found: Found) -> dict[str, Any]:
    """The message with arrays over the schema's limit cut, each cut being a failure."""
    copy = dict(message)
    for name in schema["properties"]:
        items = copy.get(name)
        if isinstance(items, list) and len(items) > MAX_ITEMS:
            found.add(f"/{name}", f"Must have at most {MAX_ITEMS} items.")
            copy[name] = items[:SAMPLE_ITEMS]
    personal = copy.get("personalDataPayload")
    if isinstance(personal, dict):
        for name in ("subjects", "pointers"):
            items = personal.get(name)
            if isinstance(items, list) and len(items) > MAX_ITEMS:
                found.add(f"/personalDataPayload/{name}", f"Must have at most {MAX_ITEMS} items.")
                copy["personalDataPayload"] = {**copy["personalDataPayload"], name: items[:SAMPLE_ITEMS]}
    return copy


class _Checker:
    """One schema document."""

    def __init__(self, schema: dict[str, Any], name: str) -> None:
        self.root, self.name = schema, name

    def errors(self, message: Any) -> Iterator[tuple[str, str]]:
        return self._check(self.root, message, "")

    def _check(self, schema: dict[str, Any], value: Any, at: str) -> Iterator[tuple[str, str]]:
        for keyword, wanted in schema.items():
            if keyword in _IGNORED:
                continue
            method = getattr(self, "_" + keyword.strip("$"), None)
            if method is None:
                raise NotImplementedError(f"keyword {keyword} of a message schema")
            yield from method(wanted, value, at, schema)

    def _ref(self, wanted: str, value: Any, at: str, _: Any) -> Iterator[tuple[str, str]]:
        target: Any = self.root
        for segment in wanted.removeprefix("#/").split("/"):
            target = target[segment]
        yield from self._check(target, value, at)

    def _type(self, wanted: str | list[str], value: Any, at: str, _: Any) -> Iterator[tuple[str, str]]:
        names = [wanted] if isinstance(wanted, str) else wanted
        if not any(_is(value, name) for name in names):
            expected = " or ".join(_NAMES.get(name, name) for name in sorted(names, key=_ORDER.index))
            yield at, f"Must be {expected}, and is {kind_of(value)}."

    def _required(self, wanted: list[str], value: Any, at: str, _: Any) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict):
            for name in wanted:
                if name not in value:
                    yield f"{at}/{escape(name)}", f"The required field `{name}` is missing."

    def _properties(self, wanted: dict[str, Any], value: Any, at: str, _: Any) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict):
            for name, schema in wanted.items():
                if name in value:
                    yield from self._check(schema, value[name], f"{at}/{escape(name)}")

    def _additionalProperties(  # noqa: N802  (the keyword's name)
        self, wanted: bool, value: Any, at: str, schema: dict[str, Any]
    ) -> Iterator[tuple[str, str]]:
        if wanted or not isinstance(value, dict):
            return
        unexpected = [name for name in value if name not in schema.get("properties", {})]
        if at and unexpected:
            yield at, "Has a member that the schema does not allow here."
            return
        for name in unexpected[:MAX_FAILURES]:
            pointer = f"/{escape(name)}" if len(name.encode(errors="replace")) <= MAX_NAME else ""
            yield pointer, self._unknown_field(name)

    def _unknown_field(self, name: str) -> str:
        echo = name[:MAX_ECHO]
        for version, schema in documents().items():
            if name in schema["properties"]:
                return (
                    f"`{echo}` is a field of schema {version}, not of {self.name}; set `schemaVersion` to `{version}` to send it."
                )
        known = nearest(name, sorted(self.root["properties"]))
        if known:
            return f"`{echo}` is not a field of schema {self.name}; did you mean `{known}`?"
        return f"`{echo}` is not a field of schema {self.name}."

    def _items(self, wanted: dict[str, Any], value: Any, at: str, _: Any) -> Iterator[tuple[str, str]]:
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from self._check(wanted, item, f"{at}/{index}")

    def _anyOf(self, wanted: list[Any], value: Any, at: str, _: Any) -> Iterator[tuple[str, str]]:  # noqa: N802
        if not any(next(self._check(schema, value, at), None) is None for schema in wanted):
            if at == "/toAgent":
                yield at, "Must name a target: at least one of `agentType`, `agentId` and `capability`."
            else:
                yield at, "Does not satisfy the schema's `anyOf`."

    def _enum(self, wanted: list[str], value: Any, at: str, _: Any) -> Iterator[tuple[str, str]]:
        if value not in wanted:
            options = ", ".join(f"`{option}`" for option in wanted)
            yield at, f"Must be one of {options}{_echo(at, value)}."

    def _minimum(self, wanted: float, value: Any, at: str, _: Any) -> Iterator[tuple[str, str]]:
        if _is(value, "number") and value < wanted:
            yield at, f"Must be at least {_number(wanted)}{_echo(at, value)}."

    def _maximum(self, wanted: float, value: Any, at: str, _: Any) -> Iterator[tuple[str, str]]:
        if _is(value, "number") and value > wanted:
            yield at, f"Must be at most {_number(wanted)}{_echo(at, value)}."

    def _minLength(self, wanted: int, value: Any, at: str, _: Any) -> Iterator[tuple[str, str]]:  # noqa: N802
        if isinstance(value, str) and len(value) < wanted:
            yield at, "Must not be empty." if wanted == 1 else f"Must have at least {wanted} characters."

    def _maxLength(self, wanted: int, value: Any, at: str, _: Any) -> Iterator[tuple[str, str]]:  # noqa: N802
        if isinstance(value, str) and len(value) > wanted:
            yield at, f"Must have at most {wanted} characters."

    def _maxItems(self, wanted: int, value: Any, at: str, _: Any) -> Iterator[tuple[str, str]]:  # noqa: N802
        if isinstance(value, list) and len(value) > wanted:
            yield at, f"Must have at most {wanted} items."

    def _minItems(self, wanted: int, value: Any, at: str, _: Any) -> Iterator[tuple[str, str]]:  # noqa: N802
        if isinstance(value, list) and len(value) < wanted:
            yield at, "Does not satisfy the schema's `minItems`."

    def _uniqueItems(self, wanted: bool, value: Any, at: str, _: Any) -> Iterator[tuple[str, str]]:  # noqa: N802
        if wanted and isinstance(value, list) and any(item in value[:n] for n, item in enumerate(value)):
            yield at, "Does not satisfy the schema's `uniqueItems`."

    def _minProperties(self, wanted: int, value: Any, at: str, _: Any) -> Iterator[tuple[str, str]]:  # noqa: N802
        if isinstance(value, dict) and len(value) < wanted:
            yield at, "Must not be an empty object."

    def _format(self, wanted: str, value: Any, at: str, _: Any) -> Iterator[tuple[str, str]]:
        if not isinstance(value, str):
            return
        if wanted == "date-time":
            if not is_date_time(value):
                yield (
                    at,
                    f"Must be a date and time after RFC 3339, like `2026-06-12T08:00:00Z`{_echo(at, value)}.",
                )
        elif wanted == "uuid":
            # The pattern beside it says the same, and which versions there are.
            return
        else:
            raise NotImplementedError(f"format {wanted} of a message schema")

    def _pattern(self, wanted: str, value: Any, at: str, _: Any) -> Iterator[tuple[str, str]]:
        if isinstance(value, str) and not _pattern(wanted).search(value):
            yield at, _pattern_sentence(wanted, at, _echo(at, value))


_DATE_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[Zz]|([+-])(\d\d):(\d\d))", re.A)
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    # `$` is the end of the text in JSON Schema, not the place before a last line break.
    return re.compile(re.sub(r"\$(?=\)|$)", r"\\Z", text))


def is_date_time(text: str) -> bool:
    """Whether it is a date and time of RFC 3339, an offset included."""
    found = _DATE_TIME.fullmatch(text)
    if found is None:
        return False
    year, month, day, hour, minute, second = (int(found[n]) for n in range(1, 7))
    if not 1 <= month <= 12 or hour > 23 or minute > 59 or second > 60:
        return False
    leap = month == 2 and ((year % 4 == 0 and year % 100 != 0) or year % 400 == 0)
    if not 1 <= day <= _DAYS[month - 1] + leap:
        return False
    away = 0
    if found[7]:
        if int(found[8]) > 23 or int(found[9]) > 59:
            return False
        away = (int(found[8]) * 60 + int(found[9])) * (1 if found[7] == "+" else -1)
    # A leap second is the last of a UTC day.
    return second < 60 or (hour * 60 + minute - away) % 1440 == 1439


def _is(value: Any, name: str) -> bool:
    if name == "null":
        return value is None
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    kinds: dict[str, Any] = {"object": dict, "array": list, "string": str, "number": (int, float)}
    return isinstance(value, kinds.get(name, ()))


def _number(value: float) -> str:
    """As the broker writes it: the shortest digits, an exponent only for very large and very small ones."""
    if isinstance(value, int):
        return str(value)
    if value == 0:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text, point = "".join(map(str, digits)), len(digits) + int(exponent)
    minus = "-" if sign else ""
    if 0 < point <= 16:
        text = text.ljust(point, "0")
        return f"{minus}{text[:point]}.{text[point:] or '0'}"
    if -5 < point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
    return f"{minus}{mantissa}e{point - 1}"


def shown(value: Any) -> str:
    """`, and is …` for a short value, nothing for a long or a compound one."""
    if isinstance(value, str):
        return f", and is `{value}`" if len(value) <= MAX_ECHO else ""
    if value is None:
        return ", and is null"
    if isinstance(value, bool):
        return f", and is {str(value).lower()}"
    if isinstance(value, int | float):
        return f", and is {_number(value)}"
    return ""


def _echo(at: str, value: Any) -> str:
    private = any(at == name or at.startswith(name + "/") for name in ("/personalDataPayload", "/checkpoint"))
    return "" if private else shown(value)


def _pattern_sentence(pattern: str, at: str, echo: str) -> str:
    if "-4[0-9a-fA-F]" in pattern:
        return f"Must be a version 4 UUID with hyphens{echo}."
    if "-[1-8][0-9a-fA-F]" in pattern:
        return f"Must be a UUID with hyphens, of version 1 to 8{echo}."
    if at == VERSION:
        return f"Must be a version like `2.1` or `2.1.0`{echo}."
    if at == "/traceparent":
        return f"Must be a W3C traceparent, `00-<32 hex>-<16 hex>-<2 hex>` in lower case, or one of a later version{echo}."
    if pattern.startswith("^sha256:"):
        return f"Must be `sha256:` and at most 64 hexadecimal digits{echo}."
    if at == "/signature":
        return "Must be `hmac-sha256:` and 64 hexadecimal digits."
    if at.startswith("/constraints/"):
        return f"Must have the form `key:value`{echo}."
    if pattern.startswith("^[A-Za-z0-9]["):
        return f"Must be an agent id: a letter or digit, then at most 127 more of letters, digits and `._:@-`{echo}."
    return f"Must match the pattern `{pattern}`{echo}."


def nearest(name: str, known: list[str]) -> str | None:
    """The known name most like it, if it is alike enough."""
    if len(name.encode(errors="replace")) > MAX_NAME:
        return None
    best: tuple[float, str] | None = None
    wanted = _plain(name)
    for candidate in known:
        score = _likeness(wanted, _plain(candidate))
        if score >= NEAR and (best is None or score >= best[0]):
            best = (score, candidate)
    return best[1] if best else None


def _plain(text: str) -> str:
    return re.sub(r"[_\- ]", "", text).lower()


def _likeness(a: str, b: str) -> float:
    """1 less the Damerau-Levenshtein distance as a share of the longer text."""
    if not a and not b:
        return 1.0
    last: dict[str, int] = {}
    far = len(a) + len(b)
    rows = [[far] * (len(b) + 2) for _ in range(len(a) + 2)]
    for i in range(len(a) + 1):
        rows[i + 1][1] = i
    for j in range(len(b) + 1):
        rows[1][j + 1] = j
    for i, left in enumerate(a, 1):
        match = 0
        for j, right in enumerate(b, 1):
            row, column = last.get(right, 0), match
            same = left == right
            if same:
                match = j
            rows[i + 1][j + 1] = min(
                rows[i][j] + (not same),
                rows[i + 1][j] + 1,
                rows[i][j + 1] + 1,
                rows[row][column] + (i - row - 1) + 1 + (j - column - 1),
            )
        last[left] = i
    return 1.0 - rows[-1][-1] / max(len(a), len(b))


def _member(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _semantic(message: dict[str, Any], found: Found) -> None:
    """The rules that a schema cannot express."""
    version = _member(message, "fromAgent", "agentVersion")
    if isinstance(version, str) and version and not is_version(version):
        found.add("/fromAgent/agentVersion", f"Must be a semantic version like `2.1.0`{shown(version)}.")
    for pointer, sentence in _marks(message):
        found.add(pointer, sentence)
    named: set[str] = set()
    subtasks = message.get("completedSubtasks")
    for index, subtask in enumerate(subtasks if isinstance(subtasks, list) else []):
        name = _member(subtask, "subtaskId")
        if isinstance(name, str):
            if name in named:
                why = "Each completed subtask is named once; this one was named before."
                found.add(f"/completedSubtasks/{index}/subtaskId", why)
            named.add(name)
    receivers = message.get("receiverList")
    targets = [("/toAgent/agentVersion", message.get("toAgent"))]
    if isinstance(receivers, list):
        targets += [(f"/receiverList/{index}/agentVersion", one) for index, one in enumerate(receivers)]
    for pointer, target in targets:
        text = _member(target, "agentVersion")
        if isinstance(text, str) and text and not is_range(text):
            what = "Must be a range of semantic versions like `>=1.5.0` or `^1.5 || ^2.0`"
            found.add(pointer, f"{what}{shown(text)}.")


_ADDRESSES = ("agentId", "agentType", "capability")
_RECEIVER = ("agentId", "agentType", "agentVersion", "capability")
_QUORUM = re.compile(r"quorum:\+?([0-9]+)", re.A)


def _address(entry: Any) -> dict[str, Any]:
    """A receiver in the form of `toAgent`."""
    if isinstance(entry, str):
        return {"agentId": entry}
    return entry if isinstance(entry, dict) else {}


def _receivers(message: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The rules on a message to several receivers that the schema document cannot express (specification §10.4)."""
    receivers = message.get("receiverList")
    if not isinstance(receivers, list):
        for name in ("join", "onReject"):
            if name in message:
                yield f"/{name}", "Takes effect with `receiverList` only."
        return
    if not 1 <= len(receivers) <= MAX_RECEIVERS:
        yield "/receiverList", f"A list has 1 to {MAX_RECEIVERS} receivers; this one has {len(receivers)}."
    before: list[str] = []
    for index, entry in enumerate(receivers[:MAX_RECEIVERS]):
        at, receiver = f"/receiverList/{index}", _address(entry)
        for name in sorted(set(receiver) - set(_RECEIVER)):
            yield f"{at}/{escape(name)}", f"Unknown member: a receiver has {', '.join(_RECEIVER)}."
        if not any(name in receiver for name in _ADDRESSES):
            yield at, f"A receiver has one of {', '.join(_ADDRESSES)}."
        text = json.dumps(receiver, sort_keys=True)
        if text in before:
            yield at, f"The same receiver as `/receiverList/{before.index(text)}`."
        before.append(text)
    if before and before[0] != json.dumps(_address(message.get("toAgent")), sort_keys=True):
        yield "/toAgent", "With a `receiverList`, `toAgent` is the first of its receivers."
    join = message.get("join")
    quorum = _QUORUM.fullmatch(join) if isinstance(join, str) else None
    if quorum and len(receivers) < int(quorum[1]) < 2**32:
        yield "/join", f"{int(quorum[1])} of {len(receivers)} receivers cannot be needed."
    if isinstance(message.get("preferredAgents"), list) and message["preferredAgents"]:
        yield "/preferredAgents", "A list names its receivers: `preferredAgents` cannot stand in for one of them."


def _marks(message: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The faults of the marks of personal values."""
    marks = _member(message, "personalDataPayload", "pointers")
    kept: list[tuple[str, str]] = []
    # A mark without its members is the schema's to name, and takes no number here.
    readable = [
        mark["pointer"]
        for mark in (marks if isinstance(marks, list) else [])
        if isinstance(_member(mark, "subjectId"), str) and isinstance(_member(mark, "pointer"), str)
    ]
    for index, pointer in enumerate(readable):
        at = f"/personalDataPayload/pointers/{index}/pointer"
        if not pointer.startswith("/") or pointer[1:].split("/")[0] not in CONTENT_MEMBERS:
            yield at, "Must point into a member that holds content, as `/currentState/…`."
        elif pointer == "/checkpoint":
            yield at, "Must point below `/checkpoint`."
        elif not _resolves(message, pointer):
            yield at, "Must point to a value of this message."
        else:
            kept.append((pointer + "/", at))
    kept.sort()
    for before, after in zip(kept, kept[1:], strict=False):
        if after[0].startswith(before[0]):
            yield after[1], "Must not be marked twice, nor below a marked value."


def _resolves(value: Any, pointer: str) -> bool:
    for segment in pointer.split("/")[1:]:
        segment = segment.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and segment in value:
            value = value[segment]
        elif isinstance(value, list) and re.fullmatch(r"0|[1-9][0-9]*", segment, re.A) and int(segment) < len(value):
            value = value[int(segment)]
        else:
            return False
    return True
