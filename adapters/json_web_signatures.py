"""Signatures of evidence: JSON Web Signatures (RFC 7515) with Ed25519 keys (RFC 8037)."""

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
"""The header `typ`, so that a signature for another purpose does not count as evidence."""
_MEMBERS: Final = frozenset({"success", "error", "document", "jws"})
"""The members of the API's response. The first two say nothing about the evidence."""
_PUBLIC: Final = ("kty", "crv", "x", "kid", "use", "alg")
_PRIVATE: Final = (*_PUBLIC, "d")

Key = Mapping[str, str]


class NotKeys(ValueError):
    """The text is not a JWK Set with the keys that are needed."""


class NotGenuine(Exception):
    """The evidence was not signed by one of the keys, or was changed. The text gives the reason."""


class EvidenceKeys(EvidenceSigner):
    """The keys of an installation, newest first. The newest key signs.

    Former keys need only their public parts.
    """

    def __init__(self, text: str) -> None:
        """Take a JWK Set in JSON (RFC 7517). Raises NotKeys."""
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
    """Return a JWK Set in JSON with a new key, which signs from now on.

    The public parts of the former keys in `text` are kept. Raises NotKeys.
    """
    former = [_only(_PUBLIC, key) for key in _keys_of(text)] if text else []
    made = OKPAlgorithm.to_jwk(Ed25519PrivateKey.generate(), as_dict=True)
    new = {**made, "kid": _thumbprint(made), "use": "sig", "alg": ALGORITHM}
    return json.dumps({"keys": [_only(_PRIVATE, new), *former]}, indent=2) + "\n"


class Genuine(NamedTuple):
    """Verified evidence: when, where and about which account it was made, and the key's id."""

    made_at: str
    service: str
    account_id: str
    key_id: str


def verify_evidence(text: str, keys: str) -> Genuine:
    """Verify signed evidence as the API or the command gives it, by the keys of a JWK Set.

    Raises NotKeys or NotGenuine.
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
    """Return the object in a JSON text. Raises ValueError, also if a member is repeated.

    If a member is repeated, some programs use the first value and others the last.
    """

    def members(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:  # as above
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError
        return found

    found = json.loads(text, object_pairs_hook=members)
    if not isinstance(found, dict):
        raise TypeError
    return found


def _sorted(value: object) -> str:
    """Return a value as JSON for comparing, because 1 equals true in Python."""
    return json.dumps(value, sort_keys=True)


def _keys_of(text: str) -> Sequence[Key]:
    """Return the Ed25519 keys of a JWK Set, each with its id."""
    try:
        keys = [
            {**key, "kid": _thumbprint(key)}
            for key in json.loads(text)["keys"]
            # Keys of other kinds are left out, as RFC 7517, 5, requires.
            if (key.get("kty"), key.get("crv")) == ("OKP", "Ed25519")
        ]
        for key in keys:
            _usable(key)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, jwt.PyJWTError):
        # No cause: it could quote a private key.
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
