"""Start a session in which a guest adds a card (`addCard` in the HTTP API)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from domain.agreements.agreement import MAX_OPEN_AGREEMENTS, Agreement, count_open
from domain.agreements.locale_formats import LocaleFormats
from domain.cards.account import Account
from domain.centers.card_limit import CardLimit
from domain.centers.center import parse_center_id
from domain.centers.configure_payments import LoadedPsp
from domain.centers.payment_configuration import (
    CardsPerGuest,
    PaymentConfiguration,
)
from domain.centers.queries import takes_agreements
from domain.errors import (
    AgreementReferenceUsed,
    CenterKeepsOneCard,
    ConsentNotSet,
    GuestIdNotUsable,
    GuestNotFound,
    IdempotencyKeyInvalid,
    IdempotencyKeyReused,
    InvalidCenterId,
    InvalidField,
    PaymentConfigurationNotDone,
    TooManyAgreements,
)
from domain.identifiers import CallerName, ProviderName, TokenId, link_key_from
from domain.outside import Clock, Ids, Trace, Traces
from domain.permissions import MAY_ADD_CARDS, MAY_VIEW_GUESTS, Caller
from domain.sessions.address_verification import PostalCodes, require_billing_address
from domain.sessions.card_testing import require_below_limits
from domain.sessions.find_session import may_have_link
from domain.sessions.request import AddCardRequest, RequestedSession
from domain.sessions.session import IDEMPOTENCY_KEY_LIFETIME, CardSession, half_of_lifetime
from domain.sessions.session_log import SessionLog, SessionStep, Step
from domain.storage import Storage, UnitOfWork, WriteUnit

_ANY_TIME: Final = datetime.min.replace(tzinfo=UTC)
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"')


class StartedSession(NamedTuple):
    """A session, and whether an earlier request with the same idempotency key started it."""

    session: CardSession
    is_replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AddCard:
    """Use case: store a new session that adds a card, and return the session.

    The PSP is not called yet, because the page is created when the guest's browser opens the link.
    A refused request stores nothing. `limits` protect against card testing.

    If the same caller repeats a request with the same idempotency key within 24 hours, the same
    session is returned.

    If the request contains an agreement, and there is an earlier session for the same booking, the
    earlier session is returned. This also applies if the request has another idempotency key, which
    then refers to the earlier session. A new session for the booking is started only in one of
    these cases: the link of the earlier session has ended without a card, the card of that session
    was removed, or the agreement has ended.

    Raises, in this order:

    - UserNotAuthorized, InvalidCenterId
    - RedirectUriRequired or RedirectUriInvalid, InvalidSource, BillingInfoInvalid
    - InvalidField (link_minutes, locale, reference, authentication, agreement)
    - IdempotencyKeyInvalid or IdempotencyKeyReused, AgreementReferenceUsed
    - GuestIdNotUsable or GuestNotFound, PaymentConfigurationNotDone
    - with an agreement, ConsentNotSet or TooManyAgreements; without an agreement,
      CenterKeepsOneCard
    - InvalidField if the center's PSP cannot require authentication
    - BillingInfoRequired or IncorrectBillingAddress, CardLimitReached
    """

    needs = MAY_ADD_CARDS

    storage: Storage
    limits: Sequence[CardLimit]
    postal_codes: PostalCodes
    psps: Mapping[ProviderName, LoadedPsp]
    formats: LocaleFormats
    clock: Clock
    ids: Ids
    traces: Traces
    log: SessionLog

    def __call__(self, caller: Caller, request: AddCardRequest) -> StartedSession:
        caller.require(self.needs)
        center_id = parse_center_id(request.center_id)
        caller.require_center(center_id)
        now = self.clock.now()
        # If the clock has jumped, less than a day may have passed.
        is_steady = self.clock.is_steady()
        keys_since = now - IDEMPOTENCY_KEY_LIFETIME if is_steady else _ANY_TIME
        with self.storage.read() as unit:
            configuration = unit.configurations.get(center_id)
            if configuration is None and unit.centers.get(center_id) is None:
                raise InvalidCenterId
            wanted = request.parsed(
                center_id, configuration, decimals_of=self.formats.decimals_of, now=now
            )
            key = parse_idempotency_key(request.idempotency_key)
            # Before 0.3, a quoted key was stored with its quotes.
            stored_as = dict.fromkeys(filter(None, (key, request.idempotency_key)))
            used = (unit.idempotency_keys.get(caller.name, k, since=keys_since) for k in stored_as)
            if used_for := next(filter(None, used), None):
                if wanted.guest_id and unit.erasures.get(wanted.guest_id):
                    raise GuestNotFound
                return StartedSession(
                    _replayed(unit.sessions.get(used_for), wanted), is_replayed=True
                )
            if earlier := _session_of_booking(unit, wanted, now):
                session = _same_booking(caller, earlier, wanted)
                if key is None:
                    return StartedSession(session, is_replayed=True)
            else:
                session = self._session(unit, caller, wanted, configuration, now)
                limits = session.configuration.card_limits(self.limits)
                require_below_limits(unit, limits, session, now)
        return self._stored(caller, session, earlier, key, keys_since, now)

    def _session(
        self,
        unit: UnitOfWork,
        caller: Caller,
        wanted: RequestedSession,
        configuration: PaymentConfiguration | None,
        now: datetime,
    ) -> CardSession:
        """Return a new session for the request.

        Raises a refusal if the guest may not add a card at the center."""
        if not wanted.guest_id:
            raise GuestIdNotUsable
        if unit.guests.get(wanted.guest_id) is None:
            raise GuestNotFound
        if configuration is None or unit.merchant_standings.of(configuration.psp_account).is_closed:
            raise PaymentConfigurationNotDone
        on_file = unit.accounts.active_at(wanted.guest_id, wanted.center_id)
        if wanted.agreement is not None:
            # The guest may use the card on file, so another card is refused only when it is typed
            # in.
            self._require_agreements(unit, wanted, on_file, now)
        elif configuration.cards_per_guest is CardsPerGuest.ONE and on_file:
            raise CenterKeepsOneCard
        if psp := self.psps.get(configuration.provider):
            psp.capabilities.require_authentication(wanted.authentication, configuration.provider)
        if configuration.avs:
            require_billing_address(wanted.billing_info, self.postal_codes)
        return new_session(
            wanted,
            configuration,
            caller=caller.name,
            shows_guest=caller.may(MAY_VIEW_GUESTS),
            ids=self.ids,
            trace=self.traces.current(),
            now=now,
        )

    def _require_agreements(
        self, unit: UnitOfWork, wanted: RequestedSession, on_file: Sequence[Account], now: datetime
    ) -> None:
        """Raise a refusal if the guest cannot make the requested agreement at the center.

        The refusal is ConsentNotSet, InvalidField for `replaces`, or TooManyAgreements if all cards
        of the guest already have the maximum number of open agreements.
        """
        center = unit.centers.get(wanted.center_id)
        if center is None or not takes_agreements(unit, center):
            raise ConsentNotSet
        replaces = wanted.agreement.replaces if wanted.agreement else None
        former = unit.agreements.get(replaces) if replaces else None
        is_former = former is not None and (former.guest_id, former.center_id) == (
            wanted.guest_id,
            wanted.center_id,
        )
        if replaces and not (former and is_former and former.is_open(now)):
            raise InvalidField(
                "agreement.replaces", "an open agreement of the guest at this center"
            )
        is_full = [
            count_open(unit.agreements.of_account(account.account_id), now, except_for=[replaces])
            >= MAX_OPEN_AGREEMENTS
            for account in on_file
        ]
        if is_full and all(is_full):
            raise TooManyAgreements

    def _stored(
        self,
        caller: Caller,
        session: CardSession,
        earlier: CardSession | None,
        key: str | None,
        keys_since: datetime,
        now: datetime,
    ) -> StartedSession:
        """Store a new session and its idempotency key, and return the session.

        If there is an `earlier` session, store only the key, and return the earlier session.
        """

        def store(unit: WriteUnit) -> CardSession:
            # Another request may have started a session for the booking since it was looked up.
            of_booking = earlier or _session_of_booking(unit, session, now)
            named = of_booking or session
            if key:
                # Another request may have used the key since it was first looked up.
                holder = unit.idempotency_keys.claim(
                    caller.name, key, named.token_id, now=now, since=keys_since
                )
                if holder != named.token_id:
                    return _replayed(unit.sessions.get(holder), session)
            if of_booking is not None:
                same = _same_booking(caller, of_booking, session)
                unit.commit()
                return same
            if unit.erasures.get(session.guest_id) is not None:
                raise GuestNotFound
            # Other requests may have arrived since the limits were checked. A guest has few
            # sessions, so the guest's limits are checked again, and are exact. The limits of a
            # caller and a center may be exceeded by the number of concurrent requests.
            limits = session.configuration.card_limits(self.limits)
            of_guest = [limit for limit in limits if limit.is_per_guest]
            require_below_limits(unit, of_guest, session, now)
            unit.sessions.add(session)
            if session.agreement is not None:
                unit.agreements.name_session(
                    session.guest_id,
                    session.center_id,
                    session.agreement.reference,
                    session.token_id,
                )
            unit.commit()
            return session

        stored = self.storage.transact(store)
        is_new = earlier is None and stored is session
        if is_new:
            self.log(SessionStep(Step.CREATED, session))
        return StartedSession(stored, is_replayed=not is_new)


def new_session(
    wanted: RequestedSession,
    configuration: PaymentConfiguration,
    *,
    caller: CallerName,
    shows_guest: bool,
    ids: Ids,
    trace: Trace | None,
    now: datetime,
) -> CardSession:
    """Return an open session for a request.

    `CardSession` describes the parameters `configuration`, `shows_guest` and `trace`.
    """
    expires_at = now + configuration.link_lifetime(wanted.link_minutes)
    if wanted.agreement is not None:
        expires_at = min(expires_at, wanted.agreement.ends_at.astimezone(UTC))
    return CardSession(
        **wanted.requested,
        token_id=TokenId(ids.uuid()),
        caller=caller,
        configuration=configuration,
        created_at=now,
        expires_at=expires_at,
        due_at=expires_at,
        shows_guest=shows_guest,
        link_key=link_key_from(ids.secret()),
        trace=trace,
        unopened_at=half_of_lifetime(now, expires_at),
    )


def _replayed(earlier: CardSession | None, wanted: RequestedSession) -> CardSession:
    if earlier is None or earlier.requested != wanted.requested:
        raise IdempotencyKeyReused
    return earlier


def _session_of_booking(
    unit: UnitOfWork, wanted: RequestedSession, now: datetime
) -> CardSession | None:
    """Return the earlier session for the same booking, or None if the guest needs a new link.

    The earlier session is returned if its link still works. It is also returned if its card is on
    file and its agreement is open.
    """
    if wanted.agreement is None or not wanted.guest_id:
        return None
    token_id = unit.agreements.session_of(
        wanted.guest_id, wanted.center_id, wanted.agreement.reference
    )
    session = unit.sessions.get(token_id) if token_id else None
    if session is None or session.has_link(now) or _still_guarantees(unit, session, now):
        return session
    return None


def _still_guarantees(unit: UnitOfWork, session: CardSession, now: datetime) -> bool:
    """Return whether a session has stored a card that is on file and guarantees the booking."""
    if session.account_id is None:
        return False
    agreements = unit.agreements.of_guest(session.guest_id)
    agreement = next((each for each in agreements if each.token_id == session.token_id), None)
    # A guest who replaces a card agrees to the same booking again.
    while successor := next((each for each in agreements if _is_successor(each, agreement)), None):
        agreement = successor
    # A merge of guests may have moved the agreement to another account of the same card. If an
    # earlier release settled the session, `CompleteAgreements` adds the agreement later, unless
    # that release also showed the page, which then had no button to agree.
    account_id = session.account_id if agreement is None else agreement.account_id
    on_file = unit.accounts.active_at(session.guest_id, session.center_id)
    is_on_file = any(each.account_id == account_id for each in on_file)
    is_open = bool(session.clicks) if agreement is None else agreement.is_open(now)
    return is_on_file and is_open


def _is_successor(agreement: Agreement, former: Agreement | None) -> bool:
    """Return whether an agreement replaces the `former` agreement about the same booking."""
    return (
        former is not None
        and agreement.terms.replaces == former.agreement_id
        and agreement.terms.reference == former.terms.reference
    )


def _same_booking(caller: Caller, earlier: CardSession, wanted: RequestedSession) -> CardSession:
    # The link of another caller's session may show the guest's name.
    if earlier.requested != wanted.requested or not may_have_link(caller, earlier):
        raise AgreementReferenceUsed
    return earlier


def parse_idempotency_key(sent: str | None) -> str | None:
    """Return the idempotency key that was sent, as plain text or as a quoted string (RFC 9651).

    Return None if the client did not send a key. Raises IdempotencyKeyInvalid.
    """
    if sent is None:
        return None
    quoted = _QUOTED.fullmatch(sent)
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else sent
    if not _IDEMPOTENCY_KEY.fullmatch(key):
        raise IdempotencyKeyInvalid
    return key
