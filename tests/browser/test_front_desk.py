"""The page for the front desk in a real browser."""

from __future__ import annotations

from playwright.sync_api import Page, ViewportSize, expect

from adapters.catalogs import catalog
from domain.sessions.session import CardSession
from tests.browser.pages import OpenPage, assert_fits, assert_good
from tests.browser.served import started
from tests.installation import Installation

LABEL = "Chair 3"


def open_desk(served: Installation, page: Page) -> CardSession:
    """Start a session, and open a new desk link of the session."""
    session = started(served)
    secret = served.container.make_desk_link()(
        served.caller,
        access_token=served.token_for(served.caller),
        guest_id=session.guest_id,
        token_id=session.token_id,
        label=LABEL,
    )
    page.goto(served.container.links().desk_uri(secret))
    return session


def test_staff_can_use_the_desk_page_by_keyboard(served: Installation, page: Page) -> None:
    t, status = catalog("ar"), page.get_by_role("status")
    page.set_extra_http_headers({"Accept-Language": "ar"})
    session = open_desk(served, page)
    expect(page.get_by_role("heading", level=2)).to_have_text(LABEL)
    expect(status).to_contain_text(t.text("desk.created.state"))

    page.get_by_role("link", name=t.text("desk.show_code")).press("Enter")
    code = page.get_by_role("img", name=t.text("desk.code"))
    expect(code).to_be_visible()
    assert_good(page)
    page.set_viewport_size(ViewportSize(width=1024, height=768))
    box = code.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) > 650
    expect(code).to_be_in_viewport()

    send = page.get_by_role("link", name=t.text("desk.sms"))
    send.focus()
    served.open_page(session)
    expect(status).to_contain_text(t.text("desk.opened.state"))
    # Only the state has changed.
    expect(send).to_be_focused()

    page.get_by_role("button", name=t.text("desk.cancel")).press("Enter")
    expect(status).to_contain_text(t.text("desk.cancelled.state"))
    assert_fits(page)


def test_the_desk_page_follows_a_session_without_javascript(
    served: Installation, open_page: OpenPage
) -> None:
    page = open_page(java_script_enabled=False)
    session = open_desk(served, page)

    served.open_page(session)

    expect(page.get_by_role("status")).to_contain_text(catalog("en").text("desk.opened.state"))


def test_the_desk_page_moves_the_focus_from_a_button_that_disappears(
    served: Installation, page: Page
) -> None:
    session = open_desk(served, page)
    page.get_by_role("button", name="Cancel").focus()

    served.open_page(session)
    served.type_card_and_return(session)

    expect(page.get_by_role("status")).to_contain_text("Visa ••••\N{NO-BREAK SPACE}4242 stored")
    expect(page.get_by_role("status")).to_be_focused()
    expect(page.get_by_role("button")).to_have_count(0)
    assert_good(page, "dark")
