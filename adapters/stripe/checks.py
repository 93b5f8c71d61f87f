"""Check a key, the clock and the webhook endpoint at Stripe, for `cardonfile doctor`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from adapters.psp.findings import Finding, compare_clocks, ok, problem, unknown
from adapters.psp.settings import is_loopback
from adapters.stripe.calls import Call, NotPermitted
from adapters.stripe.payloads import Account, WebhookEndpoints
from adapters.stripe.webhooks import EVENTS
from domain.psps.payment_provider import ProviderRefused, ProviderUnavailable

EVERY_EVENT: Final = "*"


def check(call: Call, *, mode: str, urls: Sequence[str], now: datetime) -> Sequence[Finding]:
    """Check that a key works in this mode, and that Stripe has the webhook endpoint.

    `urls` are the addresses at which the service accepts this account's events. It does not accept
    them at another account's address, or at an address with a slash at the end.
    """

    def keys() -> Finding:
        call.ask(Account, call.v1.accounts.retrieve_current)
        return ok("keys", f"the secret key works, in {mode} mode")

    def webhooks() -> Finding:
        listed = call.ask(WebhookEndpoints, call.v1.webhook_endpoints.list, {"limit": 100})
        ours = [endpoint for endpoint in listed.data if _address(endpoint.url) in urls]
        events = {each for one in ours if one.status == "enabled" for each in one.enabled_events}
        missing = set() if EVERY_EVENT in events else EVENTS - events
        if not ours and is_loopback(urls[0]):
            return unknown("webhooks", f"Stripe cannot call {urls[0]}: use `stripe listen`")
        if ours and not events:
            return problem("webhooks", f"{urls[0]} is disabled: enable it in the dashboard")
        refused = [each.url for each in listed.data if _host(each.url) == _host(urls[0])]
        if not ours and refused:
            advice = f"in the dashboard, add {urls[0]}, or change the address to {urls[0]}"
            return problem("webhooks", f"{refused[0]} is not the address of this account: {advice}")
        if missing:
            state = "does not get" if ours else "is missing; add it in the dashboard, with"
            return problem("webhooks", f"{urls[0]} {state} {', '.join(sorted(missing))}")
        return ok(
            "webhooks", f"{urls[0]} receives all required events; its secret cannot be checked"
        )

    return [
        _found("keys", "its account", keys),
        _found("webhooks", f"webhook endpoints, such as {urls[0]}", webhooks),
        compare_clocks(call.date, now, of="Stripe"),
    ]


def _address(url: str) -> str:
    """Return a URL in the form in which it is compared: without query, and with a lower-case host."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path}"


def _host(url: str) -> str:
    return urlsplit(url).netloc.lower()


def _found(about: str, what: str, ask: Callable[[], Finding]) -> Finding:
    try:
        return ask()
    except NotPermitted:
        return unknown(
            about, f"the key may not read {what}: add the permission, or look in the dashboard"
        )
    except (ProviderUnavailable, ProviderRefused) as error:
        told = ", ".join(f"{each}" for each in (error.details.error, error.details.status) if each)
    if told.startswith("AuthenticationError"):
        return problem(
            about, "Stripe does not accept the secret key: set a key that is not revoked"
        )
    return problem(
        about, f"no usable response ({told}): check the network, and Stripe's status page"
    )
