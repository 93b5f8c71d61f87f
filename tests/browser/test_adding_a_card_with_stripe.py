"""A guest adds a card with Stripe in a real browser, from the demo shop to Checkout and back.

The demo runs unchanged, with the keys of a merchant account in its environment. One of its
centers is configured with `--provider stripe`. Stripe is our own fake, on a separate port.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from adapters.system import SystemClock
from entrypoints.demo.sample import SPA
from tests.browser.pages import type_into
from tests.demo import Demo, running_demo
from tests.fake_stripe.server import FakeStripeServer, running
from tests.fake_stripe.stripe import TEST_KEY, TEST_SECRET
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def stripe() -> Iterator[FakeStripeServer]:
    with running(SystemClock()) as server:
        yield server


@pytest.fixture(scope="module")
def shared_demo(
    tmp_path_factory: pytest.TempPathFactory, stripe: FakeStripeServer
) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    settings = {
        "CARDONFILE_DATABASE_URL": f"sqlite:///{folder / 'demo.db'}",
        "CARDONFILE_STRIPE_SECRET_KEY": TEST_KEY,
        "CARDONFILE_STRIPE_WEBHOOK_SECRETS": TEST_SECRET,
        "CARDONFILE_STRIPE_API_BASE": stripe.url,
    }
    with running_demo(folder, settings) as demo:
        demo.command("configure-payments", SPA.center.id, "--provider", "stripe")
        stripe.stripe.main.webhook_url = f"{demo.api}/webhooks/stripe"
        yield demo


@pytest.fixture
def demo(shared_demo: Demo) -> Iterator[Demo]:
    """A demo in which the guest Ada has no cards."""
    yield shared_demo
    shared_demo.remove_cards()


def open_checkout(page: Page, demo: Demo) -> str:
    """Start a session, and follow its link to Stripe. Return the session's token."""
    session = demo.add_card()
    page.goto(session["hosted_payment_uri"])
    expect(page.get_by_role("heading", level=1)).to_have_text("Save your card")
    return str(session["token_id"])


def type_card(page: Page, number: str = "4242 4242 4242 4242") -> None:
    type_into(page.get_by_label("Card number"), number)
    type_into(page.get_by_label("Expiration"), "12/34")
    type_into(page.get_by_label("CVC"), "123")
    page.get_by_role("button", name="Save card").click()


def expect_card(page: Page, demo: Demo, ending: str) -> str:
    """Expect to be back in the shop, and that this card of Ada is on file. Return its id."""
    expect(page).to_have_url(f"{demo.shop}/")
    (card,) = wait_until(lambda: demo.call("")["accounts"])
    assert card["last_four"] == ending
    return str(card["account_id"])


def test_a_card_added_with_stripe_is_stored_until_its_removal(
    demo: Demo, page: Page, stripe: FakeStripeServer
) -> None:
    token_id = open_checkout(page, demo)
    expect(page.locator("body")).to_contain_text(f"you allow {SPA.center.name} to keep it on file")
    type_card(page)

    account_id = expect_card(page, demo, "4242")
    assert demo.call(f"/sessions/{token_id}")["status"] == "completed"
    method = [*stripe.stripe.main.methods.values()][-1]
    demo.call(f"/{account_id}", method="DELETE")
    wait_until(lambda: method["customer"] is None)


def test_a_guest_can_add_a_challenged_card_after_a_declined_card_with_stripe(
    demo: Demo, page: Page
) -> None:
    open_checkout(page, demo)
    type_card(page, "4000 0000 0000 0002")
    expect(page.get_by_role("alert")).to_contain_text("declined")
    type_card(page, "4000 0025 0000 3155")
    page.get_by_role("button", name="Complete authentication").click()

    expect_card(page, demo, "3155")


def test_a_card_added_with_stripe_is_stored_even_if_the_browser_never_returns(
    demo: Demo, page: Page, stripe: FakeStripeServer
) -> None:
    token_id = open_checkout(page, demo)
    reference = page.url.rpartition("/")[2]
    page.close()
    stripe.stripe.submit_card(reference, "5555555555554444")
    stripe.send_webhooks()

    wait_until(lambda: demo.call(f"/sessions/{token_id}")["status"] == "completed")
