"""The use cases that clients, guests and PSPs cause, by name, for tests that call them directly."""

from __future__ import annotations

from dataclasses import dataclass, fields

from domain.cards.choose_default_card import ChooseDefaultCard
from domain.cards.queries import ListAccounts, ListExpiringCards, ReadAccount, ReadConsent
from domain.cards.remove_account import RemoveAccount
from domain.centers.queries import ListCenters, ReadCenter
from domain.events.queries import ListEvents, ReadEvent
from domain.guests.put_guest import PutGuest
from domain.guests.queries import ReadGuest
from domain.hosted_payments.leave_hosted_page import CancelHostedPage, ReturnFromHostedPage
from domain.hosted_payments.open_hosted_page import OpenHostedPage
from domain.personal_data.merge_guests import MergeGuests
from domain.products.put_product import PutProduct
from domain.products.queries import ListProducts
from domain.sessions.add_card import AddCard
from domain.sessions.queries import ListSessions, ReadSession
from domain.settling.cancel_session import CancelSession
from domain.settling.receive_webhook import ReceiveWebhook
from entrypoints.container import Container


@dataclass(frozen=True, kw_only=True)
class UseCases:
    """Each use case, as the container provides it under this name."""

    add_card: AddCard
    list_accounts: ListAccounts
    read_account: ReadAccount
    read_consent: ReadConsent
    choose_default_card: ChooseDefaultCard
    remove_account: RemoveAccount
    list_expiring_cards: ListExpiringCards
    read_session: ReadSession
    cancel_session: CancelSession
    list_sessions: ListSessions
    put_guest: PutGuest
    merge_guests: MergeGuests
    read_guest: ReadGuest
    list_centers: ListCenters
    read_center: ReadCenter
    list_events: ListEvents
    read_event: ReadEvent
    list_products: ListProducts
    put_product: PutProduct
    open_hosted_page: OpenHostedPage
    return_from_hosted_page: ReturnFromHostedPage
    cancel_hosted_page: CancelHostedPage
    receive_webhook: ReceiveWebhook

    @classmethod
    def of(cls, container: Container) -> UseCases:
        """Return the use cases of a container."""
        return cls(**{field.name: getattr(container, field.name)() for field in fields(cls)})
