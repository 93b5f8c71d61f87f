"""A guest adds a card with Stripe or Mollie in a real browser. Both are our own fakes on ports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from adapters.mollie.plugin import NAME as MOLLIE
from adapters.stripe.plugin import NAME as STRIPE
from adapters.system import SystemClock
from domain.cards.account import Account
from domain.sessions.end import SessionStatus
from domain.sessions.polling import Progress
from domain.sessions.session import CardSession
from tests.browser.served import SHOP, address_of, link, opened, serving
from tests.fake_mollie import mollie as fake_mollie
from tests.fake_mollie.mollie import CHALLENGED, GOOD, REFUSED, FakeMollie
from tests.fake_stripe import server as fake_stripe
from tests.fake_stripe.server import FakeStripeServer
from tests.fake_stripe.stripe import TEST_KEY, TEST_SECRET
from tests.installation import Installation


@pytest.fixture
def stripe() -> Iterator[FakeStripeServer]:
    with fake_stripe.running(SystemClock()) as stripe:
        yield stripe


@pytest.fixture
def mollie() -> Iterator[FakeMollie]:
    with fake_mollie.running(SystemClock()) as mollie:
        yield mollie


@pytest.fixture
def served(tmp_path: Path, stripe: FakeStripeServer, mollie: FakeMollie) -> Iterator[Installation]:
    """An installation with a merchant account at each PSP."""
    with serving(
        tmp_path,
        CARDONFILE_STRIPE_SECRET_KEY=TEST_KEY,
        CARDONFILE_STRIPE_WEBHOOK_SECRETS=TEST_SECRET,
        CARDONFILE_STRIPE_API_BASE=stripe.url,
        CARDONFILE_MOLLIE_API_KEY=fake_mollie.TEST_KEY,
        CARDONFILE_MOLLIE_CURRENCY="EUR",
        CARDONFILE_MOLLIE_API_BASE=mollie.url,
    ) as served:
        stripe.stripe.clock = mollie.clock = served.clock
        yield served


def type_card(page: Page, number: str, expiry: str, button: str) -> None:
    """Type a card on the page of a PSP, whose words for the expiry date and the button these are."""
    for name, text in (("Card number", number), (expiry, "12/34"), ("CVC", "123")):
        page.get_by_label(name).fill(text)
    page.get_by_role("button", name=button).click()


def expect_card(page: Page, served: Installation, ending: str) -> Account:
    """Expect to be back in the shop with this card of the guest on file."""
    expect(page).to_have_url(address_of(served, SHOP))
    (account,) = served.accounts()
    assert account.last_four == ending
    return account


def test_a_guest_can_add_a_challenged_card_after_a_declined_card_with_stripe(
    served: Installation, page: Page
) -> None:
    served.configure(provider=STRIPE)
    opened(served, page)
    expect(page.locator("body")).to_contain_text("you allow Harbor Spa to keep it on file")
    type_card(page, "4000 0000 0000 0002", "Expiration", "Save card")
    expect(page.get_by_role("alert")).to_contain_text("declined")
    type_card(page, "4000 0025 0000 3155", "Expiration", "Save card")
    page.get_by_role("button", name="Complete authentication").click()

    expect_card(page, served, "3155")


def agree(served: Installation, page: Page, session: CardSession) -> None:
    """Open the link, agree on our page, and continue to the page of Mollie."""
    page.goto(link(served, session))
    expect(page.locator("body")).to_contain_text("you allow Harbor Spa to keep it on file")
    page.get_by_role("button", name="Agree and continue to the payment page").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Card")


def test_the_link_opens_a_new_mollie_page_after_a_declined_card(
    served: Installation, page: Page, mollie: FakeMollie
) -> None:
    served.configure(provider=MOLLIE)
    session = served.add_card(redirect_uri=address_of(served, SHOP))
    agree(served, page, session)
    type_card(page, REFUSED, "Expiry date", "Continue")
    expect(page).to_have_url(address_of(served, SHOP))
    # The shop can tell that no card was added.
    assert served.session(session.token_id).progress is Progress.CANCELLED
    agree(served, page, session)
    page.get_by_role("button", name="Back to the shop").click()
    expect(page).to_have_url(address_of(served, SHOP))
    agree(served, page, session)
    type_card(page, CHALLENGED, "Expiry date", "Continue")
    page.get_by_role("button", name="Authenticate").click()

    account = expect_card(page, served, CHALLENGED[-4:])
    (consent,) = served.consents(account)
    assert "Harbor Spa" in str(consent.text)
    served.remove_card(account)
    served.reconcile()
    assert account.token in mollie.main.gone


def test_a_webhook_from_mollie_stores_the_card_if_the_browser_never_returns(
    served: Installation, page: Page, mollie: FakeMollie
) -> None:
    served.configure(provider=MOLLIE)
    mollie.main.webhook_url = address_of(served, "/webhooks/mollie")
    session = served.add_card()
    agree(served, page, session)
    reference = page.url.rpartition("/")[2]
    mollie.type_card(reference, GOOD)
    mollie.tell(*mollie.open_payment(reference))
    served.reconcile()

    assert served.session(session.token_id).status is SessionStatus.COMPLETED
