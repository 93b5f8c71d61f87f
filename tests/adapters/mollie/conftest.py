"""Fixtures: a fake Mollie that listens, and an adapter that calls it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from adapters.mollie.provider import MollieKeys, MollieProvider, MollieSettings
from adapters.psp.http import RetryPolicy
from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.samples import MERCHANT_ACCOUNT, a_page_request, a_uuid
from adapters.psp_suite.stand_in import Response, change
from domain.identifiers import TokenId
from domain.psps.hosted_page import HostedPage, Outcome
from tests.fake_mollie.mollie import GOOD, TEST_KEY, FakeMollie, running

SETTINGS: Final = MollieSettings(
    accounts={MERCHANT_ACCOUNT: MollieKeys(api_key=TEST_KEY, currency="EUR")},
    webhooks_url="https://pay.example/webhooks/mollie",
)


def adapter_for(
    mollie: FakeMollie, clock: SettableClock, settings: MollieSettings = SETTINGS
) -> MollieProvider:
    """Return an adapter for a merchant account of this fake."""
    return MollieProvider(
        replace(settings, api_base=mollie.url),
        clock=clock,
        retry_policy=RetryPolicy(pause_seconds=0),
    )


class Shop:
    """A merchant at a fake Mollie, with the adapter and the request for a page."""

    def __init__(self, mollie: FakeMollie, clock: SettableClock) -> None:
        self.mollie, self.main, self.clock = mollie, mollie.main, clock
        self.provider = adapter_for(mollie, clock)
        self.request = a_page_request(begun_at=clock.now(), avs=False)

    # Any: `changes` are fields of the request, of any type.
    def start(self, number: int = 0, **changes: Any) -> HostedPage:
        """Start the page of a session. `number` chooses the session."""
        token_id = TokenId(a_uuid(number)) if number else self.request.token_id
        return self.provider.start(replace(self.request, token_id=token_id, **changes))

    def paid_page(self) -> HostedPage:
        """Start the page, and type a card there."""
        page = self.start()
        self.mollie.type_card(page.reference, GOOD)
        return page

    def mandate(self) -> dict[str, Any]:
        """Return Mollie's record of the only card."""
        mandate: dict[str, Any]
        (mandate,) = self.main.mandates.values()
        return mandate

    def outcome(self, page: HostedPage) -> Outcome:
        """Return the outcome of the page."""
        return self.provider.outcome(self.request, page, ())

    def answered_with(self, call: str, **changes: object) -> None:
        """Let Mollie respond to a call with these fields changed."""

        def changed(sound: Response) -> Response:
            return replace(sound, body=json.dumps({**json.loads(sound.body), **changes}).encode())

        self.mollie.server.have(change(changed), call)


@pytest.fixture
def shop() -> Iterator[Shop]:
    clock = SettableClock()
    with running(clock) as mollie:
        yield Shop(mollie, clock)
