"""The page for the front desk in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from adapters.catalogs import catalog
from domain.sessions.session import CardSession
from tests.browser.pages import OpenPage, assert_accessible, assert_fits
from tests.browser.test_languages import serving, started
from tests.installation import Installation

LABEL = "Chair 3"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Installation]:
    """An installation that browsers reach."""
    with serving(tmp_path) as installed:
        yield installed


def desk_of(served: Installation, session: CardSession) -> str:
    """Return the address of a new desk link."""
    secret = served.container.make_desk_link()(
        served.caller,
        access_token=served.token_for(served.caller),
        guest_id=session.guest_id,
        token_id=session.token_id,
        label=LABEL,
    )
    return served.container.links().desk_uri(secret)


def assert_good(page: Page) -> None:
    """Check the page at 320 pixels, in light and dark."""
    page.set_viewport_size(ViewportSize(width=320, height=640))
    assert_fits(page)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert_accessible(page)


def in_language(page: Page, language: str) -> None:
    page.context.set_extra_http_headers({"Accept-Language": language})


@pytest.mark.parametrize("language", ["en", "ar"])
def test_staff_can_use_the_desk_page_by_keyboard(
    served: Installation, page: Page, language: str
) -> None:
    t, session = catalog(language), started(served, "de")
    in_language(page, language)
    page.goto(desk_of(served, session))
    status = page.get_by_role("status")
    expect(page.get_by_role("heading", level=2)).to_have_text(LABEL)
    expect(status).to_contain_text(t.text("desk.created.state"))
    assert_good(page)

    page.get_by_role("link", name=t.text("desk.show_code")).press("Enter")
    code = page.get_by_role("img", name=t.text("desk.code"))
    expect(code).to_be_visible()
    assert_good(page)
    page.set_viewport_size(ViewportSize(width=1024, height=768))
    box = code.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) > 650
    expect(code).to_be_in_viewport()
    assert_fits(page)

    send = page.get_by_role("link", name=t.text("desk.sms"))
    send.focus()
    served.open_page(session)
    expect(status).to_contain_text(t.text("desk.opened.state"))
    # Only the state has changed.
    expect(send).to_be_focused()

    page.get_by_role("button", name=t.text("desk.cancel")).press("Enter")
    expect(status).to_contain_text(t.text("desk.cancelled.state"))
    assert_good(page)


def test_the_desk_page_follows_a_session_without_javascript(
    served: Installation, open_page: OpenPage
) -> None:
    t, session = catalog("en"), started(served, "en")
    page = open_page(java_script_enabled=False)
    page.goto(desk_of(served, session))
    expect(page.get_by_role("status")).to_contain_text(t.text("desk.created.state"))

    served.open_page(session)

    expect(page.get_by_role("status")).to_contain_text(t.text("desk.opened.state"))


def test_the_desk_page_moves_the_focus_from_a_button_that_disappears(
    served: Installation, page: Page
) -> None:
    session = started(served, "en")
    page.goto(desk_of(served, session))
    page.get_by_role("button", name="Cancel").focus()

    served.open_page(session)
    served.type_card(served.session(session.token_id))
    served.return_to_shop(session)

    expect(page.get_by_role("status")).to_contain_text("Visa ••••\N{NO-BREAK SPACE}4242 stored")
    expect(page.get_by_role("status")).to_be_focused()
    expect(page.get_by_role("button")).to_have_count(0)
    assert_good(page)
