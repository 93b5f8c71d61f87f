"""The fake PSP for the contract suite."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import msgspec
from sqlite_utils import Database
from typing_extensions import override

from adapters.fake_psp import signatures
from adapters.fake_psp.cards import CardEntry
from adapters.fake_psp.database import PspUnavailable
from adapters.fake_psp.plugin import PLUGIN
from adapters.fake_psp.provider import FakeProvider
from adapters.fake_psp.psp import (
    Batch,
    CallRefused,
    CardEvent,
    Event,
    FakePsp,
    Unknown,
    batch,
)
from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.ids import SeededIds
from adapters.psp_suite.pages import text_of
from adapters.psp_suite.under_test import (
    EXPIRY,
    MAIN,
    OTHER,
    SECRET,
    START,
    Ability,
    Facts,
    GuestCard,
    GuestDetails,
    Method,
    PrintedCard,
    PspUnderTest,
    Trouble,
    WaysOut,
)
from domain.billing import BillingInfo
from domain.identifiers import CardToken, GuestReference, MerchantAccount
from domain.psps.card import Card, Funding
from domain.psps.hosted_page import CardRefused, HostedPage, HostedPageRequest
from domain.psps.payment_provider import PaymentProvider
from domain.psps.webhook import WebhookDelivery
from tests.adapters.fake_psp.conftest import (
    BASE_URL,
    CHALLENGE,
    DECLINED,
    GOOD,
    MASTERCARD,
    WRONG_ADDRESS,
    Browser,
)
from tests.bank import update_card

Answer = TypeVar("Answer")

_EVENT: Final = batch(
    b'{"id": "event_1", "type": "page.completed", "created": 1800000000, "page": "page_1",'
    b' "merchant_account": "main", "token_id": "00000000-0000-4000-8000-000000000001"}'
)


class FakePspUnderTest(PspUnderTest):
    """Guest and adapter each use their own `FakePsp` on the same database file."""

    plugin = PLUGIN
    facts = Facts(
        cards={
            GuestCard.GOOD: PrintedCard(GOOD, "visa", Funding.CREDIT),
            GuestCard.ANOTHER_GOOD: PrintedCard(MASTERCARD, "mastercard", Funding.DEBIT),
            GuestCard.REFUSED: PrintedCard(DECLINED, "visa"),
            GuestCard.CHALLENGED: PrintedCard(CHALLENGE, "visa"),
            GuestCard.WRONG_ADDRESS: PrintedCard(WRONG_ADDRESS, "visa"),
        },
        after_refusal=CardRefused(),
        refusal_codes={GuestCard.REFUSED: "declined", GuestCard.CHALLENGED: "challenge_failed"},
        calls=dict.fromkeys(Method, 1),
        telling_events=("page.completed", "page.closed"),
        card_events=("card.updated", "card.removed"),
        silent_events=("page.opened", "payout.paid"),
        broken_events={
            "a type that is no text": batch(b'{"type": 1}'),
            "no page": batch(b'{"type": "page.completed"}'),
            "a page that is no text": _EVENT.replace(b'"page_1"', b"7"),
            "a time that is no number": _EVENT.replace(b"1800000000", b'"now"'),
        },
        misdirected=("another merchant account",),
        abilities=frozenset(Ability) - {Ability.REMOTE, Ability.NAMES_SESSIONS, Ability.JSON},
    )

    def __init__(self, folder: Path) -> None:
        self.clock = SettableClock(START)
        self.ids = SeededIds(1)
        file = folder / "fake-psp.db"
        self._psp = FakePsp(file, base_url=BASE_URL, clock=self.clock, ids=SeededIds(2))
        self._wire = _Wire(file, base_url=BASE_URL, clock=self.clock, ids=SeededIds(3))
        self._records = Database(file)
        self._sound_pages: dict[str, str] = {}

    @override
    def close(self) -> None:
        self._records.close()

    @override
    def adapter(self, webhook_secrets: Sequence[str] = (SECRET,)) -> PaymentProvider:
        newest, *earlier = webhook_secrets
        return FakeProvider(
            self._wire, webhook_secret=newest, earlier_webhook_secrets=earlier, clock=self.clock
        )

    @override
    def type_card(
        self, page: HostedPage, card: GuestCard, *, expiry: tuple[int, int] = EXPIRY
    ) -> None:
        month, year = expiry
        number = self.facts.cards[card].number
        entry = CardEntry(number=number, expiry_month=month, expiry_year=year, zipcode="98101")
        self._psp.try_card(page.reference, entry)

    @override
    def answer_challenge(self, page: HostedPage, *, confirmed: bool) -> None:
        self._psp.answer_challenge(page.reference, confirmed=confirmed)

    @override
    def read_page(self, page: HostedPage) -> str:
        return text_of(Browser(self._psp, page.reference).open().text)

    @override
    def ways_out(self, page: HostedPage) -> WaysOut:
        request = self._psp.page(page.reference).request
        return WaysOut(with_card=request.return_uri, without=request.cancel_uri)

    @override
    def billing_info(self, page: HostedPage) -> BillingInfo:
        return self._psp.page(page.reference).request.billing_info or BillingInfo()

    @override
    def guest_details(self, page: HostedPage) -> GuestDetails:
        asked = self._psp.page(page.reference).request
        html = Browser(self._psp, page.reference).open().text
        (language,) = re.findall('<html lang="(.*?)"', html)
        return GuestDetails(
            name=asked.guest_name or None, email=asked.guest_email, language=language
        )

    @override
    def count_pages(self) -> int:
        return self._records.table("pages").count

    @override
    def guests(self, merchant_account: MerchantAccount) -> frozenset[GuestReference]:
        found = self._records.table("guests").rows_where("merchant_account = ?", [merchant_account])
        return frozenset(row["reference"] for row in found)

    @override
    def forget_guest(self, merchant_account: MerchantAccount, reference: GuestReference) -> None:
        self._records.table("guests").delete(reference)

    @override
    def tokens(self, merchant_account: MerchantAccount) -> frozenset[CardToken]:
        return self._psp.tokens(merchant_account)

    @override
    def update_card(self, card: Card, to: GuestCard, *, expiry: tuple[int, int]) -> None:
        number, (month, year) = self.facts.cards[to].number, expiry
        entry = CardEntry(number=number, expiry_month=month, expiry_year=year, zipcode="98101")
        update_card(self._psp, card.token, entry)

    @override
    def have(self, trouble: Trouble, *, from_call: int = 1, calls: int | None = None) -> None:
        if trouble is Trouble.NONSENSE:
            self._have_pages(lambda page: f"<html>{page}")
        elif trouble is Trouble.UNKNOWN_STATUS:
            self._have_pages(lambda page: page.replace('"state":"', '"state":"half-'))
        else:
            self._wire.trouble = trouble
            self._wire.calls_left = from_call - 1
            self._wire.faults_left = calls

    @override
    def drip(self, seconds: float) -> NoReturn:
        raise NotImplementedError("it is called without a network")

    @override
    def fall_silent(self) -> NoReturn:
        raise NotImplementedError("it is called without a network")

    @override
    def recover(self) -> None:
        self._wire.trouble = None
        for reference, page in self._sound_pages.items():
            self._records.table("pages").update(reference, {"page": page})

    @override
    def event(self, kind: str, request: HostedPageRequest, page: HostedPage) -> bytes:
        return self._event(kind, request, page, request.merchant_account)

    @override
    def card_event(self, kind: str, card: Card) -> bytes:
        event = CardEvent(
            id="event_2", type=kind, created=1, merchant_account=MAIN, card=card.token
        )
        return batch(msgspec.json.encode(event))

    @override
    def batch(self, bodies: Sequence[bytes]) -> bytes:
        events = [each for body in bodies for each in msgspec.json.decode(body, type=Batch).events]
        return batch(*map(bytes, events))

    @override
    def sign(self, body: bytes, *, secret: str = SECRET, at: datetime) -> WebhookDelivery:
        signature = signatures.sign(body, secret=secret, now=at)
        return WebhookDelivery(
            headers={signatures.HEADER: signature}, body=body, merchant_account=MAIN
        )

    @override
    def misdirect(self, whom: str, request: HostedPageRequest, page: HostedPage) -> WebhookDelivery:
        return self.sign(self._event("page.completed", request, page, OTHER), at=self.clock.now())

    def _event(
        self, kind: str, request: HostedPageRequest, page: HostedPage, account: MerchantAccount
    ) -> bytes:
        event = Event(
            id="event_1",
            type=kind,
            created=int(self.clock.now().timestamp()),
            merchant_account=account,
            page=page.reference,
            token_id=request.token_id,
        )
        return batch(msgspec.json.encode(event))

    def _have_pages(self, damaged: Callable[[str], str]) -> None:
        """Damage every page in the file."""
        table = self._records.table("pages")
        self._sound_pages = {row["reference"]: row["page"] for row in table.rows}
        for reference, page in self._sound_pages.items():
            table.update(reference, {"page": damaged(page)})


_CALLS: Final = {
    *("start_page", "page", "close_page", "discard", "read_card", "list_cards", "forget_guest")
}
"""What the adapter calls."""


class _Wire(FakePsp):
    """The PSP as the adapter reaches it, with simulated faults in between."""

    trouble: Trouble | None = None
    calls_left = 0
    faults_left: int | None = None

    # Any: attributes of any type.
    @override
    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return partial(self._call, found) if name in _CALLS else found

    def _call(self, act: Callable[..., Answer], *arguments: object) -> Answer:
        if self.trouble is None or self.faults_left == 0:
            return act(*arguments)
        if self.calls_left > 0:
            self.calls_left -= 1
            return act(*arguments)
        if self.faults_left:
            self.faults_left -= 1
        if self.trouble is Trouble.CALL_LOST:
            raise PspUnavailable
        if self.trouble is Trouble.REFUSED:
            raise CallRefused("no such merchant account")
        if self.trouble is Trouble.NOT_FOUND:
            raise Unknown
        act(*arguments)
        raise PspUnavailable
