"""Sends requests, and sends them again where that is safe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2

from .._pause import async_sleep
from .._wire import (
    GATEWAY_STATUS,
    RETRIED_STATUS,
    USER_AGENT,
    Request,
    RetryPolicy,
    _unexpected,
    checked_key,
    checked_url,
    never_sent,
    refusal,
    retry_after_of,
)
from ..errors import AnswerError, TransportError


class AsyncTransport:
    """One broker, one key, one pool of connections."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        *,
        timeout: float,
        retries: RetryPolicy,
        http: httpx2.AsyncClient | None,
    ) -> None:
        self.base_url = checked_url(base_url)
        self.timeout = timeout
        self.retries = retries
        self._owned = http is None
        self.http = http or httpx2.AsyncClient(timeout=timeout, limits=httpx2.Limits(max_connections=100))
        self.headers = {"user-agent": USER_AGENT}
        if api_key:
            self.headers["authorization"] = f"Bearer {checked_key(api_key)}"

    async def aclose(self) -> None:
        """Closes the pool, unless it was given."""
        if self._owned:
            await self.http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = False,
        wait: float | None = None,
    ) -> httpx2.Response:
        """Sends a request until it is answered, or must not be repeated.

        Args:
            method: The HTTP method.
            path: The path, encoded.
            query: Parameters; those that are `None` are left out.
            body: JSON, models included.
            headers: Further headers.
            repeatable: The broker knows a repetition, or the operation has no effect.
            wait: Seconds for which the broker holds the answer.

        Raises:
            ProblemError: An answer 4xx or 5xx.
            AnswerError: A redirection, which is not followed, or a body that cannot be decoded.
            TransportError: No answer.
        """
        request = Request(method, path, query, body, {**self.headers, **(headers or {})}, repeatable, wait)
        attempt = 0
        while True:
            attempt += 1
            pause: float | None = None
            try:
                response = await self.http.request(method, self.base_url + path, **request.arguments(self.timeout))
            except httpx2.TransportError as error:
                sent = not never_sent(error)
                pause = self.retries.pause(attempt, None) if request.may_repeat or not sent else None
                if pause is None:
                    said = str(error) or type(error).__name__
                    raise TransportError(f"{method} {self.base_url}{path}: {said}", sent=sent) from error
            except httpx2.DecodingError as error:
                raise AnswerError(f"{method} {self.base_url}{path}: {error}") from error
            else:
                if response.is_success:
                    return response
                if response.status_code < 400:
                    raise _unexpected(response, "a redirection is not followed")
                status = response.status_code
                if status in RETRIED_STATUS or (status in GATEWAY_STATUS and request.may_repeat):
                    pause = self.retries.pause(attempt, retry_after_of(response))
                if pause is None:
                    raise refusal(response)
            await async_sleep(pause)
