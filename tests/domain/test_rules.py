"""The rules that need no storage: each value is read, or refused, by itself."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.billing import COUNTRY_CODES, BillingInfo, parse_billing_info
from domain.errors import (
    BillingInfoInvalid,
    PageParameterInvalid,
    RedirectUriInvalid,
    Refusal,
    TooManyItems,
)
from domain.identifiers import plain_uuid
from domain.pagination import PageRequest
from domain.payment_configuration import check_session_minutes
from domain.redirects import parse_allowed_origin, parse_redirect_uri, redirect_origin
from domain.text import is_clean
from tests.builders import a_payment_account

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    "uri",
    [
        "https://shop.example",
        "http://shop.example/",
        "https://shop.example:8443/cards?x=1&y=%20#done",
        "https://127.0.0.1/x",
        "http://[::1]:3000/x",
        "HTTPS://Shop.Example/x",
        "https://shop.example./x",
        "https://xn--mnchen-3ya.example/x",
        "https://shop.example/" + "x" * 2027,
    ],
)
def test_a_usable_redirect_uri_is_kept_byte_for_byte(uri: str) -> None:
    assert parse_redirect_uri(uri) == uri


@pytest.mark.parametrize(
    "uri",
    [
        "shop.example/cards",
        "//shop.example/cards",
        "/cards",
        "https:shop.example",
        "https:/shop.example",
        "https:///cards",
        "https://",
        "https://?x",
        "https://user@shop.example/",
        "https://user:secret@shop.example/",
        "https://shop.example\\@evil.example/",
        "https:\\\\shop.example",
        "https://shop.example/a b",
        "https://shop.example/\r\nSet-Cookie: a=b",
        "https://shop.example/\x00",
        "https://shop.example/\u2028",
        "https://m\u00fcnchen.example/",
        "https://shop.example:port/",
        "https://shop.example:99999/",
        "https://shop.example:0/",
        "https://a..b/",
        "https://" + "a" * 64 + ".example/",
        "https://" + "a." * 127 + "example/",
        "https://0x7f.1/",
        "https://2130706433/",
        "https://127.1/",
        "https://127.0.0.01/",
        "https://256.1.1.1/",
        "https://99999999999/",
        "https://[127.0.0.1]/",
        "https://[::1%25eth0]/",
        "https://::1/",
        "https://-shop.example/",
        "https://[::1/",
        "javascript:alert(1)",
        "JavaScript://shop.example/%0aalert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "ftp://shop.example/",
        "myspa://cards",
        " https://shop.example/",
        "https://shop.example/" + "x" * 2028,
        "https://shop.example/\ud800",
    ],
)
def test_an_unusable_redirect_uri_is_refused(uri: str) -> None:
    with pytest.raises(RedirectUriInvalid):
        parse_redirect_uri(uri)


@given(anything)
def test_a_redirect_uri_is_either_kept_or_refused(value: object) -> None:
    with suppress(Refusal):
        assert parse_redirect_uri(value) == value


@pytest.mark.parametrize(
    ("uri", "origin"),
    [
        ("https://Shop.Example:443/x", "https://shop.example"),
        ("http://shop.example:80", "http://shop.example"),
        ("https://shop.example:80/", "https://shop.example:80"),
        ("http://[::1]:3000/", "http://[::1]:3000"),
        ("myspa://cards/done", "myspa://"),
        ("javascript://x", None),
        ("intent://x", None),
    ],
)
def test_an_address_has_an_origin(uri: str, origin: str | None) -> None:
    assert redirect_origin(uri) == origin


@pytest.mark.parametrize(
    ("given_origin", "kept"),
    [
        ("https://shop.example", "https://shop.example"),
        ("https://shop.example/", "https://shop.example"),
        ("HTTPS://SHOP.example:443", "https://shop.example"),
        ("myspa://", "myspa://"),
        ("MySpa://", "myspa://"),
    ],
)
def test_an_allowed_origin_is_kept_in_one_spelling(given_origin: str, kept: str) -> None:
    assert parse_allowed_origin(given_origin) == kept


@pytest.mark.parametrize(
    "value",
    ["", "shop.example", "https://shop.example/cards", "https://*.example", "javascript://", "x:"],
)
def test_what_is_no_origin_cannot_be_allowed(value: str) -> None:
    with pytest.raises(ValueError, match="an origin looks like"):
        parse_allowed_origin(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("first_name", "Zo\u00eb"),
        ("last_name", "\u0646\u0627\u200c\u0645\u0647"),
        ("email", "zoe+cards@guests.example"),
        ("email", "zoe@guests.test"),
        ("country_code", "DE"),
        ("phone", "+49 (30) 901820-0"),
        ("phone", "+12125550100"),
        ("address", "1 Main St"),
        ("address", "1234567890123 Main St"),
    ],
)
def test_a_billing_field_of_right_form_is_kept(name: str, value: str) -> None:
    billing_info = parse_billing_info({name: value})

    assert billing_info is not None
    assert getattr(billing_info, name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("first_name", 7),
        ("first_name", ["Zoe"]),
        ("first_name", "x" * 101),
        ("last_name", "Null\x00"),
        ("city", "Sea\r\nttle"),
        ("state", "W\u2028A"),
        ("address", "\ud800"),
        ("address", "\x1b[31mred"),
        ("email", "zoe"),
        ("email", "zoe@"),
        ("email", "a@b@c.example"),
        ("email", "zoe@-x.example"),
        ("country_code", "XX"),
        ("country_code", "USA"),
        ("country_code", "\uff44\uff45"),
        ("phone", "2125550100"),
        ("phone", "+0 123 456 78"),
        ("phone", "+123456"),
        ("phone", "+1234567890123456"),
        ("phone", "+\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668"),
        ("phone", "tel:+12125550100"),
        ("zipcode", "1" * 21),
        ("address", "4111111111111111"),
        ("address", "card 4111 1111 1111 1111 CVC 737"),
        ("first_name", "6011-0009-9013-9424"),
        ("zipcode", "4111111111111111"),
        ("email", "4111111111111111@guests.example"),
    ],
)
def test_a_billing_field_of_wrong_form_is_named(name: str, value: object) -> None:
    with pytest.raises(BillingInfoInvalid) as refused:
        parse_billing_info({name: value})
    assert refused.value.message == f"billing_info.{name} is invalid"


@pytest.mark.parametrize("value", [None, {}, {"email": ""}, {"city": "  "}, {"colour": "red"}])
def test_billing_info_in_which_nothing_is_given_is_none(value: object) -> None:
    assert parse_billing_info(value) is None


def test_a_country_may_be_written_in_small_letters() -> None:
    assert parse_billing_info({"country_code": "us"}) == BillingInfo(country_code="US")


@given(st.dictionaries(st.sampled_from(["email", "phone", "zipcode", "country_code"]), anything))
def test_billing_info_is_either_read_or_refused(value: dict[str, object]) -> None:
    with suppress(Refusal):
        parse_billing_info(value)


def test_every_country_is_known() -> None:
    assert len(COUNTRY_CODES) == 249


@pytest.mark.parametrize("number", ["1", "2", "007", "9" * 24, "9" * 4000])
def test_a_page_is_any_number_in_decimal_digits(number: str) -> None:
    assert PageRequest.parse(pages=[number], sizes=[]).page == int(number)


@pytest.mark.parametrize(
    "number",
    ["", "0", "-1", "+5", " 5", "1_000", "1.0", "1e3", "\u0663", "\u0966", "x", "0x1", "0" * 9],
)
def test_other_spellings_of_a_number_are_refused(number: str) -> None:
    with pytest.raises(PageParameterInvalid, match=r"^page must"):
        PageRequest.parse(pages=[number], sizes=[])
    with pytest.raises(PageParameterInvalid, match=r"^size must"):
        PageRequest.parse(pages=[], sizes=[number])


def test_a_number_given_twice_is_refused() -> None:
    with pytest.raises(PageParameterInvalid):
        PageRequest.parse(pages=["1", "1"], sizes=[])


def test_a_page_has_ten_items_unless_said_otherwise_and_a_hundred_at_most() -> None:
    assert PageRequest.parse(pages=[], sizes=[]) == PageRequest(page=1, size=10)
    assert PageRequest.parse(pages=[], sizes=["100"]).size == 100
    for size in ("101", "9" * 24):
        with pytest.raises(TooManyItems):
            PageRequest.parse(pages=[], sizes=[size])


@given(st.text())
def test_a_page_number_is_either_read_or_refused(text: str) -> None:
    with suppress(Refusal):
        assert PageRequest.parse(pages=[text], sizes=[]).page >= 1


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("6F9619FF-8B86-D011-B42D-00CF4FC964FF", "6f9619ff-8b86-d011-b42d-00cf4fc964ff"),
        ("{6f9619ff-8b86-d011-b42d-00cf4fc964ff}", None),
        ("urn:uuid:6f9619ff-8b86-d011-b42d-00cf4fc964ff", None),
        ("6f9619ff8b86d011b42d00cf4fc964ff", None),
        ("6f9619ff-8b86-d011-b42d-00cf4fc964ff\n", None),
        ("6f9619ff-8b86-d011-b42d-00cf4fc964f\u0663", None),
        (7, None),
        (None, None),
    ],
)
def test_a_uuid_has_one_form(value: object, read: str | None) -> None:
    assert plain_uuid(value) == read


@pytest.mark.parametrize(
    ("now", "expired"),
    [
        (datetime(2031, 9, 30, 23, 59, 59, tzinfo=UTC), False),
        (datetime(2031, 10, 1, tzinfo=UTC), True),
        (datetime(2032, 1, 1, tzinfo=UTC), True),
    ],
)
def test_a_card_expires_with_the_last_day_of_its_month(now: datetime, expired: bool) -> None:
    assert a_payment_account(expiry_month=9, expiry_year=2031).has_expired(now) is expired


@pytest.mark.parametrize("minutes", [14, 1441, 0, -1, 10**30])
def test_a_session_lives_from_a_quarter_of_an_hour_to_a_day(minutes: int) -> None:
    with pytest.raises(ValueError, match="15 to 1440"):
        check_session_minutes(minutes)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Zo\u00eb", True),
        ("\u0646\u0627\u200c\u0645\u0647", True),
        ("a\tb", False),
        ("a\x7f", False),
        ("\x9b", False),
        ("abc\u202edef", False),
        ("abc\u2066def", False),
    ],
)
def test_clean_text_has_no_control_characters(text: str, clean: bool) -> None:
    assert is_clean(text) is clean
