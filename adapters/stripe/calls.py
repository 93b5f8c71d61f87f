"""Call Stripe's SDK with one deadline, decode the responses, and translate the errors."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final, ParamSpec, Self, TypeVar

import msgspec
import stripe

from adapters.psp.http import RetryPolicy, field_of, retry_after
from adapters.stripe.keys import StripeKeys
from adapters.stripe.payloads import LiveOrTest
from adapters.stripe.transport import Transport
from domain.psps.payment_provider import (
    FailureDetails,
    NotFound,
    ProviderRefused,
    ProviderUnavailable,
)

API_VERSION: Final = "2026-10-28.endive"
"""The API version of this adapter, sent with each request whatever the SDK's default is."""

_Asked = ParamSpec("_Asked")
_Read = TypeVar("_Read", bound=msgspec.Struct)


class NotPermitted(ProviderUnavailable):
    """The restricted key lacks the permission for this call."""


class KeySpent(ProviderRefused):
    """Stripe does not carry out this call, because the idempotency key was used before.

    Either the first call with the key failed, and Stripe returns the saved failure for each further
    call. Or the first call had other parameters. The first call may have taken effect nevertheless.
    """


_TRANSLATIONS: Final[
    Mapping[type[stripe.StripeError], type[ProviderUnavailable | ProviderRefused]]
] = {
    stripe.APIError: ProviderUnavailable,
    # An operator replaces a revoked key, and then the same call succeeds.
    stripe.AuthenticationError: ProviderUnavailable,
    stripe.PermissionError: NotPermitted,
    stripe.RateLimitError: ProviderUnavailable,
    stripe.CardError: ProviderUnavailable,
    stripe.InvalidRequestError: ProviderRefused,
    stripe.IdempotencyError: KeySpent,
}
"""The exception of this package for each error of the SDK. Any other error is treated as an outage,
because the call may have taken effect.
"""


class Call:
    """Sends the requests that one call to the port needs, with the keys of a merchant account.

    Use it in a `with` statement, which closes the connection. `date` is the `Date` header of the
    latest response.

    Pass methods of the SDK's services in `v1` to `ask`. `ask` never raises exceptions of the SDK,
    because those contain the sent and received data.
    """

    def __init__(
        self,
        keys: StripeKeys,
        *,
        api_base: str,
        retry_policy: RetryPolicy,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.date: str | None = None
        self._is_live = keys.is_live
        self._transport = Transport(api_base, retry_policy, tls)
        client = stripe.StripeClient(
            keys.secret_key,
            stripe_version=API_VERSION,
            base_addresses={"api": api_base},
            http_client=self._transport,
            # The transport retries, within the deadline.
            max_network_retries=0,
        )
        self.v1: Final = client.v1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    @property
    def time(self) -> datetime | None:
        """The time in Stripe's latest response, or None if the response contains no time."""
        with suppress(TypeError, ValueError):
            return parsedate_to_datetime(self.date or "").replace(tzinfo=UTC)
        return None

    def ask(
        self,
        kind: type[_Read],
        # Any: the SDK's objects have no common type; only the raw body is read.
        send: Callable[_Asked, Any],
        *args: _Asked.args,
        **options: _Asked.kwargs,
    ) -> _Read:
        """Send a request, and decode the response as `kind`.

        Raises ProviderUnavailable or ProviderRefused.
        """
        failure: Exception
        response: _Read | None = None
        try:
            last = send(*args, **options).last_response
            self.date = last.headers.get("date")
            response = msgspec.json.decode(last.body, type=kind)
        except stripe.StripeError as error:
            self.date = (error.headers or {}).get("date", self.date)
            failure = _translated(error)
        except ProviderUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - the SDK may raise anything
            failure = ProviderUnavailable(
                "Stripe's response cannot be understood",
                details=FailureDetails(error=type(error).__name__, param=field_of(error)),
            )
        if response is None:
            # The error is raised outside the handlers, because their exceptions contain the key and
            # the sent data.
            raise failure
        if isinstance(response, LiveOrTest) and response.livemode is not self._is_live:
            raise ProviderUnavailable(
                "Stripe's response is not in the mode of the key (test or live)",
                details=FailureDetails(error="WrongMode"),
            )
        return response


def _translated(error: stripe.StripeError) -> Exception:
    meaning = next(
        (_TRANSLATIONS[kind] for kind in type(error).__mro__ if kind in _TRANSLATIONS),
        ProviderUnavailable,
    )
    headers = error.headers or {}
    details = FailureDetails(
        error=type(error).__name__,
        status=error.http_status,
        code=error.code,
        param=getattr(error, "param", None),
        request_id=error.request_id,
    )
    if error.code == "resource_missing":
        meaning = NotFound
    elif (
        headers.get("idempotent-replayed") == "true"
        and (error.http_status or 0) >= HTTPStatus.INTERNAL_SERVER_ERROR
    ):
        # Stripe saved an internal error under the idempotency key.
        meaning = KeySpent
    reason = f"Stripe answered {type(error).__name__}, HTTP {error.http_status}"
    if meaning is ProviderUnavailable:
        return ProviderUnavailable(reason, retry_after=retry_after(headers), details=details)
    return meaning(reason, details=details)


def quiet_sdk() -> None:
    """Switch off the SDK's logs and telemetry, which contain parameters and responses.

    The SDK reads the environment variable STRIPE_LOG only at import, so the plugin unsets it.
    """
    logging.getLogger("stripe").addFilter(_drop)
    stripe.log = None
    # Telemetry also writes a file in the home folder.
    stripe.enable_telemetry = False


def _drop(_: logging.LogRecord) -> bool:
    return False
