"""Find an agreement for a caller."""

from __future__ import annotations

from domain.agreements.agreement import Agreement
from domain.errors import AgreementNotFound
from domain.identifiers import AgreementId, plain_uuid
from domain.permissions import Caller
from domain.storage import UnitOfWork


def agreement_of_guest(
    unit: UnitOfWork, caller: Caller, *, guest_id: str, agreement_id: str
) -> Agreement:
    """Return a guest's agreement at a center that the caller may see, even if it has ended.

    Raises AgreementNotFound if there is no such agreement.
    """
    known_id = plain_uuid(agreement_id)
    agreement = unit.agreements.get(AgreementId(known_id)) if known_id else None
    if (
        agreement is None
        or agreement.guest_id != plain_uuid(guest_id)
        or not caller.sees(agreement.center_id)
        # An erased guest is not found.
        or unit.guests.get(agreement.guest_id) is None
    ):
        raise AgreementNotFound
    return agreement
