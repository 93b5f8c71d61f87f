"""Sign and verify evidence with JSON Web Signatures (RFC 7515) and Ed25519 keys (RFC 8037)."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm
from typing_extensions import override

from domain.disputes.evidence import DisputeEvidence, EvidenceSigner, SignedEvidence

ALGORITHM: Final = "EdDSA"
TYPE: Final = "cardonfile-evidence"
"""The header `typ`. A signature with another `typ` has another purpose, and is refused."""
_MEMBERS: Final = frozenset({"success", "error", "document", "jws"})
"""The members that a text with evidence may have, because the API's response has them.

`success` and `error` are not part of the evidence itself.
"""
_PUBLIC: Final = ("kty", "crv", "x", "kid", "use", "alg")
_PRIVATE: Final = (*_PUBLIC, "d")

Key = Mapping[str, str]


class NotKeys(ValueError):
    """The text is not a JWK Set, or the set does not contain the keys that are needed."""


class NotGenuine(Exception):
    """The evidence was changed, or was not signed with one of the keys.

    The text of the exception states the reason.
    """


class EvidenceKeys(EvidenceSigner):
    """The keys of an installation, newest first. Evidence is signed with the newest key.

    Only the newest key needs a private part. Earlier keys only verify older evidence.
    """

    def __init__(self, text: str) -> None:
        """Read the keys from `text`, a JWK Set in JSON (RFC 7517). Raises NotKeys."""
        self._keys = _keys_of(text)
        if not self._keys or "d" not in self._keys[0]:
            raise NotKeys("the first key has no private part")
        self._private = _usable(self._keys[0])

    @override
    def sign(self, document: DisputeEvidence) -> SignedEvidence:
        headers = {"typ": TYPE, "kid": self._keys[0]["kid"]}
        payload = msgspec.json.encode(document)
        jws = jwt.PyJWS().encode(payload, self._private, algorithm=ALGORITHM, headers=headers)
        return SignedEvidence(document=document, jws=jws, key_id=headers["kid"])

    @override
    def public_keys(self) -> Sequence[Key]:
        return [_only(_PUBLIC, key) for key in self._keys]


def with_new_key(text: str | None) -> str:
    """Create a key for signing evidence, and return a JWK Set in JSON that begins with this key.

    `text` is the previous JWK Set, or None for the first key. The returned set also contains the
    public parts of the previous keys. Raises NotKeys.
    """
    former = [_only(_PUBLIC, key) for key in _keys_of(text)] if text else []
    made = OKPAlgorithm.to_jwk(Ed25519PrivateKey.generate(), as_dict=True)
    new = {**made, "kid": _thumbprint(made), "use": "sig", "alg": ALGORITHM}
    return json.dumps({"keys": [_only(_PRIVATE, new), *former]}, indent=2) + "\n"


class Genuine(NamedTuple):
    """Facts from verified evidence, and the id of the key with which it was signed."""

    made_at: str
    service: str
    account_id: str
    key_id: str


def verify_evidence(text: str, keys: str) -> Genuine:
    """Verify signed evidence, as the API returns it or `cardonfile card evidence` prints it.

    `keys` is a JWK Set in JSON. Raises NotKeys or NotGenuine.
    """
    by_id = {key["kid"]: key for key in _keys_of(keys)}
    try:
        signed = _json_of(text)
        if not signed.keys() <= _MEMBERS:
            raise NotGenuine("it has members that are not signed")
        key_id = jwt.get_unverified_header(signed["jws"])["kid"]
        if key_id not in by_id:
            raise NotGenuine("no key in the file has signed it")
        key = _usable(by_id[key_id])
        found = jwt.PyJWS().decode_complete(signed["jws"], key, [ALGORITHM])
        payload = _json_of(found["payload"])
        is_same = _sorted(payload) == _sorted(signed["document"])
        if found["header"]["typ"] != TYPE or not is_same:
            raise NotGenuine("the signature is for another document")
        account_id = payload["card"]["account_id"]
        return Genuine(payload["made"]["at"], payload["service"], account_id, key_id)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, jwt.PyJWTError):
        raise NotGenuine("it is not signed evidence, or it was changed") from None


def _json_of(text: str | bytes) -> dict[str, Any]:  # Any: values of any JSON type
    """Return the object in a JSON text. Raises ValueError or TypeError if it is not an object.

    Also raises ValueError if a member is repeated, because some programs use the first value of a
    repeated member, and others the last value.
    """

    def members(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:  # values of any JSON type
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError
        return found

    found = json.loads(text, object_pairs_hook=members)
    if not isinstance(found, dict):
        raise TypeError
    return found


def _sorted(value: object) -> str:
    """Return a value as JSON with sorted members, in order to compare two values.

    The values themselves cannot be compared, because 1 and True are equal in Python.
    """
    return json.dumps(value, sort_keys=True)


def _keys_of(text: str) -> Sequence[Key]:
    """Return the Ed25519 keys of a JWK Set, each with its id. Raises NotKeys."""
    try:
        keys = [
            {**key, "kid": _thumbprint(key)}
            for key in json.loads(text)["keys"]
            # RFC 7517, 5, requires that keys of other kinds are ignored.
            if (key.get("kty"), key.get("crv")) == ("OKP", "Ed25519")
        ]
        for key in keys:
            _usable(key)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, jwt.PyJWTError):
        # The cause is left out, because it could quote a private key.
        raise NotKeys("it is not a JWK Set of Ed25519 keys") from None
    return keys


def _usable(key: Key) -> jwt.PyJWK:
    return jwt.PyJWK.from_dict(dict(key), ALGORITHM)


def _only(names: Sequence[str], key: Key) -> Key:
    return {name: key[name] for name in names if name in key}


def _thumbprint(key: Key) -> str:
    """Return the id of a key, computed from its public part (RFC 7638)."""
    members = {name: key[name] for name in ("crv", "kty", "x")}
    digest = sha256(json.dumps(members, separators=(",", ":"), sort_keys=True).encode()).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
