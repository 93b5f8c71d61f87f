"""An independent implementation verifies evidence, and refuses it after any change."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from hashlib import sha512
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters.json_web_signatures import (
    EvidenceKeys,
    NotGenuine,
    NotKeys,
    verify_evidence,
    with_new_key,
)
from domain.disputes.evidence import SignedEvidence
from tests.installation import EVIDENCE_KEYS, Installation


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignedEvidence]:
    """The evidence about a card."""
    folder: Path = tmp_path_factory.mktemp("evidence")
    installation = Installation(folder)
    account = installation.stored_card()
    yield installation.container.read_evidence()(
        installation.caller, guest_id=account.guest_id, account_id=account.account_id
    )
    installation.close()


def published(keys: str = EVIDENCE_KEYS) -> str:
    return json.dumps({"keys": EvidenceKeys(keys).public_keys()})


def as_given(signed: SignedEvidence) -> str:
    return msgspec.json.encode({"document": signed.document, "jws": signed.jws}).decode()


def decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def is_signed(message: bytes, signature: bytes, public_key: bytes) -> bool:
    """Verify an Ed25519 signature as RFC 8032, 5.1.7, describes, without a package."""
    p, d = 2**255 - 19, -121665 * pow(121666, -1, 2**255 - 19)

    def point(encoded: bytes) -> tuple[int, int]:
        number = int.from_bytes(encoded, "little")
        y, sign = number % 2**255, number >> 255
        square = (y * y - 1) * pow(d * y * y + 1, -1, p) % p
        x = pow(square, (p + 3) // 8, p)
        if (x * x - square) % p:
            x = x * pow(2, (p - 1) // 4, p) % p
        assert (x * x - square) % p == 0
        return (x if x % 2 == sign else p - x), y

    def add(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        common = d * a[0] * b[0] * a[1] * b[1]
        x = (a[0] * b[1] + b[0] * a[1]) * pow(1 + common, -1, p) % p
        return x, (a[1] * b[1] + a[0] * b[0]) * pow(1 - common, -1, p) % p

    def times(factor: int, a: tuple[int, int]) -> tuple[int, int]:
        product = (0, 1)
        for bit in f"{factor:b}":
            product = add(product, product)
            product = add(product, a) if bit == "1" else product
        return product

    base = point((4 * pow(5, -1, p) % p).to_bytes(32, "little"))
    hashed = int.from_bytes(sha512(signature[:32] + public_key + message).digest(), "little")
    left = times(int.from_bytes(signature[32:], "little"), base)
    return left == add(point(signature[:32]), times(hashed, point(public_key)))


def test_the_signature_of_evidence_is_verified_by_an_independent_implementation(
    signed: SignedEvidence,
) -> None:
    (key,) = json.loads(published())["keys"]
    header, payload, signature = signed.jws.split(".")
    public_key = decoded(key["x"])

    assert is_signed(f"{header}.{payload}".encode(), decoded(signature), public_key)
    assert not is_signed(f"{header}.{payload}x".encode(), decoded(signature), public_key)
    assert json.loads(decoded(header)) == {
        "alg": "EdDSA",
        "kid": key["kid"],
        "typ": "cardonfile-evidence",
    }
    assert json.loads(decoded(payload)) == json.loads(as_given(signed))["document"]


def test_evidence_is_refused_after_a_byte_was_changed(signed: SignedEvidence) -> None:
    found = verify_evidence(as_given(signed), published())
    assert found.service == "http://127.0.0.1:8000"

    text = as_given(signed)
    # Some decoders ignore the last bits of the last letter, which is before the quote and the brace.
    for place in (*range(len('{"document":{'), len(text) - 3, 97), len(text) - 3):
        changed = text[:place] + chr(ord(text[place]) + 1) + text[place + 1 :]
        with pytest.raises(NotGenuine):
            verify_evidence(changed, published())


@pytest.mark.parametrize(
    "forge",
    [
        lambda text: text.replace('{"document":', '{"document":{"about":"forged"},"document":', 1),
        lambda text: text.replace('"card":{', '"card":{"forged":1},"card":{', 1),
        lambda text: text.replace('{"document":', '{"note":"by the bank","document":', 1),
        lambda text: text.replace(":null", ":false", 1),
    ],
    ids=["another document before it", "another member", "a note", "another type"],
)
def test_evidence_with_an_unsigned_addition_is_refused(
    signed: SignedEvidence, forge: Callable[[str], str]
) -> None:
    forged = forge(as_given(signed))
    assert forged != as_given(signed)
    with pytest.raises(NotGenuine):
        verify_evidence(forged, published())


def test_evidence_signed_with_the_former_key_is_verified_after_a_key_rotation(
    signed: SignedEvidence,
) -> None:
    rolled = with_new_key(EVIDENCE_KEYS)

    assert verify_evidence(as_given(signed), published(rolled)).key_id == signed.key_id
    newest, former = EvidenceKeys(rolled).public_keys()
    assert former == EvidenceKeys(EVIDENCE_KEYS).public_keys()[0]
    assert newest["kid"] != former["kid"]
    assert rolled.count('"d"') == 1
    assert '"d"' not in published(rolled)


def test_evidence_signed_with_an_unknown_key_is_refused(signed: SignedEvidence) -> None:
    with pytest.raises(NotGenuine, match="no key in the file"):
        verify_evidence(as_given(signed), published(with_new_key(None)))


# RFC 8037, appendix A.3.
def test_the_id_of_an_evidence_key_is_its_thumbprint() -> None:
    (public,) = EvidenceKeys(EVIDENCE_KEYS).public_keys()

    assert public["kid"] == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


@pytest.mark.parametrize(
    "keys",
    [
        "",
        "{}",
        "[]",
        "[" * 99_999,
        '{"keys": [1]}',
        '{"keys": []}',
        '{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AA"}]}',
    ],
)
def test_text_that_is_not_a_list_of_evidence_keys_is_refused(
    keys: Any,
) -> None:  # of the parameters
    with pytest.raises(NotKeys):
        EvidenceKeys(keys)
    with pytest.raises(NotKeys):
        EvidenceKeys(published())
