"""The use cases that the routes call."""

from __future__ import annotations

from dataclasses import dataclass

from domain.add_card import AddCard
from domain.cancel_session import CancelSession
from domain.choose_default_card import ChooseDefaultCard
from domain.find_way_back import FindWayBack
from domain.leave_hosted_page import CancelHostedPage, ReturnFromHostedPage
from domain.list_accounts import ListAccounts
from domain.list_centers import ListCenters, ReadCenter
from domain.list_expiring_cards import ListExpiringCards
from domain.list_products import ListProducts
from domain.list_sessions import ListSessions
from domain.open_hosted_page import OpenHostedPage
from domain.put_guest import PutGuest
from domain.put_product import PutProduct
from domain.read_account import ReadAccount
from domain.read_guest import ReadGuest
from domain.read_session import ReadSession
from domain.receive_webhook import ReceiveWebhook
from domain.remove_account import RemoveAccount


@dataclass(frozen=True, kw_only=True)
class UseCases:
    """The use cases that the routes call."""

    add_card: AddCard
    list_accounts: ListAccounts
    read_account: ReadAccount
    choose_default_card: ChooseDefaultCard
    remove_account: RemoveAccount
    list_expiring_cards: ListExpiringCards
    read_session: ReadSession
    cancel_session: CancelSession
    list_sessions: ListSessions
    put_guest: PutGuest
    read_guest: ReadGuest
    list_centers: ListCenters
    read_center: ReadCenter
    list_products: ListProducts
    put_product: PutProduct
    open_hosted_page: OpenHostedPage
    return_from_hosted_page: ReturnFromHostedPage
    cancel_hosted_page: CancelHostedPage
    find_way_back: FindWayBack
    receive_webhook: ReceiveWebhook
