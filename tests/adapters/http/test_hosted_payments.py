from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from html import unescape
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from falcon.testing import Result
from structlog.testing import capture_logs

from adapters.psp_suite.samples import GUEST_ID, a_uuid
from domain.errors import ServiceUnavailable
from domain.hosted_payments.link import HostedLinks
from domain.sessions.end import SessionStatus
from domain.sessions.polling import ASK_AGAIN_AFTER
from domain.sessions.session import CardSession
from entrypoints.serve import listen
from tests.adapters.http.api import Api
from tests.builders import CENTER_ID, a_center
from tests.installation import (
    BASE_URL,
    CHALLENGED_CARD,
    DECLINED_CARD,
    NO_PREPAID,
    PREPAID_CARD,
    REDIRECT_URI,
    Installation,
    Trouble,
)
from tests.pictures import A_WEBP, a_png

CENTER = a_center().name
PUBLIC_URL = "https://cards.example"
LEGS = pytest.mark.parametrize("leg", ["return", "cancel"])


def opened(api: Api, session: CardSession) -> Result:
    """Open the link of a session."""
    return api.browse("/hosted-payments", link_query(session))


def link_query(session: CardSession) -> str:
    link = HostedLinks(base_url=BASE_URL).hosted_payment_uri(session)
    return link.removeprefix(f"{BASE_URL}/hosted-payments?")


def click(api: Api, query: str, origin: str | None = None, form: bytes = b"") -> Result:
    """Send the form of the button on cardonfile's page, from this origin."""
    headers = {} if origin is None else {"Origin": origin}
    return api.submit("/hosted-payments", form, query=query, headers=headers)


def sent_back(api: Api, session: CardSession, leg: str = "return", claim: str = "") -> str:
    """Return to the shop by one of the `leg` addresses. Return where that redirects."""
    result = api.browse(f"/hosted-payments/{leg}", f"token_id={session.token_id}{claim}")
    assert result.status_code == 303
    return result.headers["location"]


def test_the_log_names_the_session_of_a_guest_who_goes_back_without_a_card(api: Api) -> None:
    session = api.installation.add_card()

    with capture_logs() as lines:
        sent_back(api, session, "cancel")

    (line,) = (each for each in lines if each["event"] == "guest_went_back")
    assert line["session"] == session.prefix


def shown(result: Result) -> tuple[str, str, str | None]:
    """Return the center and the problem that a page names, and the target of its link."""
    text = re.sub("</?bdi.*?>", "", unescape(result.text))
    headings = re.findall(r"<h[12][^>]*>(.*?)</h[12]>", text)
    center, problem = headings if len(headings) == 2 else ("", *headings)
    way_back = re.search(r'<a [^>]*href="([^"]*)">Go back( to .*?)?</a>', text)
    if way_back and center:
        assert way_back[2] == f" to {center}"
    assert "shop" not in text.replace(REDIRECT_URI, "").lower()
    return center, problem, way_back[1] if way_back else None


def buttons(result: Result) -> list[tuple[str, str]]:
    """Return the targets and texts of a page's buttons, in order."""
    text = re.sub("</?bdi.*?>", "", unescape(result.text))
    return re.findall(r'<a class="button[^"]*" href="([^"]*)">(.*?)</a>', text)


def test_opening_the_link_redirects_the_browser_to_the_hosted_page(api: Api) -> None:
    session = api.installation.add_card()

    result = opened(api, session)

    assert result.status_code == 303
    assert result.headers["location"].startswith(f"{BASE_URL}/fake-psp/pages/")
    assert session.token_id not in result.headers["location"]
    assert result.headers["referrer-policy"] == "no-referrer"
    assert result.headers["cache-control"] == "no-store"


# Shows S6, S8.
@LEGS
def test_leaving_the_hosted_page_redirects_to_the_unchanged_redirect_uri(
    api: Api, leg: str
) -> None:
    uri = "HTTPS://Shop.Example:443/a/../b?x=%7e&y=1+2&z=%20;'(,)#frag"
    session = api.installation.opened_session(redirect_uri=uri)

    assert sent_back(api, session, leg, "&redirect_uri=https://evil.example") == uri


@LEGS
def test_a_psp_may_return_the_browser_by_submitting_a_form(api: Api, leg: str) -> None:
    session = api.installation.opened_session()
    api.installation.type_card(session, CHALLENGED_CARD)
    result = api.submit(
        f"/hosted-payments/{leg}",
        b"result=a%20b&result=c&secret=x",
        query=f"token_id={session.token_id}&state=query",
        headers={"Origin": "https://psp.example"},
    )

    assert (result.status_code, result.headers["location"]) == (303, REDIRECT_URI)
    stored = [json.loads(each.content) for each in api.installation.evidence(session)]
    assert stored == ([{"result": "a b", "state": "query"}] if leg == "return" else [])


def test_a_form_that_is_too_long_is_refused_at_the_return_address(api: Api) -> None:
    session = api.installation.opened_session()
    for body, status in ((b"a=" + b"x" * 20_000, 413), (b"a&" * 200, 400)):
        result = api.submit("/hosted-payments/return", body, query=f"token_id={session.token_id}")
        assert result.status_code == status


def test_a_button_opens_a_hosted_page_that_expects_a_submitted_form(api: Api) -> None:
    start, fields = api.installation.provider.start, {"signed": '"><script>', "empty": ""}
    api.installation.provider.start = lambda request: replace(start(request), fields=fields)
    session = api.installation.add_card()

    result = opened(api, session)

    page = api.installation.session(session.token_id).current_attempt.page
    assert page is not None
    assert result.status_code == 200
    assert f'<form method="post" action="{page.address}">' in result.text
    assert '<input type="hidden" name="signed" value="&#34;&gt;&lt;script&gt;">' in result.text
    assert '<input type="hidden" name="empty" value="">' in result.text
    assert "form-action" not in result.headers["content-security-policy"]
    assert opened(api, session).text == result.text


# Shows I8.
@pytest.mark.parametrize("typed", [DECLINED_CARD, CHALLENGED_CARD])
def test_returning_without_a_card_stores_no_card_even_if_the_query_claims_success(
    api: Api, typed: str
) -> None:
    session = api.installation.opened_session()
    api.installation.type_card(session, typed)

    for claim in ("&result=success", "&status=completed&card=card_1", "&result=" + "x" * 5000):
        assert sent_back(api, session, claim=claim) == REDIRECT_URI

    assert api.installation.session(session.token_id).status is SessionStatus.OPEN
    assert api.installation.accounts() == ()


@pytest.mark.installed(CARDONFILE_CARD_TESTING_LIMITS="guest=off/1")
@pytest.mark.parametrize(
    ("passed", "left"),
    [
        (timedelta(0), "24 hours"),
        (timedelta(hours=22, minutes=30), "90 minutes"),
        (timedelta(hours=23, minutes=59, seconds=59), "2 minutes"),
    ],
)
def test_a_guest_with_too_many_refused_cards_is_told_when_to_try_again(
    api: Api, passed: timedelta, left: str
) -> None:
    installation = api.installation
    installation.configure(link_minutes=43_200)
    in_advance = installation.add_card(link_minutes=43_200)
    session = installation.opened_session()
    installation.type_card(session, DECLINED_CARD)
    sent_back(api, session)
    installation.clock.advance(passed)

    with capture_logs() as logs:
        result = opened(api, in_advance)

    assert result.status_code == 429
    assert result.headers["retry-after"] == f"{(timedelta(days=1) - passed).total_seconds():.0f}"
    (line,) = (line for line in logs if line["event"] == "card_limit_reached")
    assert (line["limit"], line["of"]) == ("refused cards per guest", GUEST_ID)
    assert shown(result) == (CENTER, "Too many cards were refused", REDIRECT_URI)
    assert f"open this link again in {left}." in result.text


# Shows S7.
def test_the_service_never_requests_the_redirect_uri(api: Api) -> None:
    with closing(listen("127.0.0.1", 0)) as shop:
        shop.setblocking(False)
        port = shop.getsockname()[1]
        session = api.installation.opened_session(redirect_uri=f"http://127.0.0.1:{port}/cards")
        api.installation.type_card(session)
        for leg in ("return", "cancel"):
            sent_back(api, session, leg)
        api.installation.reconcile()

        assert len(api.installation.accounts()) == 1
        with pytest.raises(BlockingIOError):
            shop.accept()


# Shows S6.
# Shows S28.
def test_only_the_key_in_a_link_decides_which_page_it_opens(api: Api) -> None:
    session = api.installation.add_card()
    page = opened(api, session).headers["location"]

    for rest in (".%0D%0A", "&redirect_uri=x&redirect_uri=https://evil.example"):
        query = f"token_id={a_uuid(999)}&key={session.link_key}{rest}"
        result = api.browse("/hosted-payments", query)
        assert (result.status_code, result.headers["location"]) == (303, page)
    result = api.browse("/hosted-payments", f"token_id={session.token_id}")

    assert result.status_code == 404
    assert shown(result) == ("", "This link is not known", None)
    assert session.redirect_uri not in result.text


@pytest.mark.parametrize("around", ["({})", "{}?utm_source=sms"])
def test_the_short_link_redirects_to_the_full_link(api: Api, around: str) -> None:
    session = api.installation.add_card()
    path, _, query = f"/h/{around.format(session.link_key)}".partition("?")

    result = api.browse(path, query)

    assert result.status_code == 303
    link = urlsplit(result.headers["location"])
    assert f"{link.scheme}://{link.netloc}" == BASE_URL
    page = opened(api, session).headers["location"]
    assert api.browse(link.path, link.query).headers["location"] == page


# Shows S9.
@pytest.mark.parametrize("path", ["", "/return", "/cancel"])
def test_the_page_of_an_unknown_link_says_where_to_get_a_new_link(refusing: Api, path: str) -> None:
    for token_id in ("x", "", a_uuid(999)):
        query = urlencode({"token_id": token_id, "redirect_uri": "https://evil.example"})
        result = refusing.browse(f"/hosted-payments{path}", query)

        assert result.status_code == 404
        assert shown(result) == ("", "This link is not known", None)
        assert "ask for a new link where you got this one" in result.text
        assert "evil.example" not in result.text
        assert result.headers["content-security-policy"] == (
            "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'none'; "
            "frame-ancestors 'none'; base-uri 'none'"
        )
        assert result.headers["referrer-policy"] == "no-referrer"
        assert result.headers["cache-control"] == "no-store"


def without_way_back(api: Api) -> None:
    """Make the storage unavailable when a page looks for the link back to the shop."""

    def unavailable(**_: object) -> None:
        raise ServiceUnavailable

    api.installation.container.hosted_payments().__dict__["find_page_content"] = unavailable


def test_a_page_omits_the_link_back_to_the_shop_while_the_database_is_unavailable(
    api: Api, old_link: CardSession
) -> None:
    without_way_back(api)

    result = api.browse("/hosted-payments", "token_id=x")

    assert shown(result) == ("", "This link is not known", None)
    assert "Continue to the payment page" in opened(api, old_link).text


@pytest.mark.parametrize(("table", "center"), [("guests", CENTER), ("centers", "")])
def test_the_page_of_a_link_whose_guest_or_center_was_deleted_links_back_to_the_shop(
    api: Api, table: str, center: str
) -> None:
    session = api.installation.add_card()
    api.installation.unconfigure()
    api.installation.loses(table)

    result = opened(api, session)

    assert result.status_code == 404
    assert shown(result) == (center, "This link is not known", REDIRECT_URI)


# Shows F38.
@pytest.mark.parametrize(
    ("contact", "shown_as"),
    [
        (None, ""),
        ("tel:+49301234567", "+49301234567"),
        ("mailto:desk@spa.example", "desk@spa.example"),
        ("https://spa.example/contact?from=card", "spa.example"),
    ],
)
def test_the_page_of_an_expired_link_shows_the_contact_of_the_center(
    api: Api, contact: str | None, shown_as: str
) -> None:
    if contact:
        api.installation.container.set_center()(CENTER_ID, {"contact": contact})
    session = api.installation.add_card(redirect_uri="https://shop.example/?a=1&b='x'")
    api.installation.clock.advance(timedelta(minutes=31))

    result = opened(api, session)

    assert result.status_code == 410
    assert 'href="https://shop.example/?a=1&amp;b=&#39;x&#39;"' in result.text
    ask = [(contact, f"Ask {CENTER}: {shown_as}")] if contact else []
    assert buttons(result) == [*ask, ("https://shop.example/?a=1&b='x'", f"Go back to {CENTER}")]


def test_the_page_of_a_cancelled_link_says_that_it_was_cancelled(api: Api) -> None:
    session = api.installation.opened_session()
    api.installation.cancel_session(session)

    result = opened(api, session)

    assert result.status_code == 410
    assert shown(result) == (CENTER, "This link was cancelled", REDIRECT_URI)


@pytest.fixture
def old_link(api: Api) -> CardSession:
    """Return a session whose link is too old to lead to the page without a click."""
    api.installation.configure(redirect_origins=("myspa://",), link_minutes=43_200)
    session = api.installation.add_card(redirect_uri="myspa://cards", link_minutes=43_200)
    api.installation.clock.advance(timedelta(hours=25))
    return session


# Shows S10.
def test_a_link_older_than_a_day_shows_a_button_before_the_hosted_page(
    api: Api, old_link: CardSession
) -> None:
    result = opened(api, old_link)

    assert result.status_code == 200
    assert CENTER in result.text
    assert '<form method="post">' in result.text
    assert f"<bdi>{CENTER}</bdi> asks you to add a card" in result.text
    assert "Nothing is charged" in result.text
    host = '<bdi dir="ltr">127.0.0.1:8000</bdi>'
    assert f"which belongs to <bdi>Fake PSP</bdi> ({host})" in result.text
    policy = result.headers["content-security-policy"]
    # Browsers would apply it to the redirects after the form, up to where the shop sends its guests.
    assert "form-action" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    # Without a referrer, browsers send a form with the origin "null".
    assert result.headers["referrer-policy"] == "same-origin"
    assert result.headers["cache-control"] == "no-store"
    # Nothing needs a consent.
    assert set(result.cookies) == {"cardonfile-link"}
    assert api.installation.provider.calls == []


# Shows S10.
def test_a_click_that_comes_from_another_site_is_refused(api: Api, old_link: CardSession) -> None:
    for elsewhere in ("https://evil.example", "", f"{BASE_URL}.evil"):
        sent = click(api, link_query(old_link), elsewhere)
        assert sent.status_code == 403
        assert shown(sent) == (CENTER, "This was not sent from your link", "myspa://cards")
    assert api.installation.provider.calls == []
    # A proxy may remove the origin.
    for own in (BASE_URL, "null"):
        clicked = click(api, link_query(old_link), own)
        assert clicked.headers["location"].startswith(f"{BASE_URL}/fake-psp/pages/")


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Api]:
    """An installation whose PSP does not show the consent. Its German text is a custom text."""
    capabilities = {"shows_consent": False}
    with closing(Installation(tmp_path, capabilities=capabilities)) as installed:
        installed.container.set_consent()(CENTER_ID, "de", own="{center} darf <abbuchen>.")
        yield Api(installed)


@pytest.fixture
def asked(asking: Api) -> CardSession:
    """A session of a German-speaking guest there."""
    return asking.installation.add_card(locale="de")


AGREED = re.compile(r'<button name="agreed" value="(\w{64})" aria-describedby="consent">')


def test_the_service_shows_the_consent_text_if_the_psps_page_cannot_show_it(
    asking: Api, asked: CardSession
) -> None:
    result = opened(asking, asked)

    assert result.status_code == 200
    assert result.headers["content-language"] == "de"
    text = f'id="consent"><bdi>{CENTER}</bdi> darf &lt;abbuchen&gt;.</p>'
    assert text in result.text
    assert AGREED.search(result.text)
    assert "Z••• N•••" in result.text
    assert "sieht Ihre Kartennummer nie" in result.text
    way_back = f"{BASE_URL}/hosted-payments/cancel?token_id={asked.token_id}"
    assert f'<a href="{way_back}">' in result.text
    assert asking.installation.provider.calls == []


def test_only_a_click_with_a_valid_version_of_the_consent_text_counts_as_consent(
    asking: Api, asked: CardSession
) -> None:
    page, query = opened(asking, asked), link_query(asked)

    again = [
        click(asking, query, BASE_URL, body) for body in (b"", b"agreed=%ff", b"agreed=1&agreed=2")
    ]
    again.append(opened(asking, asked))
    assert [(each.status_code, each.text) for each in again] == [(200, page.text)] * 4
    agreed = f"{query}&agreed={AGREED.findall(page.text)[0]}"
    for method in ("GET", "HEAD"):
        result = asking.client.simulate_request(method, "/hosted-payments", query_string=agreed)
        assert "location" not in result.headers
    assert asking.installation.session(asked.token_id) == asked


def test_a_cookie_identifies_the_browser_in_which_the_guest_agreed(
    asking: Api, asked: CardSession
) -> None:
    form = f"agreed={AGREED.findall(opened(asking, asked).text)[0]}".encode()
    asking.installation.provider.have(Trouble.BEFORE_IT_ACTED)
    away = click(asking, link_query(asked), BASE_URL, form)
    asking.installation.provider.recover()
    asking.installation.clock.advance(ASK_AGAIN_AFTER)
    cookie = away.cookies["cardonfile"]

    same, other = (
        asking.browse("/hosted-payments", link_query(asked), {"Cookie": f"cardonfile={secret}"})
        for secret in (cookie.value, "another" * 4)
    )

    assert (away.status_code, same.status_code, other.status_code) == (503, 303, 200)
    assert AGREED.search(other.text)
    assert len(cookie.value) >= 22
    for invalid in ("\xe9" * 32, '"a\\012b"', "a" * 5_000):
        sent = {"Cookie": f"cardonfile={invalid}"}
        new = asking.submit("/hosted-payments", form, query=link_query(asked), headers=sent)
        assert new.status_code == 303
        assert new.cookies["cardonfile"].value not in invalid


@pytest.mark.installed(
    base_url=PUBLIC_URL, capabilities={"shows_consent": False}, CARDONFILE_ALLOW_FAKE_PSP="1"
)
def test_browsers_send_the_consent_cookie_only_to_this_service(api: Api) -> None:
    session = api.installation.add_card()
    form = f"agreed={AGREED.findall(opened(api, session).text)[0]}".encode()
    cookie = click(api, link_query(session), PUBLIC_URL, form).cookies["__Host-cardonfile"]

    assert cookie.secure
    assert (cookie.path, cookie.http_only, cookie.same_site) == ("/", True, "Lax")
    # The browser sends the cookie only to this host, and deletes it when the browser is closed.
    assert not any((cookie.domain, cookie.expires, cookie.max_age))


@pytest.mark.installed(base_url=PUBLIC_URL, CARDONFILE_ALLOW_FAKE_PSP="1")
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_only_the_browser_that_opened_a_link_returns_to_the_link_after_an_unaccepted_card(
    api: Api, method: str
) -> None:
    api.installation.configure(**NO_PREPAID)
    session = api.installation.add_card()
    cookie = opened(api, session).cookies["__Host-cardonfile-link"]
    api.installation.type_card(api.installation.session(session.token_id), PREPAID_CARD)
    locations = [
        api.send(
            method,
            "/hosted-payments/return",
            query=f"token_id={session.token_id}",
            headers={"Cookie": f"__Host-cardonfile-link={key}"},
            authenticated=False,
        ).headers["location"]
        for key in ("", "a" * 26, cookie.value)
    ]

    assert locations[:2] == [REDIRECT_URI] * 2
    assert locations[2] == f"{PUBLIC_URL}/hosted-payments?{link_query(session)}"
    assert (cookie.path, cookie.http_only, cookie.same_site) == ("/", True, "None")
    assert cookie.secure
    assert not any((cookie.domain, cookie.expires, cookie.max_age))


# Shows F35.
def test_a_double_click_on_the_button_opens_one_hosted_page(api: Api) -> None:
    session = api.installation.add_card()
    second: list[Result] = []
    api.installation.provider.before = lambda _, __: second.append(opened(api, session))

    first = opened(api, session)

    assert first.status_code == 303
    assert shown(second[0]) == (CENTER, "The payment page is being opened", REDIRECT_URI)
    assert second[0].status_code == 503
    assert second[0].headers["refresh"] == second[0].headers["retry-after"] == "2"
    api.installation.provider.before = lambda _, __: None
    assert opened(api, session).headers["location"] == first.headers["location"]
    assert api.installation.provider.calls.count("start") == 1


def test_a_double_click_on_the_agree_button_counts_as_one_agreement(
    asking: Api, asked: CardSession
) -> None:
    form = f"agreed={AGREED.findall(opened(asking, asked).text)[0]}".encode()
    query, second = link_query(asked), list[Result]()
    # The browser sees nothing of the first response, not even its cookie.
    asking.installation.provider.before = lambda _, __: second.append(
        click(asking, query, BASE_URL, form)
    )
    first = click(asking, query, BASE_URL, form)
    asking.installation.provider.before = lambda _, __: None
    cookie = second[0].cookies["cardonfile"].value

    again = asking.browse("/hosted-payments", query, {"Cookie": f"cardonfile={cookie}"})

    assert (first.status_code, second[0].status_code, again.status_code) == (303, 503, 303)
    assert again.headers["location"] == first.headers["location"]


# Shows F22.
def test_the_page_asks_the_guest_to_try_again_while_the_psp_is_unavailable(api: Api) -> None:
    session = api.installation.add_card()
    api.installation.provider.have(Trouble.BEFORE_IT_ACTED)

    result = opened(api, session)

    assert result.status_code == 503
    assert shown(result) == (CENTER, "The payment page cannot be reached", REDIRECT_URI)
    assert buttons(result) == [("", "Try again"), (REDIRECT_URI, f"Go back to {CENTER}")]
    assert result.headers["retry-after"] == "30"
    api.installation.provider.recover()
    api.installation.clock.advance(ASK_AGAIN_AFTER)
    assert opened(api, session).status_code == 303


def test_a_page_shows_the_branding_of_its_center(api: Api) -> None:
    logo = {"logo": a_png(), "color": "#2e7d32"}
    api.installation.container.set_center()(CENTER_ID, logo)
    session = api.installation.add_card()
    api.installation.clock.advance(timedelta(minutes=31))

    result = opened(api, session)

    addresses = re.findall(r'(?:<link [^>]*href|src)="([^"]*)"', result.text)
    assert len(addresses) == 4
    found = [api.client.simulate_get(each.removeprefix(BASE_URL)) for each in addresses]
    assert [each.status_code for each in found] == [200] * 4
    assert [each.headers["content-type"].partition(";")[0] for each in found] == [
        *("image/svg+xml", "text/css", "text/css", "image/png")
    ]
    *_, color, picture = found
    assert "--fill: #2e7d32" in color.text
    assert picture.content == a_png()
    assert picture.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert picture.headers["x-content-type-options"] == "nosniff"
    policy = result.headers["content-security-policy"]
    assert "style-src 'self'; img-src 'self'" in policy
    api.installation.container.set_center()(CENTER_ID, {"logo": A_WEBP})
    assert picture.content.decode("latin-1") not in opened(api, session).text
    assert addresses[-1] not in opened(api, session).text


@pytest.mark.parametrize(
    "path",
    [
        *("logos/x/y.png", f"logos/{CENTER_ID}/y.png"),
        *("style/colors/1d4f91;.css", "style/../page.css"),
    ],
)
def test_static_files_that_are_not_listed_are_not_served(api: Api, path: str) -> None:
    assert api.client.simulate_get(f"/hosted-payments/{path}").status_code == 404


class TestLanguage:
    @pytest.fixture(autouse=True)
    def switched_on(self, api: Api) -> None:
        for language in ("ar", "de"):
            api.installation.container.set_consent()(CENTER_ID, language)

    @pytest.mark.parametrize(
        ("accepted", "language", "direction", "title"),
        [
            ("de-AT,en;q=0.5", "de", "ltr", "Dieser Link ist nicht bekannt"),
            ("ar", "ar", "rtl", "هذا الرابط غير معروف"),
            ("ja, *", "en", "ltr", "This link is not known"),
        ],
    )
    def test_a_page_about_an_unknown_session_is_in_the_language_of_the_browser(
        self, api: Api, accepted: str, language: str, direction: str, title: str
    ) -> None:
        result = browse(api, f"token_id={a_uuid(404)}", accepted)

        assert (result.headers["content-language"], result.headers["vary"]) == (
            *(language, "Accept-Language"),
        )
        assert f'<html lang="{language}" dir="{direction}">' in result.text
        assert title in result.text

    @pytest.mark.parametrize(
        ("locale", "language", "vary"),
        [("de", "de", None), ("auto", "ar", "Accept-Language"), (None, "en", None)],
    )
    def test_a_page_about_a_session_is_in_the_language_of_the_session(
        self, api: Api, locale: str | None, language: str, vary: str | None
    ) -> None:
        session = api.installation.add_card(locale=locale)
        api.installation.clock.advance(timedelta(minutes=31))

        result = browse(api, link_query(session), "ar")

        assert result.status_code == 410
        assert result.headers["content-language"] == language
        assert result.headers.get("vary") == vary

    def test_the_hosted_page_keeps_the_language_in_which_it_was_first_opened(
        self, api: Api
    ) -> None:
        session = api.installation.add_card(locale="auto")
        api.installation.provider.have(Trouble.BEFORE_IT_ACTED)
        for accepted in ("de", "ar"):
            result = browse(api, link_query(session), accepted)
            api.installation.clock.advance(ASK_AGAIN_AFTER)
            assert result.status_code == 503
            assert result.headers["content-language"] == "de"
            assert "vary" not in result.headers


def browse(api: Api, query: str, accepted: str) -> Result:
    """Open a link in a browser that accepts these languages."""
    return api.browse("/hosted-payments", query, {"Accept-Language": accepted})


def test_the_page_tells_the_guest_why_a_card_was_not_accepted(api: Api) -> None:
    api.installation.configure(**NO_PREPAID)
    session = api.installation.opened_session()
    api.installation.type_card(session, PREPAID_CARD)

    cookie = {"Cookie": f"cardonfile-link={session.link_key}"}
    returned = api.browse("/hosted-payments/return", f"token_id={session.token_id}", cookie)
    page = opened(api, session)

    assert returned.status_code == 303
    assert returned.headers["location"] == f"{BASE_URL}/hosted-payments?{link_query(session)}"
    assert page.status_code == 200
    assert "Your card was not saved, because it is not accepted here." in page.text
    assert "Not accepted here: prepaid cards." in page.text
    assert '<form method="post">' in page.text
