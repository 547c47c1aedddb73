"""Shared by all services: bodies, paths, answers, and when a request is sent again."""

from __future__ import annotations

import email.utils
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, ValidationError

from ._version import __version__
from .errors import AnswerError, ProblemError, problem_error

M = TypeVar("M", bound=BaseModel)

USER_AGENT: Final = f"handoffd-python/{__version__}"
MAX_WAIT: Final = 60
"""Longest wait that the broker grants one request, in seconds."""


class Unset:
    """The type of `UNSET`."""

    def __repr__(self) -> str:
        return "UNSET"

    def __bool__(self) -> bool:
        return False


UNSET: Final = Unset()
"""An argument that is left out of the request. `None` is sent as null."""


def quoted(segment: object, safe: str = "") -> str:
    """One segment of a path."""
    return quote(str(segment), safe=safe)


def plain(value: Any) -> Any:
    """The value as JSON has it: models by their wire names, without members that were not set."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, Mapping):
        return {str(name): plain(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def body_of(members: Mapping[str, Any]) -> dict[str, Any]:
    """A request's body from its members; those that are `UNSET` are left out."""
    return {name: plain(value) for name, value in members.items() if not isinstance(value, Unset)}


def headers_of(given: Mapping[str, str | None]) -> dict[str, str]:
    """A request's headers; those that are `None` are left out."""
    return {name: value for name, value in given.items() if value is not None}


def _model(kind: type[M], response: httpx2.Response) -> M:
    try:
        return kind.model_validate_json(response.content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = "/".join(str(one) for one in first["loc"])
        raise _unexpected(response, f"{place or 'the body'}: {first['msg']}") from None


def _json(response: httpx2.Response) -> dict[str, Any]:
    try:
        found = response.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _unexpected(response, "the body is not a JSON object")
    return found


def _unexpected(response: httpx2.Response, why: str) -> AnswerError:
    """The error of an answer that is not the documented one; content of the answer is not repeated."""
    request = response.request
    kind = response.headers.get("content-type", "no type")
    return AnswerError(
        f"{request.method} {request.url}: the answer {response.status_code} ({kind}) is not the documented one: {why}"
    )


def _text(response: httpx2.Response) -> str:
    return response.text


def _bytes(response: httpx2.Response) -> bytes:
    return response.content


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a request is sent again.

    A request that never reached the broker, and an answer 429 or 503, are tried again; a lost answer, 502 and 504 only where
    a repetition has no second effect (reads, submissions, verdicts).
    """

    attempts: int = 8
    """Attempts in all, the first included."""
    base: float = 0.25
    """Seconds: the bound of the first pause, which doubles with each; a pause is random between half of it and the whole.
    Eight attempts last 13 s at least: a broker's restart."""
    cap: float = 10.0
    """Seconds: the longest bound."""
    max_retry_after: float = 60.0
    """Seconds: a longer `Retry-After` is raised to the caller at once."""

    def pause(self, attempt: int, retry_after: float | None) -> float | None:
        """Seconds until the next attempt after this one (from 1), or `None` where there is none."""
        if attempt >= self.attempts:
            return None
        bound = min(self.cap, self.base * 2.0 ** (attempt - 1))
        jitter = (0.5 + random.random() / 2) * bound
        if retry_after is None:
            return jitter
        return None if retry_after > self.max_retry_after else retry_after + random.random() * self.base


RETRIED_STATUS: Final = frozenset({429, 503})
"""The broker did nothing, and says so."""
GATEWAY_STATUS: Final = frozenset({502, 504})
"""A proxy does not know what the broker did."""


def retry_after_of(response: httpx2.Response) -> float | None:
    """Seconds of `Retry-After`, which has seconds or an HTTP date."""
    given = response.headers.get("retry-after")
    if not given:
        return None
    if given.isascii() and given.strip().isdigit():
        return float(given)
    try:
        at = email.utils.parsedate_to_datetime(given)
        return max(0.0, at.timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def checked_url(url: str) -> str:
    """The broker's URL without slashes at its end.

    Raises:
        ValueError: It is not an `http://` or `https://` URL.
    """
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, TypeError):
        parsed = httpx2.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"the broker's URL begins with http:// or https://: {url!r}")
    return url.rstrip("/")


def checked_key(key: str) -> str:
    """The key without space around it, as a file or a variable may have it.

    Raises:
        ValueError: It cannot be in a header. The key is not repeated.
    """
    stripped = key.strip()
    if not stripped.isascii() or not stripped.isprintable() or " " in stripped:
        raise ValueError("the API key has characters that no key has")
    return stripped


def refusal(response: httpx2.Response) -> ProblemError:
    """The error of an answer 4xx or 5xx."""
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    return problem_error(response.status_code, problem, retry_after=retry_after_of(response))


def never_sent(error: httpx2.TransportError) -> bool:
    """Whether no byte of the request reached the broker."""
    return isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)


@dataclass(frozen=True, slots=True)
class Lines:
    """A body of several JSON values, a line each."""

    items: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as every attempt sends it."""

    method: str
    path: str
    query: Mapping[str, Any] | None = None
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False
    wait: float | None = None

    @property
    def may_repeat(self) -> bool:
        """Whether a second effect is impossible."""
        return self.repeatable or self.method in ("GET", "PUT", "DELETE")

    def arguments(self, read_timeout: float) -> dict[str, Any]:
        """The arguments for httpx2."""
        arguments: dict[str, Any] = {"headers": dict(self.headers)}
        given = {name: value for name, value in (self.query or {}).items() if value is not None}
        if given:
            arguments["params"] = {
                name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()
            }
        if self.body is not None:
            lines = self.body.items if isinstance(self.body, Lines) else [self.body]
            arguments["headers"]["content-type"] = "application/x-ndjson" if isinstance(self.body, Lines) else "application/json"
            texts = [json.dumps(plain(one), ensure_ascii=False, separators=(",", ":"), allow_nan=False) for one in lines]
            arguments["content"] = "\n".join(texts).encode()
        if self.wait:
            arguments["timeout"] = httpx2.Timeout(read_timeout, read=read_timeout + min(self.wait, MAX_WAIT))
        return arguments
