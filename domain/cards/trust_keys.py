"""Accept the present keys of a merchant account whose first keys belonged to another merchant."""

from __future__ import annotations

from dataclasses import dataclass

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.errors import InvalidField
from domain.identifiers import PspAccount
from domain.storage import Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustKeys:
    """Use case: forget the stored merchant identity, because the first keys were wrong.

    Only operators call it. At the next call to the PSP, the PSP reports the identity of the present
    keys, which is then stored.

    Raises InvalidField if no identity is stored for the merchant account, or if the original
    installation stored this identity before its records were copied to this installation. Also
    raises InvalidField if the merchant account has cards on file or tokens to discard, because
    other keys could not charge or discard them.
    """

    storage: Storage
    note_act: NoteAct

    def __call__(self, psp_account: PspAccount) -> None:
        """Forget the identity of the merchant account, and note that in the audit trail."""

        def forget(unit: WriteUnit) -> None:
            kept = unit.merchant_identities.get(*psp_account)
            if kept is None or kept in unit.merchant_identities.of_original(psp_account.provider):
                expected = "an account whose identity was stored by this installation"
                raise InvalidField("merchant_account", expected)
            if unit.accounts.active_at_psp(psp_account) or unit.discards.pending_at_psp(
                psp_account
            ):
                expected = "an account without cards on file and without cards to discard"
                raise InvalidField("merchant_account", expected)
            unit.merchant_identities.forget(*psp_account)
            self.note_act(unit, Action.KEYS_TRUSTED, "/".join(psp_account), {"before": kept})
            unit.commit()

        self.storage.transact(forget)
