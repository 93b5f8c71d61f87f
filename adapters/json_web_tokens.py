"""Authentication by the access tokens of a company's identity provider.

These are signed JSON Web Tokens (RFC 7519).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from typing_extensions import override

from adapters.outbound_http import Connection, begin, look_up, reason_of
from domain.access.issue_token import MAX_CALLER_LENGTH, PROVIDED_CALLER_PREFIX
from domain.access.token import Identity, TokenState
from domain.errors import InvalidField, ServiceUnavailable
from domain.fields import parse_line
from domain.identifiers import CallerName, CenterId, plain_uuid
from domain.permissions import Caller, Permission

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""The accepted algorithms. All of them sign with a private key.

HS256 is excluded, because anybody could forge such a signature with the public key (RFC 8725, 2.1).
"""
LEEWAY_SECONDS: Final = 30
"""By how much the identity provider's clock may differ from the clock of this machine."""
ACCESS_TOKEN_TYPES: Final = frozenset({"jwt", "at+jwt"})
"""The allowed values of an access token's header `typ`. The header may also be missing.

RFC 9068 defines `at+jwt` for access tokens. The value `jwt` does not state the token's purpose.
"""
BEARER: Final = "bearer"
"""The claim `typ` of Keycloak's access tokens.

In Keycloak's other tokens, this claim is `ID`, `Refresh`, `Offline` or `Logout`.
"""
MIN_RSA_BITS: Final = 2048
"""The minimum length of an RSA key (RFC 7518, section 3.3)."""
ALL_CENTERS: Final = "*"
"""A caller may act for all centers if the claim of centers contains this value."""

FETCH_SECONDS: Final = 2
MAX_KEYS_BYTES: Final = 256 * 1024
FRESH_SECONDS: Final = 600
"""How long keys are used before they are fetched again.

If the identity provider withdraws a key, tokens signed with it are accepted until then.
"""
PAUSE_SECONDS: Final = 10
"""The minimum time between two fetches, because a client may send tokens with invented keys."""
NO_KEYS: Final = "not a set of keys"
KEPT_SECONDS: Final = 24 * 3600
"""How long keys are used after they were last fetched, if they cannot be fetched again."""

log = structlog.get_logger()

# The first match counts.
_REASONS: Final = (
    (jwt.ExpiredSignatureError, str(TokenState.EXPIRED)),
    (jwt.ImmatureSignatureError, "not yet valid"),
    (jwt.InvalidAudienceError, "wrong audience"),
    (jwt.InvalidIssuerError, "wrong issuer"),
    (jwt.InvalidAlgorithmError, "wrong algorithm"),
    (jwt.InvalidSignatureError, "wrong signature"),
    (jwt.MissingRequiredClaimError, "claim missing"),
    (jwt.InvalidTokenError, "malformed"),
)


class KeysUnreachable(Exception):
    """The identity provider's keys cannot be fetched.

    The text of the exception states the reason, for operators.
    """


class SigningKeys:
    """The public keys that an identity provider publishes at an address (RFC 7517).

    The keys are fetched when they are first needed. They are fetched again if they are older than
    10 minutes, or if a token names an unknown key. If a fetch fails, the known keys are used for up
    to a day. `now` returns the time in seconds. Any thread may call the methods.
    """

    def __init__(self, url: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._now = now
        self._lock = threading.Lock()
        self._keys: Mapping[str, jwt.PyJWK] = MappingProxyType({})
        self._fetched_at = self._tried_at = float("-inf")
        self._is_away = False

    def find(self, key_id: str) -> jwt.PyJWK | None:
        """Return the key with this id, or None if the identity provider has no such key.

        Takes at most 2 seconds. Raises ServiceUnavailable if no such key is known and the keys
        cannot be fetched at the moment.
        """
        key = self._keys.get(key_id)
        if key is not None and self._now() - self._fetched_at < FRESH_SECONDS:
            return key
        # A request with a known key does not wait for another request that fetches the keys.
        # While the provider is unavailable, requests do not wait.
        if self._lock.acquire(blocking=key is None and not self._is_away):
            try:
                if self._now() - self._tried_at >= PAUSE_SECONDS:
                    self._refresh()
            finally:
                self._lock.release()
        key = self._keys.get(key_id)
        if key is None and self._is_away:
            raise ServiceUnavailable from KeysUnreachable("the keys of CARDONFILE_JWT_KEYS")
        return key

    def _refresh(self) -> None:
        self._tried_at = self._now()
        try:
            self._keys = self.fetch()
        except KeysUnreachable as error:
            if not self._is_away:
                log.error(
                    "identity_provider_away",
                    reason=str(error),
                    do="check that this machine can read CARDONFILE_JWT_KEYS; tokens issued here "
                    "still work",
                )
            self._is_away = True
            if self._tried_at - self._fetched_at >= KEPT_SECONDS:
                self._keys = MappingProxyType({})
            return
        self._fetched_at = self._tried_at
        if self._is_away:
            log.warning("identity_provider_back")
        self._is_away = False

    def fetch(self) -> Mapping[str, jwt.PyJWK]:
        """Fetch the published keys, and return them by their ids. Raises KeysUnreachable."""
        target = urlsplit(self._url).path or "/"
        try:
            with Connection(
                self._url,
                total_seconds=FETCH_SECONDS,
                connect_seconds=FETCH_SECONDS,
                max_body_bytes=MAX_KEYS_BYTES,
                # The system's resolver does not have a time limit.
                look_up=lambda *host: begin(lambda: look_up(*host)).result(FETCH_SECONDS),
            ) as connection:
                response = connection.request("GET", target, {"accept": "application/json"}, None)
                body = response.read()
            if response.status != HTTPStatus.OK:
                raise KeysUnreachable(f"status {response.status}")
            document = json.loads(body)
            if not isinstance(document, dict):
                raise KeysUnreachable(NO_KEYS)
            # RFC 7517, 5, requires that keys of unknown kinds are ignored.
            keys = filter(_may_sign, jwt.PyJWKSet.from_dict(document))
            return {str(key.key_id): key for key in keys}
        except (OSError, HTTPException) as error:
            raise KeysUnreachable(reason_of(error)) from None
        except (ValueError, RecursionError, jwt.PyJWTError):
            raise KeysUnreachable(NO_KEYS) from None


def _may_sign(key: jwt.PyJWK) -> bool:
    """Return whether a key has an id, is meant for signatures, and is strong enough for them."""
    is_named = isinstance(key.key_id, str)
    is_strong = not isinstance(key.key, RSAPublicKey) or key.key.key_size >= MIN_RSA_BITS
    is_for_signatures = key.algorithm_name in ALGORITHMS and key.public_key_use in (None, "sig")
    return is_named and is_strong and is_for_signatures


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonWebTokens(Identity):
    """Recognizes callers by the tokens of an identity provider.

    A token must be an access token that is signed with one of the `keys`, is issued by `issuer` for
    `audience`, and expires. If `token_type` is set, the token's header `typ` must be equal to
    `token_type`.

    `caller_claim`, `permissions_claim` and `centers_claim` name the claims that contain the
    caller's name, permissions and centers. The name of a nested claim consists of all its keys,
    joined by dots. Unknown permissions are ignored. If `centers_claim` is set, a caller without
    that claim may not act for any center.
    """

    issuer: str
    audience: str
    keys: SigningKeys
    caller_claim: str
    permissions_claim: str
    centers_claim: str | None
    token_type: str | None = None

    @override
    def authenticate(self, token: str) -> Caller | str:
        try:
            header = jwt.get_unverified_header(token)
            key = self.keys.find(str(header.get("kid")))
            if key is None:
                return "unknown key"
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                issuer=self.issuer,
                audience=self.audience,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            return next((why for kind, why in _REASONS if isinstance(error, kind)), "malformed")
        return self._caller(claims) if self._is_access_token(header, claims) else "wrong type"

    # Any: the types of the values are checked here.
    def _is_access_token(self, header: Mapping[str, Any], claims: Mapping[str, Any]) -> bool:
        # A token for another purpose must not count as an access token (RFC 8725, 3.11).
        named, claimed = header.get("typ"), claims.get("typ")
        if claimed is not None and str(claimed).lower() != BEARER:
            return False
        # The prefix may be left out (RFC 7515, 4.1.9).
        media_type = None if named is None else str(named).lower().removeprefix("application/")
        if self.token_type is not None:
            return media_type == self.token_type.lower()
        return media_type is None or media_type in ACCESS_TOKEN_TYPES

    # Any: the types of the values are checked here.
    def _caller(self, claims: Mapping[str, Any]) -> Caller | str:
        name = _claim(claims, self.caller_claim)
        try:
            # Callers without a name would share their limits and sessions.
            caller = parse_line(
                "caller",
                f"{PROVIDED_CALLER_PREFIX}{name}"
                if isinstance(name, str) and name.strip()
                else None,
                max_length=MAX_CALLER_LENGTH,
            )
        except InvalidField:
            return "no usable caller"
        named = _words(_claim(claims, self.permissions_claim))
        return Caller(
            name=CallerName(caller),
            permissions=frozenset(permission for permission in Permission if permission in named),
            centers=self._centers(claims),
        )

    def _centers(self, claims: Mapping[str, Any]) -> frozenset[CenterId] | None:
        if self.centers_claim is None:
            return None
        named = _words(_claim(claims, self.centers_claim))
        if ALL_CENTERS in named:
            return None
        return frozenset(CenterId(center) for center in map(plain_uuid, named) if center)


@dataclass(frozen=True, slots=True, kw_only=True)
class EitherIdentity(Identity):
    """Recognizes callers by opaque tokens and by JSON Web Tokens.

    A token with exactly two dots is treated as a JSON Web Token.
    """

    opaque: Identity
    json_web: Identity

    @override
    def authenticate(self, token: str) -> Caller | str:
        identity = self.json_web if token.count(".") == 2 else self.opaque
        return identity.authenticate(token)


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return the value of the claim `name`, or None if there is no such claim.

    Dots separate the keys of a nested claim. A single key, such as a URL, may also contain dots.
    """
    if name in claims:
        return claims[name]
    first, _, rest = name.partition(".")
    inner = claims.get(first)
    return _claim(inner, rest) if rest and isinstance(inner, dict) else None


def _words(value: Any) -> frozenset[str]:
    """Return the words in the value of a claim.

    The value is a list of words, or a text in which spaces separate the words (RFC 8693, 4.2). Any
    other value contains no words.
    """
    words = value.split() if isinstance(value, str) else value
    return frozenset(
        word for word in (words if isinstance(words, list) else ()) if isinstance(word, str)
    )
