"""The fake PSP itself: its pages, cards, tokens and charges, and the events about them."""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec
from sqlite_utils import Database

from adapters.fake_psp.cards import (
    ISSUER_COUNTRY,
    REISSUED_AS,
    TEST_CARDS,
    WRONG_ZIPCODE,
    Behaviour,
    CardEntry,
    PublishedCard,
)
from adapters.fake_psp.database import (
    CARD_ON_PAGE,
    CHARGE_KEY,
    PspDatabase,
    PspUnavailable,
    Row,
    rows,
)
from domain.billing import AvsResult
from domain.identifiers import CardToken, GuestReference, MerchantAccount
from domain.outside import Clock, Ids
from domain.psps.card import Card, CardAtPsp, CardList, CardReading
from domain.psps.hosted_page import Authentication, HostedPageRequest

PAGE_LIFETIME: Final = timedelta(minutes=30)
"""The minimum lifetime of a page."""

BANK_ACTS_AFTER: Final = timedelta(seconds=10)
"""The time after which the bank of a stored test card reports it as reissued or lost."""

YEARS_MORE: Final = 4
"""How many years a bank adds to the expiry date of a card that it reissues."""

MAX_LISTED: Final = 100
"""The maximum number of cards or charges in one list."""

MAX_CARD_ATTEMPTS: Final = 5
"""How many cards may be tried on a page. If the last of these cards is refused, the page closes."""


class PageState(StrEnum):
    """The state of a page.

    A challenged page waits until the guest confirms the card at the bank.
    """

    OPEN = "open"
    CHALLENGED = "challenged"
    COMPLETED = "completed"
    CLOSED = "closed"


class CardRefusal(StrEnum):
    """The reason why a page refused a card. Its value is the code that shops receive."""

    UNPUBLISHED = "unpublished"
    DECLINED = "declined"
    WRONG_ADDRESS = "wrong_address"
    CHALLENGE_FAILED = "challenge_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PspPage:
    """A page as the PSP stores it.

    `card` and `avs` are set when the page is challenged or completed. `collected_at` is set when
    the page is completed. `authenticated` is whether the guest confirmed a challenge.

    `refusal` is the reason why the latest card was refused. It is cleared when the guest tries
    another card, but `last_refusal` keeps the reason. `typed` contains the expiry date and the
    billing address as typed, so that the form can show them once more.
    """

    reference: str
    request: HostedPageRequest
    guest_reference: GuestReference
    ends_at: datetime
    state: PageState = PageState.OPEN
    attempts: int = 0
    refusal: CardRefusal | None = None
    last_refusal: CardRefusal | None = None
    typed: Mapping[str, str] = field(default_factory=dict)
    card: Card | None = None
    avs: AvsResult = AvsResult.NOT_CHECKED
    collected_at: datetime | None = None
    authenticated: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the page can no longer collect a card, because it has a card or is closed."""
        return self.state in (PageState.COMPLETED, PageState.CLOSED)

    @property
    def refused_cards(self) -> int:
        """How many of the cards that were tried on this page were refused.

        A card that is waiting for a challenge or that was stored is not counted.
        """
        return self.attempts if self.refusal else max(0, self.attempts - 1)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event about a page. `created` is in Unix seconds.

    `token_id` is the id of the session for which the page was created.
    """

    id: str
    type: str
    created: int
    merchant_account: str
    page: str
    token_id: str


_CARD_PAGE: Final = (
    f"SELECT page FROM cards JOIN pages ON {CARD_ON_PAGE} = token"  # noqa: S608 - a constant
    " WHERE token = ? AND guest_reference = ?"
)

CARD_REFUSED: Final = "page.card_refused"
REISSUED: Final = "card.updated"
LOST: Final = "card.removed"
_CARD_EVENTS: Final[Mapping[str, str]] = {
    number[-4:]: {Behaviour.REISSUED: REISSUED, Behaviour.LOST: LOST}[card.behaviour]
    for number, card in TEST_CARDS.items()
    if card.behaviour in (Behaviour.REISSUED, Behaviour.LOST)
}
"""The types of events that banks of test cards cause, by the last four digits of the card."""


class ChargeStatus(StrEnum):
    """The result of a charge."""

    APPROVED = "approved"
    DECLINED = "declined"
    AUTHENTICATION_REQUIRED = "authentication_required"
    CARD_GONE = "card_gone"


class ChargeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A charge that a shop requests. `amount` and `currency` are texts such as `84.00` and `EUR`.

    `guest_reference` and `token` must have the form of this PSP's own references. A card number
    sent by mistake is therefore refused, and not stored.
    """

    guest_reference: Annotated[str, msgspec.Meta(pattern=r"^guest_[A-Za-z0-9_-]{1,64}\Z")]
    token: Annotated[str, msgspec.Meta(pattern=r"^card_[A-Za-z0-9_-]{1,64}\Z")]
    amount: str
    currency: str


class Charge(ChargeRequest, frozen=True, kw_only=True):
    """A charge with its result. `idempotency_key` is the key that the shop sent, or None."""

    id: str
    status: ChargeStatus
    idempotency_key: str | None
    created_at: datetime


_ANSWERS: Final[Mapping[str, ChargeStatus]] = {
    number[-4:]: {
        Behaviour.CHARGE_DECLINED: ChargeStatus.DECLINED,
        Behaviour.CHARGE_UNCONFIRMED: ChargeStatus.AUTHENTICATION_REQUIRED,
    }.get(card.behaviour, ChargeStatus.APPROVED)
    for number, card in TEST_CARDS.items()
}
"""The result of charging a test card, by the last four digits of the card."""


class CardEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event about a stored card. The stored card is changed when the event is first sent."""

    id: str
    type: str
    created: int
    merchant_account: str
    card: str = ""


class Batch(msgspec.Struct, frozen=True):
    """The body of a webhook, which contains a list of events."""

    events: list[msgspec.Raw]


def batch(*events: bytes) -> bytes:
    """Return the body of a webhook with these events, each of which is JSON."""
    return msgspec.json.encode(Batch(events=[msgspec.Raw(event) for event in events]))


@dataclass(frozen=True, slots=True, kw_only=True)
class DueEvent:
    """An event to deliver.

    `body` is the body of a webhook with only this event. `tries` counts the attempts, including the
    current attempt.
    """

    id: str
    body: bytes
    age: timedelta
    tries: int


class CallRefused(Exception):
    """The PSP refuses the call, and would refuse a repeated call too."""


class Unknown(Exception):
    """The PSP has no such page, card or guest."""


class OutOfOrder(Exception):
    """The PSP cannot take a card at the moment. Nothing was changed."""


class FakePsp:
    """A PSP with a separate database file. Every method may raise PspUnavailable.

    Card numbers and CVCs are not stored. Only a keyed hash and the last four digits of each number
    are kept. Webhooks are signed with `webhook_secret`. A shop needs `charge_key` to charge cards.
    The flag `events_written` is set after every change of a page, to wake the sender of webhooks.
    """

    def __init__(self, database: Path, *, base_url: str, clock: Clock, ids: Ids) -> None:
        """Prepare the file `database`. Create it if it does not exist.

        `base_url` is the origin of the pages, without a slash at the end. The connection to the
        file is closed afterwards, so that the process may fork.
        """
        self.base_url = base_url
        self.clock = clock
        self.events_written = threading.Event()
        self._ids = ids
        self._database = PspDatabase(database, ids)
        self.webhook_secret = self._database.keys["webhook secret"]
        self.charge_key = self._database.keys[CHARGE_KEY]
        self._form_key = self._database.keys["form key"].encode()
        self._fingerprint_key = self._database.keys["fingerprint key"].encode()
        self.close()

    def close(self) -> None:
        """Close this thread's connection to the file. The next call opens a new connection."""
        self._database.close()

    def start_page(self, request: HostedPageRequest) -> PspPage:
        """Create a page. A call with the same idempotency key and parameters returns the same page.

        The guest gets a new reference, unless `request` contains a reference that the merchant
        account knows. Raises CallRefused if the key was used with other parameters.
        """
        with self._database.write() as db:
            found = rows(
                db, "SELECT page FROM pages WHERE idempotency_key = ?", (request.idempotency_key,)
            )
            if found:
                page = _decode(found[0]["page"])
                if page.request != request:
                    raise CallRefused("the idempotency key was used with other parameters")
                return page
            page = PspPage(
                reference=f"page_{self._ids.secret()}",
                request=request,
                guest_reference=self._guest(db, request),
                ends_at=max(self.clock.now() + PAGE_LIFETIME, request.live_until),
            )
            db.execute(
                "INSERT INTO pages VALUES (?, ?, ?)",
                (page.reference, request.idempotency_key, _encode(page)),
            )
            return page

    def page(self, reference: str) -> PspPage:
        """Return the current state of a page. Raises Unknown."""
        found = self._database.read("SELECT page FROM pages WHERE reference = ?", (reference,))
        page = _only_page(found)
        if not page.is_over and self.clock.now() >= page.ends_at:
            # The state is stored, so that the page stays closed if the clock is set back.
            return self.close_page(reference)
        return page

    def close_page(self, reference: str) -> PspPage:
        """Close a page, unless it is already over, and return the page. Raises Unknown."""
        return self._change(reference, _closed)

    def try_card(self, reference: str, entry: CardEntry) -> PspPage:
        """Try a card on a page, unless the page is over, and return the page.

        Raises Unknown or OutOfOrder.
        """

        def tried(page: PspPage) -> PspPage:
            published = TEST_CARDS.get(entry.number)
            if published is not None and published.behaviour is Behaviour.OUT_OF_ORDER:
                raise OutOfOrder
            page = replace(page, attempts=page.attempts + 1, refusal=None, typed=entry.repeatable)
            if published is None:
                return _refused(page, CardRefusal.UNPUBLISHED)
            if published.behaviour is Behaviour.DECLINED:
                return _refused(page, CardRefusal.DECLINED)
            if page.request.avs and entry.zipcode == WRONG_ZIPCODE:
                return _refused(page, CardRefusal.WRONG_ADDRESS)
            card = self._card(page, entry, published)
            held = replace(page, card=card, avs=_avs_result(page, published))
            is_required = page.request.authentication is Authentication.REQUIRED
            if is_required or published.behaviour is Behaviour.CHALLENGE:
                return replace(held, state=PageState.CHALLENGED)
            return self._collected(held)

        return self._change(reference, tried)

    def is_card_of(self, page: PspPage, entry: CardEntry) -> bool:
        """Return whether the card that was typed in is the card that the page already has."""
        card = page.card
        return card is not None and (card.fingerprint, card.expiry_month, card.expiry_year) == (
            self._fingerprint(page, entry.number),
            entry.expiry_month,
            entry.expiry_year,
        )

    def answer_challenge(self, reference: str, *, confirmed: bool) -> PspPage:
        """End the challenge of a page, and return the page. Raises Unknown.

        `confirmed` is whether the guest confirmed the card. A page that is not challenged is
        returned unchanged.
        """

        def answered(page: PspPage) -> PspPage:
            if page.state is not PageState.CHALLENGED:
                return page
            if confirmed:
                return self._collected(replace(page, authenticated=True))
            return _refused(page, CardRefusal.CHALLENGE_FAILED)

        return self._change(reference, answered)

    def discard(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference, token: CardToken
    ) -> None:
        """Discard a guest's token at a merchant account. May be called twice.

        Raises Unknown if the merchant account never had the token, or if the token belongs to
        another guest.
        """
        with self._database.write() as db:
            are_lost = _lose_cards(
                db,
                "token = ? AND merchant_account = ? AND guest_reference = ?",
                (token, merchant_account, guest_reference),
            )
            if not are_lost and not _was_lost(db, token, merchant_account):
                raise Unknown

    def read_card(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference, token: CardToken
    ) -> CardReading:
        """Return the current state of a guest's card.

        If the card was deleted, the `card` of the returned reading is None. Raises CallRefused if
        the merchant account never had the token, or if the token belongs to another guest.
        """
        found = self._database.read(
            f"{_CARD_PAGE} AND merchant_account = ?", (token, guest_reference, merchant_account)
        )
        card = _decode(found[0]["page"]).card if found else None
        if card is None and not self._database.read(
            "SELECT 1 FROM lost_cards WHERE hash = ?", (_hash(token, merchant_account),)
        ):
            raise CallRefused("no such card")
        return CardReading(card=card, read_at=self.clock.now())

    def charge(self, request: ChargeRequest, idempotency_key: str | None) -> Charge:
        """Charge a guest's card, store the charge with its result, and return the charge.

        A call with the same idempotency key and request returns the same charge. Raises CallRefused
        if the key was used with another request.
        """
        with self._database.write() as db:
            for row in rows(
                db, "SELECT charge FROM charges WHERE idempotency_key = ?", (idempotency_key or "",)
            ):
                known = _CHARGE.decode(str(row["charge"]))
                if msgspec.convert(known, ChargeRequest, from_attributes=True) != request:
                    raise CallRefused("the idempotency key was used with another request")
                return known
            charge = Charge(
                **msgspec.structs.asdict(request),
                id=f"charge_{self._ids.secret()}",
                status=self._answer(db, request),
                idempotency_key=idempotency_key,
                created_at=self.clock.now(),
            )
            db.execute(
                "INSERT INTO charges VALUES (?, ?, ?)",
                (charge.id, idempotency_key, msgspec.json.encode(charge).decode()),
            )
            return charge

    def charges(self) -> Sequence[Charge]:
        """Return the latest charges, at most MAX_LISTED, newest first."""
        found = self._database.read(
            "SELECT charge FROM charges ORDER BY rowid DESC LIMIT ?", (MAX_LISTED,)
        )
        return [_CHARGE.decode(str(row["charge"])) for row in found]

    def list_cards(self, merchant_account: MerchantAccount, after: str | None) -> CardList:
        """Return at most MAX_LISTED of a merchant account's cards, sorted by token.

        The first returned card is the card that follows the token `after`, or the very first card
        if `after` is None.
        """
        found = self._database.read(
            "SELECT guest_reference, token FROM cards WHERE merchant_account = ? AND token > ?"
            " ORDER BY token LIMIT ?",
            (merchant_account, after or "", MAX_LISTED),
        )
        cards = [
            CardAtPsp(GuestReference(str(row["guest_reference"])), CardToken(str(row["token"])))
            for row in found
        ]
        return CardList(cards, cards[-1].token if len(cards) == MAX_LISTED else None)

    def forget_guest(
        self, merchant_account: MerchantAccount, guest_reference: GuestReference
    ) -> None:
        """Delete a guest of a merchant account, with cards and charges. May be called twice.

        The guest's pages are closed, and personal data is removed from them. The pages themselves
        are kept, so that a request with the same idempotency key does not create another page.
        Raises Unknown if the merchant account never had the guest.
        """
        guest = (guest_reference, merchant_account)
        with self._database.write() as db:
            _lose_cards(db, "guest_reference = ? AND merchant_account = ?", guest)
            db.execute("DELETE FROM charges WHERE charge ->> '$.guest_reference' = ?", guest[:1])
            deleted = db.execute(
                "DELETE FROM guests WHERE reference = ? AND merchant_account = ?", guest
            )
            if deleted.rowcount:
                _note_lost(db, *guest)
            elif not _was_lost(db, *guest):
                raise Unknown
            found = rows(
                db,
                "SELECT page FROM pages WHERE page ->> '$.guest_reference' = ?"
                " AND page ->> '$.request.merchant_account' = ?",
                guest,
            )
            for page in map(_forgotten, (_decode(row["page"]) for row in found)):
                db.execute(
                    "UPDATE pages SET page = ? WHERE reference = ?", (_encode(page), page.reference)
                )
        self._database.empty_log()

    def holds(self, token: CardToken) -> bool:
        """Return whether a token can still be charged."""
        return bool(self._database.read("SELECT 1 FROM cards WHERE token = ?", (token,)))

    def tokens(self, merchant_account: MerchantAccount) -> frozenset[CardToken]:
        """Return every token that can still be charged at a merchant account."""
        found = self._database.read(
            "SELECT token FROM cards WHERE merchant_account = ?", (merchant_account,)
        )
        return frozenset(CardToken(str(row["token"])) for row in found)

    def form_token(self, reference: str) -> str:
        """Return the secret token in the forms of a page. Another site cannot know this token."""
        return hmac.new(self._form_key, reference.encode(), hashlib.sha256).hexdigest()

    def take_due_event(self, now: datetime, *, until: datetime) -> DueEvent | None:
        """Lease the event that has been due for the longest time, and return it.

        Return None if no event is due. The lease ends at `until`. If the event was not removed by
        then, for example because this process was killed, it is due again.
        """
        with self._database.write() as db:
            found = rows(
                db,
                "UPDATE events SET due_at = ?, tries = tries + 1 WHERE id ="
                " (SELECT id FROM events WHERE due_at <= ? ORDER BY due_at LIMIT 1) RETURNING *",
                (until.timestamp(), now.timestamp()),
            )
            for event in found:
                if event["tries"] == 1:
                    self._apply_bank_event(db, _CARD_EVENT.decode(str(event["body"])))
        if not found:
            return None
        event = found[0]
        return DueEvent(
            id=str(event["id"]),
            body=batch(str(event["body"]).encode()),
            age=timedelta(seconds=now.timestamp() - float(event["created_at"])),
            tries=int(event["tries"]),
        )

    def postpone_event(self, event: DueEvent, due_at: datetime) -> None:
        """Make a leased event due again at `due_at`."""
        with self._database.write() as db:
            db.execute("UPDATE events SET due_at = ? WHERE id = ?", (due_at.timestamp(), event.id))

    def remove_event(self, event: DueEvent) -> None:
        """Remove an event that was delivered or given up."""
        with self._database.write() as db:
            db.execute("DELETE FROM events WHERE id = ?", (event.id,))

    def _change(self, reference: str, step: Callable[[PspPage], PspPage]) -> PspPage:
        """Apply `step` to a page, store the changed page, and return it. Raises Unknown.

        If the page's time is up, `step` is not applied, and the page is closed. If the page is over
        after the change, or has refused a card, an event is stored too. If the page was already
        over before, it is returned unchanged, and no event is stored.
        """
        with self._database.write() as db:
            page = _only_page(rows(db, "SELECT page FROM pages WHERE reference = ?", (reference,)))
            if page.is_over:
                return page
            page = _closed(page) if self.clock.now() >= page.ends_at else step(page)
            db.execute("UPDATE pages SET page = ? WHERE reference = ?", (_encode(page), reference))
            if page.state is PageState.COMPLETED and page.card is not None:
                db.execute(
                    "INSERT INTO cards VALUES (?, ?, ?)",
                    (page.card.token, page.request.merchant_account, page.guest_reference),
                )
                kind = _CARD_EVENTS.get(page.card.last_four)
                if kind is not None:
                    self._write_event(
                        db, kind, page, about={"card": page.card.token}, after=BANK_ACTS_AFTER
                    )
            about = {"page": page.reference, "token_id": page.request.token_id}
            if page.is_over:
                self._write_event(db, f"page.{page.state}", page, about=about)
            elif page.refusal is not None:
                self._write_event(db, CARD_REFUSED, page, about=about)
        self.events_written.set()
        return page

    def _write_event(
        self,
        db: Database,
        kind: str,
        page: PspPage,
        *,
        about: Mapping[str, str],
        after: timedelta = timedelta(0),
    ) -> None:
        due_at = (self.clock.now() + after).timestamp()
        event = {
            "id": f"event_{self._ids.secret()}",
            "type": kind,
            "created": int(due_at),
            "merchant_account": page.request.merchant_account,
            **about,
        }
        db.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, 0)",
            (event["id"], msgspec.json.encode(event).decode(), due_at, due_at),
        )

    def _apply_bank_event(self, db: Database, event: CardEvent) -> None:
        """Reissue or delete the card that `event` is about, as its bank would.

        Nothing changes if the card is no longer stored. Events about pages are passed to this
        method too. They name no card, so they change nothing.
        """
        found = rows(db, f"SELECT page FROM pages WHERE {CARD_ON_PAGE} = ?", (event.card,))  # noqa: S608 - a constant
        if event.type == LOST:
            _lose_cards(db, "token = ?", (event.card,))
        for page in (_decode(row["page"]) for row in found if event.type == REISSUED):
            card = page.card and replace(
                page.card,
                fingerprint=self._fingerprint(page, REISSUED_AS),
                last_four=REISSUED_AS[-4:],
                expiry_year=page.card.expiry_year + YEARS_MORE,
            )
            db.execute(
                "UPDATE pages SET page = ? WHERE reference = ?",
                (_encode(replace(page, card=card)), page.reference),
            )

    def _answer(self, db: Database, request: ChargeRequest) -> ChargeStatus:
        found = rows(db, _CARD_PAGE, (request.token, request.guest_reference))
        card = _decode(found[0]["page"]).card if found else None
        if card is None:
            return ChargeStatus.CARD_GONE
        if card.has_expired(self.clock.now()):
            return ChargeStatus.DECLINED
        return _ANSWERS.get(card.last_four, ChargeStatus.APPROVED)

    def _guest(self, db: Database, request: HostedPageRequest) -> GuestReference:
        known = request.guest_reference
        if known and rows(
            db,
            "SELECT 1 FROM guests WHERE reference = ? AND merchant_account = ?",
            (known, request.merchant_account),
        ):
            return known
        reference = GuestReference(f"guest_{self._ids.secret()}")
        db.execute("INSERT INTO guests VALUES (?, ?)", (reference, request.merchant_account))
        return reference

    def _card(self, page: PspPage, entry: CardEntry, published: PublishedCard) -> Card:
        return Card(
            guest_reference=page.guest_reference,
            token=CardToken(f"card_{self._ids.secret()}"),
            fingerprint=self._fingerprint(page, entry.number),
            card_logo=published.brand,
            last_four=entry.number[-4:],
            expiry_month=entry.expiry_month,
            expiry_year=entry.expiry_year,
            funding=published.funding,
            issuer_country=ISSUER_COUNTRY,
        )

    def _fingerprint(self, page: PspPage, number: str) -> str:
        keyed = f"{page.request.merchant_account}\n{number}".encode()
        return hmac.new(self._fingerprint_key, keyed, hashlib.sha256).hexdigest()

    def _collected(self, page: PspPage) -> PspPage:
        return replace(page, state=PageState.COMPLETED, collected_at=self.clock.now(), typed={})


def _refused(page: PspPage, refusal: CardRefusal) -> PspPage:
    page = replace(page, state=PageState.OPEN, card=None, refusal=refusal, last_refusal=refusal)
    return page if page.attempts < MAX_CARD_ATTEMPTS else _closed(page)


def _closed(page: PspPage) -> PspPage:
    return replace(page, state=PageState.CLOSED, card=None, typed={})


def _lose_cards(db: Database, condition: str, values: Sequence[str]) -> bool:
    """Delete the cards that match an SQL condition, and return whether there were any.

    `values` are the parameters of `condition`. A hash of each deleted card is stored, so that the
    PSP can later tell a deleted card from an unknown card.
    """
    gone = rows(
        db,
        f"DELETE FROM cards WHERE {condition} RETURNING token, merchant_account",  # noqa: S608 - constants
        values,
    )
    for row in gone:
        _note_lost(db, str(row["token"]), str(row["merchant_account"]))
    return bool(gone)


def _note_lost(db: Database, reference: str, merchant_account: str) -> None:
    """Store a hash of a deleted card's token, or of a deleted guest's reference."""
    hashed = _hash(reference, merchant_account)
    db.execute("INSERT OR IGNORE INTO lost_cards VALUES (?)", (hashed,))


def _was_lost(db: Database, reference: str, merchant_account: str) -> bool:
    hashed = _hash(reference, merchant_account)
    return bool(rows(db, "SELECT 1 FROM lost_cards WHERE hash = ?", (hashed,)))


def _hash(token: str, merchant_account: str) -> str:
    return hashlib.sha256(f"{merchant_account}/{token}".encode()).hexdigest()


def _forgotten(page: PspPage) -> PspPage:
    request = replace(page.request.without_personal_data(), guest_reference=None)
    return replace(_closed(page), request=request, guest_reference=GuestReference(""))


def _avs_result(page: PspPage, published: PublishedCard) -> AvsResult:
    if not page.request.avs:
        return AvsResult.NOT_CHECKED
    wrong = published.behaviour is Behaviour.WRONG_ADDRESS
    return AvsResult.MISMATCH if wrong else AvsResult.MATCH


def _only_page(found: list[Row]) -> PspPage:
    if not found:
        raise Unknown
    return _decode(found[0]["page"])


def _encode(page: PspPage) -> str:
    return msgspec.json.encode(page).decode()


def _decode(page: str | float) -> PspPage:
    try:
        return _PAGE.decode(str(page))
    except msgspec.MsgspecError as error:
        raise PspUnavailable from error


_CHARGE: Final = msgspec.json.Decoder(Charge)
_PAGE: Final = msgspec.json.Decoder(PspPage)
_CARD_EVENT: Final = msgspec.json.Decoder(CardEvent)
