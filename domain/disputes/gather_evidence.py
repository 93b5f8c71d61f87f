"""Gather the evidence about a card from its records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from domain.agreements.agreement import Agreement, EndOfAgreement, general_among
from domain.cards.account import Account
from domain.cards.queries import consents_of
from domain.consents.given_consent import GivenConsent
from domain.disputes.evidence import (
    CardHolder,
    CardNow,
    ClockSource,
    DisputeEvidence,
    EndCause,
    Moment,
    RecordedAgreement,
    RecordedConsent,
    RecordedEvent,
    RecordedSession,
    RecordedStep,
    Shown,
    StatedEnd,
)
from domain.events.event import CardSummary, EventDelivery
from domain.identifiers import TOKEN_PREFIX_LENGTH, TokenId
from domain.redirects import redirect_origin
from domain.sessions.session import CardSession
from domain.sessions.trace_session import steps_without_events
from domain.storage import UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherEvidence:
    """Step: gather the evidence about a card from the stored records, even if the card was removed.

    `base_url` is the address at which guests reach this service. After an erasure, the evidence
    contains neither the guest's name and email address nor the client's names for the bookings.
    """

    base_url: str

    def __call__(
        self, unit: UnitOfWork, account: Account, now: datetime, *, shows_guest: bool
    ) -> DisputeEvidence:
        """Return the evidence about an account. Raises RecordUnreadable.

        The evidence includes the guest's name, email address and browsers only if `shows_guest` is
        set.
        """
        guest = unit.guests.get(account.guest_id)
        center = unit.centers.get(account.center_id)
        agreements = unit.agreements.made_with(account.account_id)
        consents = consents_of(unit, account)
        tokens = [each.token_id for each in consents] + [each.token_id for each in agreements]
        sessions = {each: unit.sessions.get(each) for each in (account.token_id, *tokens)}
        by_session = {each.token_id: each for each in agreements}
        return DisputeEvidence(
            service=self.base_url,
            made=_by_service(now),
            guest=CardHolder(
                guest_id=account.guest_id,
                name=guest.full_name if guest and shows_guest else None,
                email=guest.email if guest and shows_guest else None,
            ),
            card=CardNow(
                account_id=account.account_id,
                center_id=account.center_id,
                center_name=center.name if center else None,
                provider=account.provider,
                merchant_account=account.merchant_account,
                details=CardSummary.of(account, authenticated=account.authenticated),
                reported=Moment(
                    at=account.state_as_of,
                    clock=ClockSource.PSP
                    if account.read_at or sessions[account.token_id]
                    else None,
                ),
                stored=_by_service(account.created_at),
                removed=_by_service(account.removed_at) if account.removed_at else None,
                withdrawn=_by_service(account.withdrawn_at) if account.withdrawn_at else None,
            ),
            agreements=[self._agreement(each) for each in agreements],
            consents=[
                self._consent(
                    each,
                    # An erasure clears the record of how the guest agreed.
                    sessions[each.token_id] if guest else None,
                    by_session.get(each.token_id),
                )
                for each in general_among(consents, agreements)
            ],
            sessions=[
                _session(unit, each, shows_guest=shows_guest)
                for each in sessions.values()
                if each is not None
            ],
            events=[_event(unit, each) for each in _deliveries(unit, account, sessions.values())],
        )

    @property
    def _own_page(self) -> str:
        return f"{self.base_url}/hosted-payments"

    def _agreement(self, agreement: Agreement) -> RecordedAgreement:
        shown, reason = agreement.shown, agreement.reason
        is_stated = reason not in (None, EndOfAgreement.REPLACED)
        return RecordedAgreement(
            agreement_id=agreement.agreement_id,
            session=_prefix(agreement.token_id),
            booking=agreement.terms,
            shown=Shown(
                version=shown.version,
                language=shown.language,
                text=shown.text,
                page=self._own_page,
                button=shown.button,
                box=None,
            ),
            agreed=_by_service(agreement.agreed_at),
            kept_until=agreement.kept_until,
            ended=_by_service(agreement.ended_at) if agreement.ended_at else None,
            ended_by=_end_cause(agreement),
            stated_by_the_shop=StatedEnd(reason=reason, at=agreement.stated_at)
            if reason and is_stated
            else None,
        )

    def _consent(
        self, consent: GivenConsent, session: CardSession | None, agreement: Agreement | None
    ) -> RecordedConsent:
        page, clock = None, None
        attempt = session and session.attempt
        if agreement is not None or (attempt and attempt.agreed_at):
            page, clock = self._own_page, ClockSource.SERVICE
        elif session is not None and attempt is not None:
            page, clock = f"the page of {session.configuration.provider}", ClockSource.PSP
        return RecordedConsent(
            session=_prefix(consent.token_id),
            shown=Shown(
                version=consent.version,
                language=consent.language,
                text=consent.text,
                page=page,
                button=agreement.shown.button if agreement else None,
                box=agreement.shown.keep if agreement else None,
            ),
            agreed=Moment(at=consent.agreed_at, clock=clock),
        )


def _by_service(at: datetime) -> Moment:
    return Moment(at=at, clock=ClockSource.SERVICE)


def _prefix(token_id: TokenId) -> str:
    return token_id[:TOKEN_PREFIX_LENGTH]


def _end_cause(agreement: Agreement) -> EndCause | None:
    if agreement.ended_at is None:
        return None
    if agreement.reason is EndOfAgreement.REPLACED:
        return EndCause.REPLACED
    if agreement.ended_at >= agreement.terms.ends_at:
        return EndCause.BOOKING_OVER
    return EndCause.ERASURE if agreement.reason is None else EndCause.SHOP


def _session(unit: UnitOfWork, session: CardSession, *, shows_guest: bool) -> RecordedSession:
    return RecordedSession(
        session=session.prefix,
        status=session.status,
        card_then=session.card,
        steps=[
            RecordedStep(
                at=each.at,
                step=each.step,
                details={name: str(value) for name, value in each.details.items()},
            )
            for each in steps_without_events(unit, session)
        ],
        browsers=(session.browsers or ()) if shows_guest else (),
    )


def _deliveries(
    unit: UnitOfWork, account: Account, sessions: Iterable[CardSession | None]
) -> Sequence[EventDelivery]:
    # If an agreement was moved to this account, its session's events name another account.
    found = [
        *unit.event_deliveries.of_account(account.account_id),
        *(
            delivery
            for each in sessions
            if each is not None
            for delivery in unit.event_deliveries.of_session(each.token_id, since=each.created_at)
        ),
    ]
    by_key = {
        (each.event.occurred_at, each.event.event_id, each.endpoint_id): each for each in found
    }
    return [by_key[key] for key in sorted(by_key)]


def _event(unit: UnitOfWork, delivery: EventDelivery) -> RecordedEvent:
    endpoint = unit.event_endpoints.get(delivery.endpoint_id)
    return RecordedEvent(
        event_id=delivery.event.event_id,
        type=delivery.event.type,
        occurred_at=delivery.event.occurred_at,
        # The path is left out, because it may contain a secret of the shop.
        to=redirect_origin(endpoint.url) if endpoint else None,
        delivery=delivery.status,
        attempted_at=delivery.attempted_at,
    )
