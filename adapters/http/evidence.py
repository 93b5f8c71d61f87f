"""The evidence about a card on file, and the public keys that verify its signature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct

from adapters.http.cards import ACCOUNTS
from adapters.http.guests import GUEST_WITH_CARD
from adapters.http.operations import Operation, Tag, parameter
from adapters.http.responses import TrueValue, example
from adapters.thread_safe_types import prepare
from domain import errors
from domain.disputes.evidence import DisputeEvidence, EvidenceSigner
from domain.disputes.read_evidence import ReadEvidence
from domain.permissions import Caller


class CardEvidence(Struct, frozen=True, kw_only=True):
    """The evidence about a card on file, with its signature."""

    success: TrueValue = True
    error: None = None
    document: DisputeEvidence
    jws: Annotated[
        str,
        example(
            "eyJhbGciOiJFZERTQSIs…",
            "A compact JWS (RFC 7515, EdDSA). Its payload is `document` in JSON. If "
            "they differ, the payload is right.",
        ),
    ]


class PublicKey(Struct, frozen=True, kw_only=True):
    """An Ed25519 key that verifies signatures (RFC 8037)."""

    kty: Annotated[str, example("OKP")]
    crv: Annotated[str, example("Ed25519")]
    x: Annotated[str, example("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "The key.")]
    kid: Annotated[
        str,
        example(
            "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k", "The thumbprint of the key (RFC 7638)."
        ),
    ]
    use: Annotated[str, example("sig")] = "sig"
    alg: Annotated[str, example("EdDSA")] = "EdDSA"


class PublicKeys(Struct, frozen=True):
    """A JWK Set (RFC 7517)."""

    keys: Annotated[list[PublicKey], Meta(description="The newest first.")]


prepare(CardEvidence, PublicKeys)


@dataclass(frozen=True, kw_only=True)
class EvidenceResource:
    """Read signed evidence, and the keys that verify the signature."""

    read_evidence: ReadEvidence
    signer: EvidenceSigner

    @Operation(
        method="get",
        path=ACCOUNTS + "/{account_id}/evidence",
        name="readEvidence",
        tag=Tag.CARDS,
        summary="Read the signed evidence about a card on file, for a dispute",
        description="The texts that the guest read and agreed to, and what this service recorded. "
        "The card may have been removed.",
        parameters=(
            GUEST_WITH_CARD,
            parameter("account_id", "path", "The id of the payment account, even if removed."),
        ),
        calls=ReadEvidence,
        refusals=(errors.PaymentAccountNotFound(), errors.EvidenceKeyMissing()),
    )
    def read(self, caller: Caller, guest_id: str, account_id: str) -> CardEvidence:
        """Read the evidence about a card, with its signature."""
        signed = self.read_evidence(caller, guest_id=guest_id, account_id=account_id)
        return CardEvidence(document=signed.document, jws=signed.jws)

    @Operation(
        method="get",
        path="/.well-known/jwks.json",
        name="evidenceKeys",
        tag=Tag.SERVICE,
        summary="The public keys that verify evidence",
        description="A JWK Set that includes former keys. It is empty if the operator has not set a key.",
    )
    def keys(self) -> PublicKeys:
        """Respond with the public keys."""
        return PublicKeys(keys=[PublicKey(**key) for key in self.signer.public_keys()])
