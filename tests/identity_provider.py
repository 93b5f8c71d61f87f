"""An identity provider on loopback, with a real server that publishes its keys."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tests.installation import Installation
from tests.listening import ListeningServer, responding, running
from tests.waiting import LIMIT_SECONDS

ISSUER: Final = "https://id.example/realms/spa"
AUDIENCE: Final = "cardonfile"
HOUR_SECONDS: Final = 3600


@cache
def rsa_key(number: int = 0, *, bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return an RSA key. Each `number` has its own key."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def public(key_id: str, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> dict[str, object]:
    """Return the public part of a key, as it is published."""
    document = (
        RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        if isinstance(key, rsa.RSAPrivateKey)
        else ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    )
    return {**document, "kid": key_id, "use": "sig"}


class IdentityProvider:
    """Signs tokens with the key `first`, and publishes it."""

    def __init__(self, server: ListeningServer) -> None:
        self.server = server
        self.publish(public("first", rsa_key()))

    def installation(self, folder: Path, **environment: str) -> Installation:
        """Return an installation that accepts its tokens."""
        return Installation(
            folder,
            CARDONFILE_JWT_ISSUER=ISSUER,
            CARDONFILE_JWT_AUDIENCE=AUDIENCE,
            CARDONFILE_JWT_KEYS=f"{self.server.url}/certs",
            **environment,  # type: ignore[arg-type]  # only names of settings
        )

    def publish(self, *keys: Mapping[str, object]) -> None:
        """Publish these keys instead of the former keys."""
        self.server.acts[:] = [responding(200, json.dumps({"keys": keys}).encode())]

    def token(
        self,
        claims: Mapping[str, object] | None = None,
        *,
        key_id: str | None = "first",
        key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | str | None = None,
        algorithm: str = "RS256",
        token_type: str | None = "JWT",
    ) -> str:
        """Return a token of `web-shop`, valid for an hour. A claim or header that is None is left out."""
        whole = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "web-shop",
            "exp": int(time.time()) + HOUR_SECONDS,
            **(claims or {}),
        }
        return jwt.encode(
            {name: value for name, value in whole.items() if value is not None},
            rsa_key() if key is None else key,
            algorithm=algorithm,
            headers={"typ": token_type} | ({} if key_id is None else {"kid": key_id}),
        )


@contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    """Run an identity provider within the block. Processes may wait long for its keys."""
    with running(ListeningServer()) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr("adapters.json_web_tokens.FETCH_SECONDS", LIMIT_SECONDS)
        yield IdentityProvider(server)
