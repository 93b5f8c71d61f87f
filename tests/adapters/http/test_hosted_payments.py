from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from urllib.parse import urlencode

import pytest

from domain.card_sessions import CardSession, SessionStatus
from entrypoints.serve import listen
from tests.adapters.http.api import Api
from tests.installation import (
    BASE_URL,
    CHALLENGED_CARD,
    DECLINED_CARD,
    REDIRECT_URI,
    Trouble,
)

LEGS = pytest.mark.parametrize("leg", ["return", "cancel"])


def link_of(session: CardSession, **changes: str) -> str:
    return urlencode(
        {"token_id": session.token_id, "redirect_uri": session.redirect_uri, **changes}
    )


def test_the_link_sends_the_browser_to_the_page(api: Api) -> None:
    session = api.installation.add_card()

    result = api.send("GET", "/hosted-payments", query=link_of(session), authenticated=False)

    assert result.status_code == 303
    assert result.headers["location"].startswith(f"{BASE_URL}/fake-psp/pages/")
    assert session.token_id not in result.headers["location"]
    assert result.headers["referrer-policy"] == "no-referrer"
    assert result.headers["cache-control"] == "no-store"


@LEGS
def test_both_legs_send_the_browser_to_the_stored_address(api: Api, leg: str) -> None:
    session = api.installation.opened_session()
    query = f"token_id={session.token_id}&redirect_uri=https://evil.example"

    result = api.send("GET", f"/hosted-payments/{leg}", query=query, authenticated=False)

    assert result.status_code == 303
    assert result.headers["location"] == REDIRECT_URI


def test_the_address_is_kept_byte_for_byte(api: Api) -> None:
    uri = "HTTPS://Shop.Example:443/a/../b?x=%7e&y=1+2&z=%20;'(,)#frag"
    session = api.installation.opened_session(redirect_uri=uri)
    query = f"token_id={session.token_id}"

    for leg in ("return", "cancel"):
        result = api.send("GET", f"/hosted-payments/{leg}", query=query, authenticated=False)
        assert result.headers["location"] == uri


def test_coming_back_stores_the_card_and_shows_nothing_of_it(api: Api) -> None:
    session = api.installation.opened_session()
    api.installation.type_card(session)

    result = api.send(
        "GET",
        "/hosted-payments/return",
        query=f"token_id={session.token_id}",
        authenticated=False,
    )

    assert result.headers["location"] == REDIRECT_URI
    assert len(api.installation.accounts()) == 1


@pytest.mark.parametrize("typed", [None, DECLINED_CARD, CHALLENGED_CARD])
def test_coming_back_without_a_card_stores_none_whatever_the_address_says(
    api: Api, typed: str | None
) -> None:
    session = api.installation.opened_session()
    if typed:
        api.installation.type_card(session, typed)

    for claim in ("", "&result=success", "&status=completed&card=card_1", "&result=" + "x" * 5000):
        result = api.send(
            "GET",
            "/hosted-payments/return",
            query=f"token_id={session.token_id}{claim}",
            authenticated=False,
        )
        assert (result.status_code, result.headers["location"]) == (303, REDIRECT_URI)

    assert api.installation.session(session.token_id).status is SessionStatus.OPEN
    assert api.installation.accounts() == ()


def test_nobody_but_the_browser_goes_to_the_redirect_uri(api: Api) -> None:
    with closing(listen("127.0.0.1", 0)) as shop:
        shop.setblocking(False)
        port = shop.getsockname()[1]
        session = api.installation.opened_session(redirect_uri=f"http://127.0.0.1:{port}/cards")
        api.installation.type_card(session)
        for leg in ("return", "cancel"):
            query = f"token_id={session.token_id}"
            api.send("GET", f"/hosted-payments/{leg}", query=query, authenticated=False)
        api.installation.reconcile_until_idle()

        assert len(api.installation.accounts()) == 1
        with pytest.raises(BlockingIOError):
            shop.accept()


def test_coming_back_goes_on_while_the_psp_does_not_answer(api: Api) -> None:
    session = api.installation.opened_session()
    api.installation.provider.have(Trouble.BEFORE_IT_ACTED)

    result = api.send(
        "GET",
        "/hosted-payments/return",
        query=f"token_id={session.token_id}",
        authenticated=False,
    )

    assert (result.status_code, result.headers["location"]) == (303, REDIRECT_URI)


@pytest.mark.parametrize(
    ("changes", "status", "title"),
    [
        ({"redirect_uri": "https://evil.example"}, 400, "This link has been changed"),
        ({"redirect_uri": ""}, 400, "This link has been changed"),
        ({"token_id": "x"}, 404, "This link is not known"),
        ({"token_id": ""}, 404, "This link is not known"),
    ],
)
def test_a_link_that_cannot_be_followed_shows_a_page(
    api: Api, changes: dict[str, str], status: int, title: str
) -> None:
    session = api.installation.add_card()

    result = api.send(
        "GET", "/hosted-payments", query=link_of(session, **changes), authenticated=False
    )

    assert result.status_code == status
    assert title in result.text
    assert "evil.example" not in result.text
    assert "location" not in result.headers


def test_an_expired_link_shows_a_safe_way_back(api: Api) -> None:
    session = api.installation.add_card(redirect_uri="https://shop.example/?a=1&b='x'")
    api.installation.clock.advance(timedelta(minutes=31))

    result = api.send("GET", "/hosted-payments", query=link_of(session), authenticated=False)

    assert result.status_code == 410
    assert 'href="https://shop.example/?a=1&amp;b=&#39;x&#39;"' in result.text


def test_a_psp_that_is_away_shows_a_page_that_says_to_try_again(api: Api) -> None:
    session = api.installation.add_card()
    api.installation.provider.have(Trouble.BEFORE_IT_ACTED)

    result = api.send("GET", "/hosted-payments", query=link_of(session), authenticated=False)

    assert result.status_code == 503
    assert "load this page again" in result.text
    assert result.headers["retry-after"] == "30"
    api.installation.provider.recover()
    result = api.send("GET", "/hosted-payments", query=link_of(session), authenticated=False)
    assert result.status_code == 303


def test_every_page_is_shut_to_scripts_frames_and_caches(api: Api) -> None:
    result = api.send("GET", "/hosted-payments", query="token_id=x", authenticated=False)

    policy = result.headers["content-security-policy"]
    for rule in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action"):
        assert rule in policy
    assert "unsafe" not in policy
    assert result.headers["referrer-policy"] == "no-referrer"
    assert result.headers["cache-control"] == "no-store"
