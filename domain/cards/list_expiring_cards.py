"""List the cards on file at a center that expire soon, or have expired."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Final

from domain.cards.account import Account
from domain.centers.center import parse_center_id
from domain.errors import InvalidCenterId, InvalidField
from domain.pagination import Page, PageRequest
from domain.permissions import MAY_VIEW_CARDS, Caller
from domain.storage import Storage

EXPECTED_DATE: Final = "a date such as 2027-01-31"

_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListExpiringCards:
    """Use case: return a page of a center's active payment accounts that expire before a date.

    A card expires on the last day of its month. The soonest comes first. Cards that have expired
    already are among them, unless they were removed. `expires_before` has the values of the query,
    unparsed. Raises UserNotAuthorized, InvalidCenterId or InvalidField.
    """

    needs = MAY_VIEW_CARDS

    storage: Storage

    def __call__(
        self,
        caller: Caller,
        *,
        center_id: str,
        expires_before: Sequence[str],
        page: PageRequest,
    ) -> Page[Account]:
        caller.require(self.needs)
        center = parse_center_id(center_id)
        caller.require_center(center)
        before = _parse_date(expires_before)
        with self.storage.read() as unit:
            if unit.centers.get(center) is None:
                raise InvalidCenterId
            return unit.accounts.page_expiring(center, before=before, request=page)


def _parse_date(given: Sequence[str]) -> date:
    # `fromisoformat` alone also reads 20270131 and 2027-W04-7.
    if len(given) == 1 and _DATE.fullmatch(given[0]):
        with suppress(ValueError):
            return date.fromisoformat(given[0])
    raise InvalidField("expires_before", EXPECTED_DATE)
