"""Evidence is refused after any change. The API's tests verify the signature with another package."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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
        "[" * 99_999,
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
