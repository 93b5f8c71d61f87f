"""Several PSPs at once: one center on the fake PSP, another on Stripe, in one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.samples import GUEST_ID
from adapters.stripe.plugin import NAME as STRIPE
from domain.identifiers import MerchantAccount
from domain.sessions.session import CardSession
from tests.adapters.http.api import Api, refused_bare
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center
from tests.fake_stripe.server import FakeStripeServer, running
from tests.fake_stripe.stripe import TEST_KEY, TEST_SECRET, Merchant, signature
from tests.installation import GOOD_CARD, MERCHANT, Installation

HARBOR = MerchantAccount("harbor")


@pytest.fixture
def stripe() -> Iterator[FakeStripeServer]:
    with running(SettableClock()) as server:
        server.stripe.add_merchant("sk_test_harbor", "whsec_harbor")
        yield server


@pytest.fixture
def both(
    tmp_path_factory: pytest.TempPathFactory, stripe: FakeStripeServer
) -> Iterator[Installation]:
    """Return an installation whose other center takes cards with Stripe."""
    installed = Installation(
        tmp_path_factory.mktemp("both"),
        CARDONFILE_STRIPE_SECRET_KEY=TEST_KEY,
        CARDONFILE_STRIPE_WEBHOOK_SECRETS=TEST_SECRET,
        CARDONFILE_STRIPE_HARBOR_SECRET_KEY="sk_test_harbor",
        CARDONFILE_STRIPE_HARBOR_WEBHOOK_SECRETS="whsec_harbor",
        CARDONFILE_STRIPE_API_BASE=stripe.url,
    )
    stripe.stripe.clock = installed.clock
    installed.has_center(a_center(id=OTHER_CENTER_ID, name="Corner Hair Salon"))
    installed.configure(OTHER_CENTER_ID, provider=STRIPE)
    yield installed
    installed.close()


def card_typed_at_stripe(both: Installation, stripe: FakeStripeServer) -> CardSession:
    session = both.add_card(center_id=OTHER_CENTER_ID)
    reference = urlsplit(both.open_page(session)).path.rpartition("/")[2]
    stripe.stripe.submit_card(reference, GOOD_CARD)
    return session


def test_each_center_uses_its_own_psp_and_can_change_to_another_psp(
    both: Installation, stripe: FakeStripeServer
) -> None:
    at_fake = both.stored_card()
    assert (at_fake.provider, at_fake.center_id) == (FAKE, CENTER_ID)
    session = card_typed_at_stripe(both, stripe)
    both.return_to_shop(session)
    both.configure(OTHER_CENTER_ID, provider=FAKE)
    both.stored_card(center_id=OTHER_CENTER_ID)
    _, old, new = both.accounts()
    assert (old.provider, old.center_id, old.token_id) == (
        STRIPE,
        OTHER_CENTER_ID,
        session.token_id,
    )
    assert old.token in stripe.stripe.main.methods
    assert new.provider == FAKE

    for account in (at_fake, old, new):
        both.use_cases.remove_account(both.caller, guest_id=GUEST_ID, account_id=account.account_id)
    both.reconcile()

    assert stripe.stripe.main.methods[old.token]["customer"] is None
    assert both.tokens_at_psp() == frozenset()
    assert not both.accounts()


class TestWebhooks:
    """`/webhooks/stripe` and `/webhooks/stripe/{account}`, over the whole application."""

    def deliver(
        self, both: Installation, path: str, body: bytes, secret: str
    ) -> tuple[int, str | None]:
        signed = signature(body, secret=secret, at=both.clock.now())
        result = Api(both).send(
            "POST", path, body=body, headers={"Stripe-Signature": signed}, authenticated=False
        )
        return (200, None) if result.status_code == 200 else refused_bare(result)

    def completed_event(self, merchant: Merchant) -> bytes:
        events = (each for each in merchant.events if each["type"] == "checkout.session.completed")
        return json.dumps(next(events)).encode()

    def test_webhooks_of_several_merchant_accounts_store_cards_even_if_no_browser_returns(
        self, both: Installation, stripe: FakeStripeServer
    ) -> None:
        for account, key, secret, path in (
            (MERCHANT, TEST_KEY, TEST_SECRET, "/webhooks/stripe"),
            (HARBOR, "sk_test_harbor", "whsec_harbor", "/webhooks/stripe/harbor"),
        ):
            both.configure(OTHER_CENTER_ID, provider=STRIPE, merchant_account=account)
            session = card_typed_at_stripe(both, stripe)
            body = self.completed_event(stripe.stripe.merchants[key])

            for _ in range(2):
                assert self.deliver(both, path, body, secret) == (200, None)
            both.reconcile()

            stored = both.accounts()[-1]
            assert (stored.token_id, stored.merchant_account) == (session.token_id, account)
        assert len(both.accounts()) == 2

    # Shows F33.
    def test_a_webhook_for_another_merchant_account_changes_nothing(
        self, both: Installation, stripe: FakeStripeServer
    ) -> None:
        session = card_typed_at_stripe(both, stripe)
        before = both.session(session.token_id)
        body = self.completed_event(stripe.stripe.main)
        live = body.replace(b'"livemode": false', b'"livemode": true')

        for path, sent, secret in (
            ("/webhooks/stripe/harbor", body, TEST_SECRET),
            ("/webhooks/stripe", body, "whsec_harbor"),
            # Well signed, of another merchant account than the session's.
            ("/webhooks/stripe/harbor", body, "whsec_harbor"),
            ("/webhooks/stripe", live, TEST_SECRET),
            ("/webhooks/fake", body, TEST_SECRET),
        ):
            assert self.deliver(both, path, sent, secret) == (400, "Invalid webhook")
        assert both.session(session.token_id) == before
