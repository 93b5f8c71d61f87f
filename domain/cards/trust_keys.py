"""Trust a merchant account's present keys, although its first keys belonged to another merchant."""

from __future__ import annotations

from dataclasses import dataclass

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.errors import InvalidField
from domain.identifiers import PspAccount
from domain.storage import Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustKeys:
    """Use case: forget the stored identity of a merchant account's first keys; for operators.

    The first keys were wrong. At the next call, the PSP reports the identity of the present keys,
    which is then stored. May be called again. Raises InvalidField for an account whose identity is
    not stored or belongs to the original of this copy, and for an account with cards or tokens to
    discard: other keys could not charge or discard them.
    """

    storage: Storage
    note_act: NoteAct

    def __call__(self, psp_account: PspAccount) -> None:
        """Forget the identity, and note that in the audit trail."""

        def forget(unit: WriteUnit) -> None:
            kept = unit.merchant_identities.get(*psp_account)
            if kept is None or kept in unit.merchant_identities.of_original(psp_account.provider):
                expected = "an account whose identity was stored by this installation"
                raise InvalidField("merchant_account", expected)
            if unit.accounts.active_at_psp(psp_account) or unit.discards.left_at_psp(psp_account):
                expected = "an account without cards on file and without tokens to discard"
                raise InvalidField("merchant_account", expected)
            unit.merchant_identities.forget(*psp_account)
            self.note_act(unit, Action.KEYS_TRUSTED, "/".join(psp_account), {"before": kept})
            unit.commit()

        self.storage.transact(forget)
