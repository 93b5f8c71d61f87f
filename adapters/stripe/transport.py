"""The HTTP client that Stripe's SDK uses.

All requests of one call to the port share one connection and one deadline.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import stripe
from typing_extensions import override

from adapters.psp.http import HttpClient, Response, RetryPolicy

_PASSED_ON: Final = frozenset({"date", "request-id", "idempotent-replayed", "retry-after"})
"""The headers of responses that are passed to the SDK, because the adapter needs them. The SDK
would print others, such as notices, to standard error.
"""


class Transport(stripe.HTTPClient):
    """Sends all requests of the SDK over one connection, and with one deadline."""

    name = "http.client"

    def __init__(
        self, api_base: str, retry_policy: RetryPolicy, tls: ssl.SSLContext | None
    ) -> None:
        super().__init__()
        self._api_base = api_base
        self._client = HttpClient(
            api_base, retry_policy=retry_policy, tls=tls, is_worth_repeating=_is_worth_repeating
        )

    @override
    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        post_data: Any = None,  # as in the SDK: a form-encoded text, or None
        **_: object,
    ) -> tuple[str, int, Mapping[str, str]]:
        body = None if post_data is None else post_data.encode()
        path = url.removeprefix(self._api_base)
        response = self._client.send(method, path, headers=headers, body=body)
        passed_on = {name: response.headers[name] for name in _PASSED_ON & response.headers.keys()}
        return response.body.decode(), response.status, passed_on

    @override
    def close(self) -> None:
        """Close the connection, if there is one."""
        self._client.close()


def _is_worth_repeating(response: Response) -> bool:
    """Return whether the same request may succeed later.

    The header Stripe-Should-Retry takes precedence over the status of the response.
    See "Errors" and "Advanced error handling" in Stripe's API reference.
    """
    advice = response.headers.get("stripe-should-retry")
    is_passing = (
        response.status == HTTPStatus.CONFLICT
        or response.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    )
    return advice == "true" or (advice != "false" and is_passing)


def trusted_by_the_sdk() -> ssl.SSLContext:
    """Return a TLS context that trusts the SDK's bundled certificates."""
    return ssl.create_default_context(cafile=stripe.ca_bundle_path)
