"""Links to the guest's own page, and the page itself."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

import pytest
from falcon import testing
from limits import RateLimitItemPerMinute
from structlog.testing import capture_logs

from adapters.http import rate_limits
from adapters.psp_suite.samples import GUEST_ID
from domain.cards.account import Account
from domain.sessions.session import CardSession
from tests.adapters.http.api import ACCOUNTS, Api, refused
from tests.builders import CENTER_ID
from tests.domain.agreements.bookings import guaranteed, takes_agreements
from tests.installation import BASE_URL, OTHER_GOOD_CARD, Installation

PATH: Final = f"/api/v1/guests/{GUEST_ID}/portal-sessions"
PAGE: Final = "/hosted-payments/portal"
BODY: Final = {"center_id": CENTER_ID, "return_uri": "https://shop.example/account"}


@pytest.fixture
def api(installation: Installation) -> Api:
    """A client of an installation that has a card."""
    installation.stored_card()
    return Api(installation)


@pytest.fixture
def link(api: Api) -> str:
    """Return the path of a link."""
    return opened(api)


def opened(api: Api, base_url: str = BASE_URL) -> str:
    result = api.post(BODY, path=PATH)
    assert result.status_code == 200
    return str(result.json["portal_uri"]).removeprefix(base_url)


def token_in(page: testing.Result) -> str:
    found = re.search(r'name="token" value="(\w+)"', page.text)
    assert found
    return found[1]


def post(
    api: Api, path: str, token: str, cookie: str = "", headers: dict[str, str] | None = None
) -> testing.Result:
    return api.submit(path, f"token={token}", headers={"Cookie": cookie, **(headers or {})})


def entered(api: Api, link: str) -> str:
    """Press the button of the link, and return the cookie that the browser gets."""
    result = post(api, link, token_in(api.browse(link, "")))
    assert result.status_code == 303
    return str(result.headers["set-cookie"].partition(";")[0])


def browse(api: Api, cookie: str, path: str = PAGE, query: str = "") -> testing.Result:
    return api.browse(path, query, headers={"Cookie": cookie})


def with_done(cookie: str, result: testing.Result) -> str:
    """Return the cookies of a visit, including the cookie that the response has set."""
    return f"{cookie}; {result.headers['set-cookie'].partition(';')[0].replace(chr(34), '')}"


def of_card(account: Account, act: str) -> str:
    return f"{PAGE}/cards/{account.account_id}/{act}"


def replacing(api: Api, account: Account, cookie: str) -> CardSession:
    """Return a new session that replaces the card, with its page opened."""
    api.installation.clock.advance(timedelta(seconds=1))
    replaced = post(api, of_card(account, "replace"), token_in(browse(api, cookie)), cookie)
    with api.installation.storage.read() as unit:
        (session,) = [each for each in unit.sessions.of_guest(GUEST_ID) if each.account_id is None]
    assert replaced.status_code == 303
    assert replaced.headers["location"].startswith(f"{BASE_URL}/hosted-payments?token_id=")
    assert session.token_id in replaced.headers["location"]
    api.installation.open_page(session)
    return api.installation.session(session.token_id)


def only_card(api: Api) -> Account:
    (account,) = api.installation.accounts()
    return account


def test_opening_a_portal_link_shows_a_button_but_no_cards(api: Api, link: str) -> None:
    page = api.browse(link, "")

    assert "Show my cards" in page.text
    assert "4242" not in page.text
    assert "set-cookie" not in page.headers
    assert page.headers["referrer-policy"] == "strict-origin"
    assert "script-src" not in page.headers["content-security-policy"]


def test_the_button_of_a_portal_link_leads_to_the_guests_cards(api: Api, link: str) -> None:
    result = post(api, link, token_in(api.browse(link, "")))

    assert (result.status_code, result.headers["location"]) == (303, f"{BASE_URL}{PAGE}")
    cookie, *attributes = result.headers["set-cookie"].split("; ")
    assert cookie.startswith("cardonfile-portal=")
    assert set(attributes) == {"HttpOnly", "Max-Age=3600", "Path=/", "SameSite=Lax"}
    page = browse(api, cookie)
    assert "Visa ••••&nbsp;4242" in page.text
    assert "By adding this card you allow" in page.text


@pytest.mark.installed(base_url="https://cards.example", CARDONFILE_ALLOW_FAKE_PSP="1")
def test_the_portal_cookie_on_a_public_address_is_limited_to_this_host(api: Api) -> None:
    link = opened(api, "https://cards.example")

    origin = {"Origin": "https://cards.example"}
    result = post(api, link, token_in(api.browse(link, "")), headers=origin)

    cookie, *attributes = result.headers["set-cookie"].split("; ")
    assert cookie.startswith("__Host-cardonfile-portal=")
    assert {"Secure", "HttpOnly", "Path=/", "SameSite=Lax"} < set(attributes)


def test_the_portal_cookie_does_not_grant_access_to_the_api(api: Api, link: str) -> None:
    cookie = entered(api, link)

    for headers in (
        {"Cookie": cookie},
        {"Authorization": f"Bearer {cookie.partition('=')[2]}"},
        {"Authorization": f"Bearer {link.rpartition('/')[2]}"},
    ):
        result = api.send("GET", ACCOUNTS, headers=headers, authenticated=False)
        assert refused(result) == (401, "User not authenticated")


def test_the_portal_without_a_valid_visit_asks_the_guest_to_open_the_link_again(
    api: Api, link: str
) -> None:
    for path in (PAGE, of_card(only_card(api), "remove")):
        result = browse(api, "cardonfile-portal=x.y", path)
        assert (result.status_code, "Please open your link again" in result.text) == (410, True)
    forged = api.browse(link[:-1], "")
    assert (forged.status_code, "This link is not known" in forged.text) == (404, True)


def test_the_page_of_an_expired_portal_link_says_that_it_has_expired(api: Api, link: str) -> None:
    token = token_in(api.browse(link, ""))
    api.installation.clock.advance(timedelta(minutes=15))

    for result in (api.browse(link, ""), post(api, link, token)):
        assert (result.status_code, "This link has expired" in result.text) == (410, True)


def test_a_confirmation_step_explains_what_removing_a_card_means(api: Api, link: str) -> None:
    account, cookie = only_card(api), entered(api, link)
    asked = browse(api, cookie, of_card(account, "remove"))
    assert "It can no longer be charged." in asked.text
    assert only_card(api) == account

    result = post(api, of_card(account, "remove"), token_in(asked), cookie)

    assert result.headers["location"] == f"{BASE_URL}{PAGE}"
    page = browse(api, with_done(cookie, result)).text
    assert "The card was removed." in page
    assert "keeps no card of yours" in page
    # The form is sent twice, and the page of the second step is reloaded.
    again = post(api, of_card(account, "remove"), token_in(asked), cookie)
    assert (again.status_code, again.headers["location"]) == (303, f"{BASE_URL}{PAGE}")
    assert browse(api, cookie, of_card(account, "remove")).status_code == 303


def test_the_portal_confirms_a_change_only_once_and_only_in_the_same_visit(
    api: Api, link: str
) -> None:
    account, cookie, other = only_card(api), entered(api, link), entered(api, link)
    token = token_in(browse(api, cookie))
    removed = post(api, of_card(account, "remove"), token, cookie)
    assert "Max-Age=60" in removed.headers["set-cookie"]

    said = browse(api, with_done(cookie, removed))

    assert "The card was removed." in said.text
    assert with_done(cookie, said) == f"{cookie}; cardonfile-done="
    assert "Max-Age=-1" in said.headers["set-cookie"]
    for sent in (
        with_done(cookie, said),
        with_done(other, removed),
        f"{cookie}; cardonfile-done=removed",
    ):
        assert "The card was removed." not in browse(api, sent).text
    assert "The card was removed." not in browse(api, cookie, query="done=removed").text


def test_a_portal_form_sent_from_another_site_changes_nothing(api: Api, link: str) -> None:
    account, cookie, other = only_card(api), entered(api, link), entered(api, link)
    token, elsewhere = token_in(browse(api, cookie)), {"Origin": "https://evil.example"}

    for act in ("remove", "withdraw", "default", "replace"):
        path = of_card(account, act)
        for result in (
            post(api, path, token, cookie, elsewhere),
            post(api, path, "x", cookie),
            # The token is from another visit.
            post(api, path, token, other),
        ):
            assert (result.status_code, "not sent from your link" in result.text) == (403, True)
    assert only_card(api) == account


def test_a_form_sent_from_another_site_does_not_start_a_visit_to_the_portal(
    api: Api, link: str
) -> None:
    token = token_in(api.browse(link, ""))

    # The attacker knows the link and can compute the form's token. A sandboxed page sends "null".
    for sent, headers in (
        (token, {"Origin": "https://evil.example"}),
        (token, {"Origin": "null"}),
        ("x", {}),
    ):
        result = post(api, link, sent, headers=headers)
        assert (result.status_code, "set-cookie" in result.headers) == (403, False)


def test_an_unknown_step_or_change_in_the_portal_responds_404(api: Api, link: str) -> None:
    cookie = entered(api, link)
    token = token_in(browse(api, cookie))

    for act in ("default", "replace", "erase", "REMOVE"):
        assert browse(api, cookie, of_card(only_card(api), act)).status_code == 404
    assert post(api, of_card(only_card(api), "erase"), token, cookie).status_code == 404


def test_the_portal_reloads_itself_while_a_new_card_is_being_saved(api: Api, link: str) -> None:
    account, cookie = only_card(api), entered(api, link)
    session = replacing(api, account, cookie)
    api.installation.return_to_shop(session)

    page = browse(api, cookie)
    assert "is being saved" in page.text
    assert page.headers["refresh"] == "5"
    # Browsers apply this directive to the redirects after a form.
    assert "form-action" not in page.headers["content-security-policy"]


def test_replacing_a_card_logs_the_removal_of_the_old_card(api: Api, link: str) -> None:
    account, cookie = only_card(api), entered(api, link)
    session = replacing(api, account, cookie)

    with capture_logs() as lines:
        api.installation.type_card_and_return(session, OTHER_GOOD_CARD)

    (removed,) = [each for each in lines if each["event"] == "card_removed"]
    assert (removed["account_id"], removed["caller"]) == (account.account_id, "guest")


def test_the_portal_shows_until_when_a_removed_card_is_kept_for_its_booking(
    installation: Installation,
) -> None:
    takes_agreements(installation)
    guaranteed(installation, keeps=True)
    api = Api(installation)
    account, cookie = only_card(api), entered(api, opened(api))
    asked = browse(api, cookie, of_card(account, "remove"))
    assert "stays for that alone, until <bdi>Monday, December 7, 2026" in asked.text

    result = post(api, of_card(account, "remove"), token_in(asked), cookie)

    page = browse(api, with_done(cookie, result))
    assert "Your consent has ended." in page.text
    assert "removed after <bdi>Monday, December 7, 2026" in page.text
    assert of_card(account, "remove") not in page.text


def test_a_receipt_in_the_portal_shows_the_consent_text_as_it_was_shown(
    api: Api, link: str
) -> None:
    page = browse(api, entered(api, link), of_card(only_card(api), "receipt")).text

    assert "Receipt" in page
    assert "By adding this card you allow Harbor Spa" in page
    assert "<details" not in page


def test_the_number_of_page_loads_is_limited_for_each_visit_to_the_portal(
    api: Api, link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "PAGE_LOADS", RateLimitItemPerMinute(3))
    cookie = entered(api, link)
    for _ in range(3):
        assert browse(api, cookie).status_code == 200

    result = browse(api, cookie)
    assert (result.status_code, "Please wait a moment" in result.text) == (429, True)
    assert int(result.headers["retry-after"]) > 0
    assert browse(api, entered(api, opened(api))).status_code == 200


def test_the_secret_of_a_portal_link_or_cookie_is_never_logged(api: Api, link: str) -> None:
    with capture_logs() as lines:
        cookie = entered(api, link)
        for path in (link, f"{link}x"):
            api.browse(path, "")
        for sent in (cookie, f"{cookie}x"):
            browse(api, sent)

    assert "/hosted-payments/portal/{key}" in str(lines)
    assert link.rpartition("/")[2] not in str(lines)
    assert cookie.partition(".")[2] not in str(lines)
