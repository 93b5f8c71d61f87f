from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import Any

import falcon
import http_sf
import pytest
from falcon import testing
from hypothesis import example, given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from typing_extensions import override

from adapters.http.authentication import LINES_A_MINUTE, Authentication
from adapters.http.openapi import OPERATIONS
from adapters.http.rate_limits import RateLimits
from adapters.http.refusal_log import RefusalLog
from adapters.psp_suite.samples import GUEST_ID
from domain.access.token import Identity, TokenState
from domain.errors import TooManyRequests, UserNotAuthenticated
from domain.permissions import Caller
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY, Api, refused
from tests.builders import CENTER_ID, a_caller
from tests.installation import Installation


# Shows S3.
def test_an_access_token_is_accepted_only_in_the_authorization_header(api: Api) -> None:
    result = api.send(
        "GET",
        ACCOUNTS,
        query=f"access_token={api.token}",
        headers={"Cookie": f"access_token={api.token}", "X-Api-Key": api.token},
        authenticated=False,
    )

    assert result.status_code == 401


# Shows F39, S3.
def test_a_revoked_access_token_is_refused_immediately(api: Api) -> None:
    assert api.get(ACCOUNTS).status_code == 200
    api.installation.container.revoke_token()(api.token)

    refusal = api.get(ACCOUNTS)
    assert refusal.status_code == 401
    assert refusal.headers["www-authenticate"] == 'Bearer error="invalid_token"'


# Shows I6, S3.
def test_the_database_stores_only_the_prefix_of_an_access_token(api: Api) -> None:
    api.get(ACCOUNTS)
    for file in api.installation.database.parent.iterdir():
        assert api.token[12:].encode() not in file.read_bytes()
    (kept,) = api.installation.access_tokens()
    assert api.token.startswith(kept.prefix)


# Shows S3.
def test_the_log_shows_the_prefix_of_a_refused_token_with_the_reason(
    installation: Installation,
) -> None:
    container = installation.container
    container.authenticate.add_kwargs(refusal_log=RefusalLog(LINES_A_MINUTE, lambda: 0.0))
    client = installation.client()
    revoked, expired = (installation.token_for(installation.caller) for _ in range(2))
    container.revoke_token()(revoked)
    sent = {
        f"bearer {revoked}": (revoked[:12], "revoked"),
        f"bearer {TOKEN}": (TOKEN[:12], "unknown"),
        "bearer sk_live_of_another_service": (None, "unknown"),
        f"bearer {TOKEN[:20]}": (None, "unknown"),
        f"Basic {TOKEN}": (None, "missing"),
        "": (None, "missing"),
        f"apikey {expired}": (expired[:12], "expired"),
    }
    with capture_logs() as lines:
        for header in sent:
            if expired in header:
                installation.clock.advance(timedelta(hours=24))
            for _ in range(2):
                answer = client.simulate_get(ACCOUNTS, headers={"Authorization": header})
                assert answer.status_code == 401

    refused = [line for line in lines if line["event"] == "authentication_refused"]
    told = [(line["token"], line["reason"]) for line in refused]
    # Each once in a minute, whatever else was sent. Their `repr` is what the log shows as text.
    assert repr(told) == repr(list(dict.fromkeys(sent.values())))
    assert {line["log_level"] for line in refused} == {"warning"}
    for secret in (revoked, expired, TOKEN, TOKEN[4:], "sk_live"):
        assert secret not in repr(lines)


# Shows S3.
def test_using_a_revoked_token_is_logged_even_while_the_callers_address_is_throttled(
    installation: Installation,
) -> None:
    revoked, client = installation.token_for(installation.caller), installation.client()
    installation.container.revoke_token()(revoked)
    for _ in range(31):
        client.simulate_get(ACCOUNTS, remote_addr="203.0.113.9")
    with capture_logs() as lines:
        headers = {"Authorization": f"bearer {revoked}"}
        answer = client.simulate_get(ACCOUNTS, headers=headers, remote_addr="203.0.113.9")

    assert answer.status_code == 429
    said = {line["event"]: line for line in lines}
    refusal = said["authentication_refused"]
    assert (refusal["token"], refusal["reason"]) == (revoked[:12], "revoked")
    assert (refusal["network"], said["request"]["network"]) == ("203.0.113.0/24",) * 2


# Shows S16.
def test_the_limit_for_a_network_address_counts_only_failed_authentications(api: Api) -> None:
    bad = {"Authorization": "bearer wrong"}
    statuses = [api.send("GET", ACCOUNTS, headers=bad).status_code for _ in range(31)]

    assert statuses == [401] * 30 + [429]
    result = api.send("GET", ACCOUNTS, headers=bad)
    assert refused(result) == (429, "Too many requests")
    assert 1 <= int(result.headers["retry-after"]) <= 60
    assert api.get(ACCOUNTS).status_code == 200


@pytest.mark.parametrize(
    ("address", "shares_a_count_with"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("2001:db8::1", "2001:DB8:0:0::2%eth0"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("::FFFF:C633:6407", "0:0:0:0:0:ffff:198.51.100.7"),
        ("4242424242424242", "whatever a proxy forwards"),
    ],
)
def test_all_spellings_of_a_clients_network_address_share_one_limit(
    address: str, shares_a_count_with: str
) -> None:
    limits = RateLimits()
    for _ in range(30):
        limits.count_failed_authentication(address)

    for other in ("198.51.100.8", "::ffff:198.51.100.8", "2001:db8:0:1::1", "::1"):
        limits.count_failed_authentication(other)
    with pytest.raises(TooManyRequests):
        limits.count_failed_authentication(shares_a_count_with)


TOKEN = "cof_6bK8qzn1IopDD5IZcgb2jemnwnjM32xRq8NujqkHaNw"
PARTS = st.sampled_from(
    (f"bearer {TOKEN}", "bearer ", "Bearer", "basic", "er", TOKEN, TOKEN[:-1], " ", "\t", ",", "=")
)


class OneToken(Identity):
    """Knows one token."""

    @override
    def authenticate(self, token: str) -> Caller | TokenState:
        return a_caller() if token == TOKEN else TokenState.UNKNOWN


# Shows S3.
@example(["BEARER  ", TOKEN])
@example(["apikey ", TOKEN])
@example(["apikeybearer ", TOKEN])
@example(["bearer\u00a0", TOKEN])
@example(["Token ", TOKEN])
@example(["bearer ", TOKEN, "x"])
@example([TOKEN])
@given(st.lists(PARTS | st.text(st.characters(codec="latin-1"), max_size=3), max_size=5))
def test_only_a_well_formed_authorization_header_is_accepted(parts: list[str]) -> None:
    header = "".join(parts)
    authenticate = Authentication(identity=OneToken(), limits=RateLimits())
    request = testing.create_req(headers={"Authorization": header})

    word, _, rest = header.strip().partition(" ")
    if word.lower() in ("bearer", "apikey") and rest.lstrip(" ") == TOKEN:
        assert authenticate(request, falcon.Response()) == a_caller()
    else:
        with pytest.raises(UserNotAuthenticated):
            authenticate(request, falcon.Response())


# Shows S16.
@pytest.mark.installed(CARDONFILE_WRITE_LIMIT="2/day")
def test_the_write_limit_counts_every_write_request_from_a_caller(api: Api) -> None:
    other = Api(api.installation, a_caller(centers=None))
    client, headers = api.client, {"Authorization": f"bearer {api.token}"}
    # A refused write counts too, and so does one under /v1.
    assert client.simulate_put("/v1/guests/x", headers=headers).status_code == 415
    assert api.post(GOOD_BODY).status_code == 200

    known = {"guest_id": GUEST_ID, "center_id": CENTER_ID}
    operations = [operation for operation in OPERATIONS if operation.calls is not None]
    writes = [operation for operation in operations if operation.method != "get"]
    assert len(writes) >= 6
    for operation in writes:
        path = operation.path.format_map(defaultdict(lambda: "x", known))
        method = operation.method.upper()
        result = api.send(method, path)
        assert (method, path, result.status_code) == (method, path, 429)
        assert 1 <= int(result.headers["retry-after"]) <= 24 * 3600
        without_api = path.removeprefix("/api")
        assert client.simulate_request(method, without_api, headers=headers).status_code == 429
    for operation in operations:
        if operation.method == "get":
            path = operation.path.format_map(defaultdict(lambda: "x", known))
            assert api.get(path).status_code != 429
    assert other.post(GOOD_BODY).status_code == 200


@pytest.mark.installed(CARDONFILE_WRITE_LIMIT="3/hour", CARDONFILE_CARD_TESTING_LIMITS="guest=1/10")
def test_responses_to_write_requests_state_how_many_writes_are_left(api: Api) -> None:
    other = Api(api.installation, a_caller(centers=None))
    results = [api.post(GOOD_BODY) for _ in range(4)]

    # The second is refused by a limit against card testing, about which nothing is said.
    assert [result.status_code for result in results] == [200, 429, 429, 429]
    policies = [rate_limit(result, "ratelimit-policy") for result in results]
    assert policies == [[("writes", {"q": 3, "w": 3600})]] * 4
    (*_, last) = left = [rate_limit(result, "ratelimit")[0] for result in results]
    assert [(name, quota["r"]) for name, quota in left] == [("writes", r) for r in (2, 1, 0, 0)]
    assert all(1 <= quota["t"] <= 3600 for _, quota in left)
    assert results[-1].headers["retry-after"] == str(last[1]["t"])
    unread = (api.get(ACCOUNTS), api.send("POST", ACCOUNTS, authenticated=False))
    assert all("ratelimit" not in result.headers for result in unread)
    assert rate_limit(other.post(GOOD_BODY), "ratelimit")[0][1]["r"] == 2


def rate_limit(result: testing.Result, name: str) -> Any:  # Any: as the parser returns it
    return http_sf.parse(result.headers[name].encode(), tltype="list")
