from __future__ import annotations

from datetime import timedelta

import pytest
from falcon import testing
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from adapters.http.authentication import Authentication
from adapters.http.rate_limits import RateLimits
from domain.errors import TooManyRequests, UserNotAuthenticated
from domain.permissions import Caller
from domain.ports import Identity
from tests.adapters.http.api import ACCOUNTS, PRODUCTS, Api, refused, refused_bare
from tests.builders import a_caller
from tests.installation import Installation


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "bearer",
        "bearer ",
        "bearer not-a-token",
        "basic dXNlcjpwYXNz",
        "Token {token}",
        "bearer {token} x",
        "bearer {token}, bearer {token}",
        "bearer\u00a0{token}",
        "{token}",
        "bearer {token}x",
    ],
)
def test_without_a_good_token_nobody_is_let_in(api: Api, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header.format(token=api.token)}

    for path in (ACCOUNTS, f"{ACCOUNTS}/x", f"{ACCOUNTS}/sessions/x"):
        result = api.send("GET", path, headers=headers, authenticated=False)
        assert refused(result) == (401, "User not authenticated")
        assert result.headers["www-authenticate"] == "Bearer"
    result = api.send("GET", PRODUCTS, headers=headers, authenticated=False)
    assert refused_bare(result) == (401, "User not authenticated")


@pytest.mark.parametrize("scheme", ["bearer", "Bearer", "BEARER", "bearer  "])
def test_the_scheme_is_compared_without_case(api: Api, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} {api.token}"}

    assert api.send("GET", ACCOUNTS, headers=headers).status_code == 200


def test_a_token_is_taken_from_no_other_place(api: Api) -> None:
    result = api.send(
        "GET",
        ACCOUNTS,
        query=f"access_token={api.token}",
        headers={"Cookie": f"access_token={api.token}", "X-Api-Key": api.token},
        authenticated=False,
    )

    assert result.status_code == 401


def test_an_expired_token_is_refused(api: Api) -> None:
    api.installation.clock.advance(timedelta(hours=24))

    assert api.get(ACCOUNTS).status_code == 401


def test_a_revoked_token_is_refused_from_the_next_request_on(api: Api) -> None:
    assert api.get(ACCOUNTS).status_code == 200
    api.installation.container.identity().revoke(api.token)

    assert api.get(ACCOUNTS).status_code == 401


def test_of_a_token_only_its_hash_and_beginning_are_kept(api: Api) -> None:
    api.get(ACCOUNTS)
    for file in api.installation.database.parent.iterdir():
        assert api.token[12:].encode() not in file.read_bytes()
    (kept,) = api.installation.access_tokens()
    assert api.token.startswith(kept.prefix)


def test_failures_are_limited_per_address_and_good_tokens_are_not(
    installation: Installation,
) -> None:
    api = Api(installation)
    bad = {"Authorization": "bearer wrong"}
    answers = [api.send("GET", ACCOUNTS, headers=bad).status_code for _ in range(31)]

    assert answers == [401] * 30 + [429]
    result = api.send("GET", ACCOUNTS, headers=bad)
    assert refused(result) == (429, "Too many requests")
    assert 1 <= int(result.headers["retry-after"]) <= 60
    assert api.get(ACCOUNTS).status_code == 200


@pytest.mark.parametrize(
    ("address", "shares_a_count_with"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("2001:db8::1", "2001:db8::ffff:2"),
        ("2001:db8::1", "2001:DB8:0:0::2%eth0"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("::FFFF:C633:6407", "0:0:0:0:0:ffff:198.51.100.7"),
        ("4242424242424242", "whatever a proxy forwards"),
    ],
)
def test_failures_are_counted_for_whoever_may_be_the_same(
    address: str, shares_a_count_with: str
) -> None:
    limits = RateLimits()
    for _ in range(30):
        limits.count_failed_authentication(address)

    limits.count_failed_authentication("198.51.100.8")
    limits.count_failed_authentication("::ffff:198.51.100.8")
    limits.count_failed_authentication("2001:db8:0:1::1")
    limits.count_failed_authentication("::1")
    with pytest.raises(TooManyRequests):
        limits.count_failed_authentication(shares_a_count_with)


class OneToken(Identity):
    """Knows one token."""

    TOKEN = "cof_6bK8qzn1IopDD5IZcgb2jemnwnjM32xRq8NujqkHaNw"

    @override
    def authenticate(self, token: str) -> Caller | None:
        return a_caller() if token == self.TOKEN else None


PARTS = st.sampled_from(
    (
        *("bearer", "Bearer", "BEARER", "basic", "bear", "er", OneToken.TOKEN, OneToken.TOKEN[:-1]),
        *(
            " ",
            "  ",
            "\t",
            ",",
            "=",
            "\u00a0",
            "\x0b",
            "\x00",
            "x",
            "bearer ",
            f"bearer {OneToken.TOKEN}",
        ),
    )
)


@given(st.lists(PARTS | st.text(st.characters(codec="latin-1"), max_size=3), max_size=5))
def test_a_header_lets_in_if_and_only_if_it_is_the_word_and_the_token(parts: list[str]) -> None:
    header = "".join(parts)
    authenticate = Authentication(identity=OneToken(), limits=RateLimits())
    request = testing.create_req(headers={"Authorization": header})

    word, _, rest = header.strip().partition(" ")
    if word.lower() == "bearer" and rest.lstrip(" ") == OneToken.TOKEN:
        assert authenticate(request) == a_caller()
    else:
        with pytest.raises(UserNotAuthenticated):
            authenticate(request)
