"""Links to the page for the front desk, the page itself, and the QR code of a session."""

from __future__ import annotations

import cmath
import re
from dataclasses import replace
from html import unescape
from itertools import product
from math import radians
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import segno
import zxingcpp
from falcon import testing
from limits import RateLimitItemPerMinute

from adapters.http import rate_limits
from adapters.http.desk_links import _code_of
from domain.sessions.session import CardSession
from tests.adapters.http.api import ACCOUNTS, Api, refused
from tests.installation import BASE_URL


@pytest.fixture
def session(api: Api) -> CardSession:
    """Return an open session."""
    return api.installation.add_card()


@pytest.fixture
def desk(api: Api, session: CardSession) -> str:
    """Return the path of a desk link of the session."""
    return made(api, session)


def made(api: Api, session: CardSession) -> str:
    path = f"{ACCOUNTS}/sessions/{session.token_id}/desk-links"
    result = api.post({"label": "Chair <3>"}, path=path)
    assert result.status_code == 200
    return str(result.json["desk_uri"]).removeprefix(BASE_URL)


def cancelled_by(api: Api, session: CardSession) -> str | None:
    return api.installation.session(session.token_id).cancelled_by


def form_token(api: Api, path: str) -> str:
    found = re.search(r'name="token" value="(\w+)"', api.browse(path, "").text)
    assert found
    return found[1]


def cancel(api: Api, path: str, **headers: str) -> testing.Result:
    return api.submit(path, f"token={form_token(api, path)}", headers=headers)


def test_the_desk_page_offers_to_send_or_show_the_guests_link_but_does_not_link_to_it(
    api: Api, session: CardSession, desk: str
) -> None:
    short = f"{BASE_URL}/h/{session.link_key}"

    page = api.browse(desk, "").text
    with_code = api.browse(desk, "code=shown").text

    assert ("<svg" in page, "<svg" in with_code, "style=" in with_code) == (False, True, False)
    assert "Chair &lt;3&gt;" in page
    links = re.findall(r'href="((?:sms|mailto):[^"]+)"', page)
    for link in links:
        (body,) = parse_qs(urlsplit(unescape(link)).query)["body"]
        assert body == f"Harbor Spa asks you to add a card: {short}"
    assert len(links) == 2
    without_messages = re.sub(r'href="(sms|mailto):[^"]+"', "", page)
    assert str(session.link_key) not in without_messages
    assert session.token_id not in page


def test_the_qr_code_of_a_session_is_served_as_an_svg_image(api: Api, session: CardSession) -> None:
    result = api.get(f"{ACCOUNTS}/sessions/{session.token_id}/qr.svg")

    assert result.headers["content-type"] == "image/svg+xml"
    assert result.text.count("<path") >= 1
    assert result.headers["content-security-policy"].startswith("default-src 'none'")


def test_the_link_of_a_session_from_an_earlier_release_fits_into_the_qr_code(api: Api) -> None:
    # Percent-encoded, this is too long for any code.
    long = f"https://shop.example/?{'&' * 2000}"
    session = replace(api.installation.add_card(redirect_uri=long), link_key=None)
    api.installation.put_session(session)

    page = api.browse(made(api, session), "code=shown").text

    assert "<svg" in page
    (mailto,) = re.findall(r'href="mailto:[^"]*body=([^"]+)"', page)
    link = unquote(unescape(mailto)).partition(": ")[2]
    assert link == f"{BASE_URL}/hosted-payments?token_id={session.token_id}"
    opened = api.browse("/hosted-payments", f"token_id={session.token_id}")
    assert opened.status_code == 303
    image = api.get(f"{ACCOUNTS}/sessions/{session.token_id}/qr.svg")
    assert image.status_code == 200


def test_the_qr_code_can_be_decoded_to_the_short_link(session: CardSession) -> None:
    link = f"{BASE_URL}/h/{session.link_key}"

    (found,) = zxingcpp.read_barcodes(seen_by_a_camera(_code_of(link), width=200, degrees=10))

    assert found.text == link


def seen_by_a_camera(code: segno.QRCode, width: int, degrees: float) -> memoryview:
    """Return a gray image of a code on a dark page, `width` pixels wide, held at an angle."""
    modules, size = [[*row] for row in code.matrix_iter(border=4)], width * 3 // 2
    turn = cmath.exp(1j * radians(degrees)) / width
    pixels = bytearray()
    for y, x in product(range(size), repeat=2):
        at = turn * complex(x - size / 2, y - size / 2) + complex(0.5, 0.5)
        if 0 <= at.real < 1 and 0 <= at.imag < 1:
            column, row = int(at.real * len(modules)), int(at.imag * len(modules))
            pixels.append(0 if modules[row][column] else 255)
        else:
            pixels.append(30)
    return memoryview(pixels).cast("B", (size, size))


def test_the_button_on_the_desk_page_cancels_the_session(
    api: Api, session: CardSession, desk: str
) -> None:
    token = form_token(api, desk)
    assert '<noscript><meta http-equiv="refresh"' in api.browse(desk, "").text

    result = cancel(api, desk)

    assert (result.status_code, result.headers["location"]) == (303, f"{BASE_URL}{desk}")
    page = api.browse(desk, "").text
    assert "Cancelled" in page
    assert "<form" not in page
    # Without JavaScript, the page reloaded until then.
    assert "refresh" not in page
    assert cancelled_by(api, session) == "caller:web-shop"
    assert api.submit(desk, f"token={token}").status_code == 303


@pytest.mark.parametrize("origin", ["https://evil.example", None])
def test_a_cancel_form_sent_from_another_site_does_not_cancel_the_session(
    api: Api, session: CardSession, desk: str, origin: str | None
) -> None:
    if origin:
        result = cancel(api, desk, Origin=origin)
    else:
        result = api.submit(desk, "token=x")

    assert result.status_code == 403
    assert cancelled_by(api, session) is None


def test_a_desk_link_that_is_forged_or_made_with_a_revoked_access_token_is_refused(
    api: Api, session: CardSession, desk: str
) -> None:
    token = form_token(api, desk)
    forged = api.browse(desk[:-1], "")
    assert (forged.status_code, "This link is not known" in forged.text) == (404, True)
    api.installation.container.revoke_token()(api.token)

    for result in (api.browse(desk, ""), api.submit(desk, f"token={token}")):
        assert (result.status_code, "This page has ended" in result.text) == (403, True)
    assert cancelled_by(api, session) is None


def test_the_number_of_page_loads_is_limited_for_each_desk_link(
    api: Api, session: CardSession, desk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "PAGE_LOADS", RateLimitItemPerMinute(3))
    token = form_token(api, desk)
    for _ in range(2):
        assert api.browse(desk, "").status_code == 200

    result = api.browse(desk, "")
    assert result.status_code == 429
    assert int(result.headers["retry-after"]) > 0
    # Without JavaScript, the page comes back by itself.
    assert "refresh" in result.headers
    assert api.browse(made(api, session), "").status_code == 200
    assert api.submit(desk, f"token={token}").status_code == 303


def test_requesting_the_qr_code_of_an_ended_session_is_refused(
    api: Api, session: CardSession
) -> None:
    api.send("DELETE", f"{ACCOUNTS}/sessions/{session.token_id}")

    result = api.get(f"{ACCOUNTS}/sessions/{session.token_id}/qr.svg")

    assert refused(result) == (409, "Session has ended")


def test_the_desk_page_may_run_only_its_own_script(api: Api, desk: str) -> None:
    policy = api.browse(desk, "").headers["content-security-policy"]

    assert "script-src 'self'; connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy


def test_the_secret_of_a_desk_link_is_never_logged(
    api: Api, desk: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (desk, f"{desk}x"):
        api.browse(path, "")

    assert desk.rpartition("/")[2] not in capsys.readouterr().out
