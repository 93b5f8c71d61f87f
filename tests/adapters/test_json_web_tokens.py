from __future__ import annotations

import base64
import hmac
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from falcon import testing
from structlog.testing import capture_logs

from adapters import json_web_tokens
from adapters.json_web_tokens import (
    FRESH_SECONDS,
    KEPT_SECONDS,
    LEEWAY_SECONDS,
    MAX_KEYS_BYTES,
    PAUSE_SECONDS,
    JsonWebTokens,
    SigningKeys,
)
from domain.access.token import Identity
from domain.errors import ServiceUnavailable
from domain.permissions import Caller, Permission
from tests.adapters.http.api import ACCOUNTS
from tests.builders import CENTER_ID
from tests.identity_provider import (
    AUDIENCE,
    ISSUER,
    IdentityProvider,
    ec_key,
    identity_provider,
    public,
    rsa_key,
)
from tests.installation import Installation
from tests.listening import Act, Handler, break_off, fall_silent, responding
from tests.waiting import LIMIT_SECONDS, wait_until

SOON = 60
HURRIED_SECONDS = 0.2


class Realm:
    """An identity provider, and a process that trusts its tokens, with a clock of its own."""

    def __init__(self, provider: IdentityProvider) -> None:
        self.provider, self.server = provider, provider.server
        self.now = 1000.0
        self.trust()

    def trust(
        self,
        caller_claim: str = "sub",
        permissions_claim: str = "permissions",
        centers_claim: str | None = None,
        token_type: str | None = None,
    ) -> None:
        """Make the process read these claims."""
        self.identity: Identity = JsonWebTokens(
            issuer=ISSUER,
            audience=AUDIENCE,
            keys=SigningKeys(f"{self.server.url}/certs", now=lambda: self.now),
            caller_claim=caller_claim,
            permissions_claim=permissions_claim,
            centers_claim=centers_claim,
            token_type=token_type,
        )

    # Any: the claims and the options of IdentityProvider.token.
    def enter(self, claims: Any = None, **options: Any) -> Caller | str:
        """Authenticate with a token. Return the caller, or why the token is refused."""
        return self.identity.authenticate(self.provider.token(claims, **options))

    def caller(self, claims: Any = None, **options: Any) -> Caller:
        """Authenticate with a token that must be accepted."""
        caller = self.enter(claims, **options)
        assert isinstance(caller, Caller)
        return caller


@pytest.fixture
def realm() -> Iterator[Realm]:
    with identity_provider() as provider:
        yield Realm(provider)


def second() -> Any:  # options of Realm.enter
    """Return the options of a token that is signed with the second key."""
    return {"key": rsa_key(1), "key_id": "second"}


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def unsigned(provider: IdentityProvider) -> str:
    _, claims, _ = provider.token().split(".")
    header = encoded(json.dumps({"alg": "none", "kid": "first"}).encode())
    return f"{header}.{claims}."


def signed_with_hmac(provider: IdentityProvider, *, key_id: str, secret: bytes) -> str:
    _, claims, _ = provider.token().split(".")
    header = encoded(json.dumps({"alg": "HS256", "kid": key_id}).encode())
    signature = hmac.digest(secret, f"{header}.{claims}".encode(), "sha256")
    return f"{header}.{claims}.{encoded(signature)}"


class TestRefusedTokens:
    @pytest.mark.parametrize(
        ("claims", "why"),
        [
            ({"aud": "another-service"}, "wrong audience"),
            ({"aud": ["another-service", "cardonfile2"]}, "wrong audience"),
            ({"iss": ISSUER + "/"}, "wrong issuer"),
            *(({claim: None}, "claim missing") for claim in ("iss", "aud", "exp")),
        ],
    )
    def test_a_token_for_another_audience_or_issuer_is_refused(
        self, realm: Realm, claims: object, why: str
    ) -> None:
        assert realm.enter(claims) == why

    def test_a_json_web_token_outside_its_validity_period_is_refused(self, realm: Realm) -> None:
        now = int(time.time())
        far = LEEWAY_SECONDS + SOON
        assert realm.enter({"exp": now - far}) == "expired"
        assert realm.enter({"nbf": now + far}) == "not yet valid"
        realm.caller({"exp": now - LEEWAY_SECONDS + 10, "nbf": now + LEEWAY_SECONDS - 10})

    # RFC 8725, 2.1.
    def test_an_unsigned_json_web_token_is_refused(self, realm: Realm) -> None:
        assert realm.identity.authenticate(unsigned(realm.provider)) == "wrong algorithm"

    # RFC 8725, 2.1.
    def test_a_token_signed_with_the_public_key_as_a_secret_is_refused(self, realm: Realm) -> None:
        pem = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        shared = {"kty": "oct", "k": encoded(pem), "kid": "shared"}
        realm.provider.publish(public("first", rsa_key()), shared)
        for key_id, why in (("first", "wrong algorithm"), ("shared", "unknown key")):
            token = signed_with_hmac(realm.provider, key_id=key_id, secret=pem)
            assert realm.identity.authenticate(token) == why

    def test_a_token_signed_with_a_key_for_another_use_is_refused(self, realm: Realm) -> None:
        realm.provider.publish(
            public("first", rsa_key()) | {"use": "enc"},
            public("second", rsa_key(1)),
            {"kty": "RSA", "n": 5, "e": "AQAB", "kid": "broken"},
            public("third", rsa_key()) | {"kid": ["first"]},
        )
        assert realm.enter() == "unknown key"
        realm.caller(**second())

    @pytest.mark.parametrize(
        "header",
        [
            b"[" * 8_000,
            b'{"kid": "first", "alg": ["RS256"]}',
            b'{"kid": "first", "alg": "RS256", "crit": ["x"], "x": 1}',
            b'{"kid": "first", "alg": "RS256", "jku": "https://elsewhere.example/keys"}',
            b'{"kid": "first", "alg": "RS256", "x": ' + b"1" * 5_000 + b"}",
            b"\xff",
        ],
    )
    def test_a_json_web_token_with_a_malformed_or_forged_header_is_refused(
        self, realm: Realm, header: bytes
    ) -> None:
        _, claims, signature = realm.provider.token().split(".")
        why = realm.identity.authenticate(f"{encoded(header)}.{claims}.{signature}")
        assert why in ("malformed", "wrong algorithm", "wrong signature", "unknown key")

    def test_a_token_signed_with_another_key_is_refused(self, realm: Realm) -> None:
        assert realm.enter(key=rsa_key(1)) == "wrong signature"
        for key_id in ("other", None):
            assert realm.enter(key=rsa_key(1), key_id=key_id) == "unknown key"

    # RFC 7518, 3.3.
    @pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
    def test_a_json_web_token_signed_with_a_weak_key_is_refused(self, realm: Realm) -> None:
        weak = rsa_key(bits=1024)
        realm.provider.publish(public("weak", weak), public("first", rsa_key()))
        assert realm.enter(key=weak, key_id="weak") == "unknown key"
        realm.caller()

    # RFC 8725, 3.11; OpenID Connect Back-Channel Logout 1.0, 2.4; Keycloak's claim.
    @pytest.mark.parametrize(
        ("token_type", "claim"),
        [
            ("logout+jwt", None),
            ("ID", None),
            *(("JWT", claim) for claim in ("ID", "Refresh", 7)),
        ],
    )
    def test_a_token_for_another_purpose_is_refused(
        self, realm: Realm, token_type: str, claim: object
    ) -> None:
        assert realm.enter({"typ": claim}, token_type=token_type) == "wrong type"

    # RFC 9068, 4.
    def test_a_json_web_token_without_the_required_type_is_refused(self, realm: Realm) -> None:
        for token_type in (None, "JWT", "at+JWT", "application/at+jwt"):
            realm.caller({"typ": "Bearer"}, token_type=token_type)
        realm.trust(token_type="at+jwt")
        for token_type in (None, "JWT"):
            assert realm.enter(token_type=token_type) == "wrong type"
        for token_type in ("at+JWT", "application/at+jwt"):
            realm.caller(token_type=token_type)

    @pytest.mark.parametrize("caller", [None, "", 7, "x" * 97, "a\nb"])
    def test_a_json_web_token_without_a_valid_caller_name_is_refused(
        self, realm: Realm, caller: object
    ) -> None:
        realm.trust(caller_claim="client_id")
        assert realm.enter({"client_id": caller}) == "no usable caller"


class TestCaller:
    @pytest.mark.parametrize(
        ("claim", "claims"),
        [
            ("permissions", {"permissions": ["guests:add", "guests:view", "admin", 7]}),
            ("scope", {"scope": "openid guests:add guests:view"}),
            (
                "resource_access.cardonfile.roles",
                {"resource_access": {"cardonfile": {"roles": ["guests:view", "guests:add"]}}},
            ),
            (
                "https://spa.example/permissions",
                {"https://spa.example/permissions": ["guests:add", "guests:view"]},
            ),
        ],
    )
    def test_a_caller_has_the_permissions_named_in_the_configured_claim(
        self, realm: Realm, claim: str, claims: dict[str, object]
    ) -> None:
        realm.trust(permissions_claim=claim)
        caller = realm.caller(claims)

        assert caller.permissions == {Permission.GUESTS_ADD, Permission.GUESTS_VIEW}
        # A caller of the same name may have an access token.
        assert caller.name == "jwt:web-shop"
        assert caller.centers is None

    @pytest.mark.parametrize("value", [None, 7, {"guests:add": True}, [["guests:add"]], "guests"])
    def test_a_caller_without_the_permissions_claim_has_no_permission(
        self, realm: Realm, value: object
    ) -> None:
        assert realm.caller({"permissions": value}).permissions == frozenset()

    def test_a_caller_acts_only_for_centers_named_in_the_claim(self, realm: Realm) -> None:
        realm.trust(centers_claim="centers")
        for value in (None, [], "", ["not-a-uuid"], 7, {"*": True}):
            assert realm.caller({"centers": value}).centers == frozenset()
        assert realm.caller({"centers": [CENTER_ID.upper(), 7]}).centers == frozenset({CENTER_ID})

    def test_a_token_signed_on_an_elliptic_curve_is_accepted(self, realm: Realm) -> None:
        realm.provider.publish({"kty": "unknown"}, public("curve", ec_key()))

        realm.caller(key=ec_key(), key_id="curve", algorithm="ES256")


class TestKeys:
    def test_the_keys_of_the_identity_provider_are_fetched_only_once_while_they_are_fresh(
        self, realm: Realm
    ) -> None:
        token = realm.provider.token()
        with ThreadPoolExecutor(8) as threads:
            callers = list(threads.map(realm.identity.authenticate, [token] * 64))
        assert all(isinstance(caller, Caller) for caller in callers)
        assert len(realm.server.requests) == 1
        realm.now += FRESH_SECONDS
        realm.identity.authenticate(token)
        assert len(realm.server.requests) == 2

    def test_a_new_key_from_the_identity_provider_is_used_immediately(self, realm: Realm) -> None:
        realm.enter()
        realm.now += PAUSE_SECONDS
        realm.provider.publish(public("first", rsa_key()), public("second", rsa_key(1)))

        realm.caller(**second())
        realm.caller()

    def test_a_key_that_the_identity_provider_withdrew_is_refused_when_the_cache_is_stale(
        self, realm: Realm
    ) -> None:
        realm.enter()
        realm.provider.publish(public("second", rsa_key(1)))
        realm.now += FRESH_SECONDS

        assert realm.enter() == "unknown key"

    def test_tokens_with_unknown_key_ids_cause_few_requests_for_keys(self, realm: Realm) -> None:
        for number in range(50):
            assert realm.enter(key=rsa_key(1), key_id=f"invented-{number}") == "unknown key"
        assert len(realm.server.requests) == 1

    @pytest.mark.parametrize(
        "act",
        [
            fall_silent,
            break_off,
            responding(500, json.dumps({"keys": [public("second", rsa_key(1))]}).encode()),
            responding(302, Location="https://elsewhere.example/"),
            responding(200, b"[]"),
            responding(200, b'{"keys": []}'),
            responding(200, b" " * (MAX_KEYS_BYTES + 100_000)),
        ],
    )
    def test_cached_keys_are_used_for_a_day_if_they_cannot_be_fetched(
        self, realm: Realm, act: Act, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        realm.enter()
        realm.server.acts[:] = [act]
        realm.now += FRESH_SECONDS
        if act is fall_silent:
            monkeypatch.setattr(json_web_tokens, "FETCH_SECONDS", HURRIED_SECONDS)
        with capture_logs() as lines:
            realm.caller()
            with pytest.raises(ServiceUnavailable):
                realm.enter(**second())
        (line,) = lines
        assert (line["event"], line["log_level"]) == ("identity_provider_away", "error")

        realm.now += KEPT_SECONDS
        with capture_logs() as lines, pytest.raises(ServiceUnavailable):
            realm.enter()
        assert lines == []
        monkeypatch.undo()
        realm.provider.publish(public("first", rsa_key()))
        realm.now += PAUSE_SECONDS
        with capture_logs() as lines:
            realm.caller()
        assert [line["event"] for line in lines] == ["identity_provider_back"]

    def test_only_one_request_waits_for_keys_while_the_identity_provider_is_unavailable(
        self, realm: Realm
    ) -> None:
        realm.server.acts[:] = [break_off]
        with pytest.raises(ServiceUnavailable):
            realm.enter()
        realm.now += PAUSE_SECONDS
        answers = threading.Event()

        def wait(handler: Handler) -> None:
            answers.wait(LIMIT_SECONDS)
            handler.hang_up()

        realm.server.acts[:] = [wait]
        with ThreadPoolExecutor(1) as threads:
            fetching = threads.submit(realm.enter)
            wait_until(lambda: len(realm.server.requests) == 2)
            with pytest.raises(ServiceUnavailable):
                realm.enter()
            assert not fetching.done()
            answers.set()
            with pytest.raises(ServiceUnavailable):
                fetching.result()

    def test_requests_do_not_wait_for_keys_when_the_dns_resolver_hangs(
        self, realm: Realm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers = threading.Event()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers.wait(LIMIT_SECONDS))
        monkeypatch.setattr(json_web_tokens, "FETCH_SECONDS", HURRIED_SECONDS)
        with capture_logs() as lines, pytest.raises(ServiceUnavailable):
            realm.enter()
        answers.set()
        assert lines[0]["reason"] == "no response in time"

    def test_known_keys_are_used_while_another_request_fetches_keys(self, realm: Realm) -> None:
        realm.enter()
        answers = threading.Event()
        waited: list[bool] = []

        def wait(handler: Handler) -> None:
            waited.append(answers.wait(LIMIT_SECONDS))
            handler.hang_up()

        realm.server.acts[:] = [wait]
        realm.now += FRESH_SECONDS
        with ThreadPoolExecutor(1) as threads:
            fetching = threads.submit(realm.enter)
            wait_until(lambda: len(realm.server.requests) == 2)
            realm.caller()
            assert not waited
            answers.set()
        assert isinstance(fetching.result(), Caller)


class TestService:
    @pytest.fixture
    def installation(self, tmp_path: Path, realm: Realm) -> Iterator[Installation]:
        installation = realm.provider.installation(tmp_path)
        yield installation
        installation.close()

    def status(self, client: testing.TestClient, token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return client.simulate_get(ACCOUNTS, headers=headers).status_code

    def test_the_service_accepts_its_own_access_tokens_as_well_as_json_web_tokens(
        self, installation: Installation, realm: Realm
    ) -> None:
        client = installation.client()
        claims = {"permissions": ["guests:view"]}

        assert self.status(client, realm.provider.token(claims)) == 200
        assert self.status(client, installation.token_for(installation.caller)) == 200
        assert self.status(client, realm.provider.token()) == 403

    def test_the_service_logs_why_a_token_was_refused_but_not_the_token(
        self, installation: Installation, realm: Realm
    ) -> None:
        client = installation.client()
        token = realm.provider.token({"aud": "another-service", "email": "ada@example.com"})
        with capture_logs() as lines:
            assert self.status(client, token) == 401
            assert self.status(client, unsigned(realm.provider)) == 401
        refused = [line for line in lines if line["event"] == "authentication_refused"]
        assert [line["reason"] for line in refused] == ["wrong audience", "wrong algorithm"]
        assert not any(part in repr(lines) for part in token.split("."))

    def test_only_json_web_tokens_are_refused_while_keys_cannot_be_fetched(
        self, installation: Installation, realm: Realm
    ) -> None:
        realm.server.acts[:] = [break_off]
        client = installation.client()

        assert self.status(client, realm.provider.token()) == 503
        assert self.status(client, installation.token_for(installation.caller)) == 200
