"""Compare the cards that a PSP has stored at a merchant account with those on file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from domain.cards.account import Account, AccountFilter
from domain.identifiers import PspAccount
from domain.outside import Clock
from domain.pagination import ALL
from domain.psps.card import CardAtPsp
from domain.psps.payment_provider import Providers
from domain.storage import Storage, UnitOfWork


class Comparison(NamedTuple):
    """The result of a comparison.

    `only_at_psp` are the cards that are not on file. `only_on_file` are the accounts whose card the
    PSP does not have. `in_both` is the number of cards that are both at the PSP and on file.
    """

    only_at_psp: Sequence[CardAtPsp]
    only_on_file: Sequence[Account]
    in_both: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareCards:
    """Use case: compare the cards stored at a merchant account with the accounts on file.

    Nothing is changed. The comparison leaves out cards that wait to be discarded. It also leaves
    out cards that are stored, renewed or discarded during the comparison. A card whose session is
    not settled yet is listed as a card that is only at the PSP. The PSP must be able to list cards.
    Raises ProviderUnavailable and ProviderRefused.
    """

    storage: Storage
    providers: Providers
    clock: Clock

    def __call__(self, psp_account: PspAccount) -> Comparison:
        begun_at = self.clock.now()
        # The PSP is read first, so that a card stored meanwhile does not seem to be only at the
        # PSP.
        there = dict.fromkeys(self._listed(psp_account))
        wanted = AccountFilter(merchant_account=psp_account.merchant_account, only_active=True)
        with self.storage.read() as unit:
            found = unit.accounts.search(wanted, limit=ALL)
            here = {
                CardAtPsp(account.guest_reference, account.token): account
                for account in found
                if account.psp_account == psp_account
            }
            only_there = [
                card
                for card in there
                if card not in here and not _is_discarded(unit, psp_account, card, begun_at)
            ]
        only_here = [
            account
            for card, account in here.items()
            if card not in there and max(account.created_at, account.state_as_of) < begun_at
        ]
        return Comparison(only_there, only_here, len(here.keys() & there.keys()))

    def _listed(self, psp_account: PspAccount) -> Iterator[CardAtPsp]:
        provider, merchant_account = psp_account
        place: str | None = None
        while True:
            cards, place = self.providers[provider].list_cards(merchant_account, place)
            yield from cards
            if place is None:
                return


def _is_discarded(
    unit: UnitOfWork, psp_account: PspAccount, card: CardAtPsp, begun_at: datetime
) -> bool:
    """Return whether the card waits to be discarded, or was discarded after `begun_at`."""
    discard = unit.discards.get(*psp_account, card.token)
    return discard is not None and (discard.done_at is None or discard.was_done_after(begun_at))
