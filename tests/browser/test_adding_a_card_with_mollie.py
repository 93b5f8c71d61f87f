"""A guest adds a card with Mollie in a real browser, from our consent page to Mollie's and back.

The demo runs unchanged, with the key of a merchant account in its environment. One of its
centers is configured with `--provider mollie`. Mollie is our own fake, on a separate port.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from adapters.system import SystemClock
from entrypoints.demo.sample import SPA
from tests.browser.pages import type_into
from tests.demo import Demo, running_demo
from tests.fake_mollie.mollie import CHALLENGED, GOOD, REFUSED, TEST_KEY, FakeMollie, running
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def mollie() -> Iterator[FakeMollie]:
    with running(SystemClock()) as mollie:
        yield mollie


@pytest.fixture(scope="module")
def shared_demo(tmp_path_factory: pytest.TempPathFactory, mollie: FakeMollie) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    settings = {
        "CARDONFILE_DATABASE_URL": f"sqlite:///{folder / 'demo.db'}",
        "CARDONFILE_MOLLIE_API_KEY": TEST_KEY,
        "CARDONFILE_MOLLIE_CURRENCY": "EUR",
        "CARDONFILE_MOLLIE_API_BASE": mollie.url,
    }
    with running_demo(folder, settings) as demo:
        demo.command("configure-payments", SPA.center.id, "--provider", "mollie")
        mollie.main.webhook_url = f"{demo.api}/webhooks/mollie"
        yield demo


@pytest.fixture
def demo(shared_demo: Demo) -> Iterator[Demo]:
    """A demo in which the guest Ada has no cards."""
    yield shared_demo
    shared_demo.remove_cards()


def agree(page: Page) -> None:
    """Agree on our page, and continue to Mollie's page."""
    expect(page.locator("body")).to_contain_text(f"you allow {SPA.center.name} to keep it on file")
    page.get_by_role("button", name="Agree and continue to the payment page").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Card")


def type_card(page: Page, number: str) -> None:
    type_into(page.get_by_label("Card number"), number)
    type_into(page.get_by_label("Expiry date"), "12/34")
    type_into(page.get_by_label("CVC"), "123")
    page.get_by_role("button", name="Continue").click()


def expect_card(page: Page, demo: Demo, ending: str) -> str:
    """Expect to be back in the shop, and that this card of Ada is on file. Return its id."""
    expect(page).to_have_url(f"{demo.shop}/")
    (card,) = wait_until(lambda: demo.call("")["accounts"])
    assert card["last_four"] == ending
    return str(card["account_id"])


def test_a_card_added_with_mollie_is_stored_with_its_consent_until_its_removal(
    demo: Demo, page: Page, mollie: FakeMollie
) -> None:
    page.goto(demo.add_card()["hosted_payment_uri"])
    agree(page)
    type_card(page, GOOD)

    account_id = expect_card(page, demo, GOOD[-4:])
    consent = demo.call(f"/{account_id}/consent")
    assert SPA.center.name in consent["text"]
    token = [*mollie.main.mandates][-1]
    demo.call(f"/{account_id}", method="DELETE")
    wait_until(lambda: token in mollie.main.gone)


def test_the_link_opens_a_new_mollie_page_after_a_declined_card(demo: Demo, page: Page) -> None:
    session = demo.add_card()
    link = session["hosted_payment_uri"]
    page.goto(link)
    agree(page)
    type_card(page, REFUSED)
    expect(page).to_have_url(f"{demo.shop}/")
    # The shop can tell that no card was added.
    assert demo.call(f"/sessions/{session['token_id']}")["progress"] == "cancelled"
    page.goto(link)
    agree(page)
    page.get_by_role("button", name="Back to the shop").click()
    expect(page).to_have_url(f"{demo.shop}/")
    page.goto(link)
    agree(page)
    type_card(page, CHALLENGED)
    page.get_by_role("button", name="Authenticate").click()

    expect_card(page, demo, CHALLENGED[-4:])


def test_a_webhook_from_mollie_stores_the_card_if_the_browser_never_returns(
    demo: Demo, page: Page, mollie: FakeMollie
) -> None:
    session = demo.add_card()
    page.goto(session["hosted_payment_uri"])
    agree(page)
    reference = page.url.rpartition("/")[2]
    page.close()
    mollie.type_card(reference, GOOD)
    mollie.tell(*mollie.open_payment(reference))

    status = f"/sessions/{session['token_id']}"
    wait_until(lambda: demo.call(status)["status"] == "completed")
