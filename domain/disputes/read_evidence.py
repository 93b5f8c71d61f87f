"""Read the signed evidence about a card on file."""

from __future__ import annotations

from dataclasses import dataclass

from domain.audit.entry import Action
from domain.audit.note_act import NoteOperatorsAct
from domain.cards.account import Account
from domain.cards.find_account import account_of_guest, account_with
from domain.disputes.evidence import EvidenceSigner, SignedEvidence
from domain.disputes.gather_evidence import GatherEvidence
from domain.errors import PaymentAccountNotFound
from domain.outside import Clock
from domain.permissions import MAY_READ_EVIDENCE, MAY_VIEW_GUESTS, Caller
from domain.storage import Storage, UnitOfWork


class GuestWasErased(Exception):
    """The guest was erased. Only evidence without name and email address can still be read."""

    def __init__(self) -> None:
        super().__init__("the guest was erased: --after-erasure shows what is left")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadEvidence:
    """Use case: read the signed evidence about a guest's payment account, removed or not.

    The evidence contains the guest's name, email address and browsers only if the caller may read
    guests. Raises UserNotAuthorized or EvidenceKeyMissing. Raises PaymentAccountNotFound if the
    guest was erased, or has no such account at a center that the caller may see.
    """

    needs = MAY_READ_EVIDENCE

    storage: Storage
    gather: GatherEvidence
    signer: EvidenceSigner
    clock: Clock
    note: NoteOperatorsAct

    def __call__(self, caller: Caller, *, guest_id: str, account_id: str) -> SignedEvidence:
        caller.require(self.needs)
        with self.storage.read() as unit:
            account = account_of_guest(unit, caller, guest_id=guest_id, account_id=account_id)
            if unit.guests.get(account.guest_id) is None:
                raise PaymentAccountNotFound
            shows_guest = caller.may(MAY_VIEW_GUESTS)
            return self._signed(unit, account, shows_guest=shows_guest)

    def for_operator(self, account_id: str, *, after_erasure: bool) -> SignedEvidence:
        """Return the evidence about an account of any guest, and note that in the audit trail.

        Raises EvidenceKeyMissing, PaymentAccountNotFound or ServiceUnavailable. Raises
        GuestWasErased for the account of an erased guest unless `after_erasure` is set.
        """
        with self.storage.read() as unit:
            account = account_with(unit, account_id)
            is_erased = unit.guests.get(account.guest_id) is None
            if is_erased and not after_erasure:
                raise GuestWasErased
            evidence = self._signed(unit, account, shows_guest=True)
        details = {"after_erasure": "yes"} if is_erased else None
        self.note(Action.EVIDENCE_SHOWN, account.account_id, details)
        return evidence

    def _signed(self, unit: UnitOfWork, account: Account, *, shows_guest: bool) -> SignedEvidence:
        now = self.clock.now()
        return self.signer.sign(self.gather(unit, account, now, shows_guest=shows_guest))
