"""Decide what follows from a PSP's report about a session. This module does no input or output.

The verdict contains the new states of the session, the guest's account and the collected token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from domain.agreements.agreement import MAX_OPEN_AGREEMENTS, Agreement, last_kept_until
from domain.agreements.click import AgreementClick, FurtherBooking, click_for
from domain.billing import AvsResult
from domain.cards.account import READ_FIRST_AFTER, Account, has_default, longest_kept
from domain.cards.discard import Discard, UnkeptToken
from domain.centers.payment_configuration import CardsPerGuest
from domain.consents.given_consent import GivenConsent
from domain.errors import (
    AgreementEnded,
    CardIncomplete,
    CenterKeepsOneCard,
    GuestNotFound,
    IncorrectBillingAddress,
    InvalidCenterId,
    PaymentConfigurationNotDone,
    PaymentMethodAlreadyExists,
    Refusal,
    TooManyAgreements,
)
from domain.events.event import CardSummary, EventType
from domain.identifiers import AccountId, AgreementId
from domain.psps.hosted_page import (
    Authentication,
    CardCollected,
    NoCardCollected,
    PageClosed,
    PageUnknown,
    Reported,
)
from domain.psps.payment_provider import is_confirmed
from domain.sessions.end import NotAccepted
from domain.sessions.polling import POLL_EVERY
from domain.sessions.session import CardSession

WAIT_FOR_DISCARD: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnFile:
    """The stored records that are needed to judge a card. All of them were read under lock.

    `accounts` are the guest's active accounts at the center, and `removed_by_guest` are the
    accounts there that the guest removed. If the session has an agreement, `open_agreements` is the
    number of open agreements of each account, without those that the session replaces. `discard` is
    the discard of the collected token, or None.

    `has_bookings` is False if the guest replaces a card, but an agreement that the session would
    replace was ended by the shop, replaced by the guest, or deleted. Otherwise, `has_bookings` is
    True.

    `has_guest`, `has_center` and `has_configuration` are whether these records still exist, because
    they may have been deleted since add-card.
    """

    accounts: Sequence[Account]
    open_agreements: Mapping[AccountId, int]
    discard: Discard | None
    has_guest: bool
    has_center: bool
    has_configuration: bool
    has_bookings: bool = True
    removed_by_guest: Sequence[Account] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The records to store after an outcome.

    - `session` replaces the current session.
    - `added` is a new account.
    - `renewed` replaces the stored account that has the same id.
    - `kept` is an account whose card stays as it is, because the guest gave the account's current
      consent after the card was collected. The account's `keep_until` may be later than before.
    - `doubted` is the account of a card that the guest typed in again. The card is read at the PSP
      at once, because the PSP may have lost it.
    - `consent` is the consent for the account that is added, renewed or kept.
    - `agreements` are the guest's agreements about bookings.
    - `unkept` is the token to discard: the collected token, or the former token of the renewed
      account.
    - `withdrawn` is the discard of a token that is kept after all.
    """

    session: CardSession
    added: Account | None = None
    renewed: Account | None = None
    doubted: Account | None = None
    kept: Account | None = None
    consent: GivenConsent | None = None
    agreements: Sequence[Agreement] = ()
    unkept: UnkeptToken | None = None
    withdrawn: Discard | None = None

    @property
    def account_events(self) -> Iterator[tuple[EventType, Account]]:
        """The events about accounts, without the event about the session."""
        if self.added is not None:
            yield EventType.ACCOUNT_STORED, self.added
        if self.renewed is not None:
            yield EventType.ACCOUNT_RENEWED, self.renewed
        if self.kept is not None and not self.agreements:
            # If there are agreements, the events about them report how the session ended.
            yield EventType.ACCOUNT_RENEWED, self.kept


def judge(
    asked: CardSession, current: CardSession, outcome: Reported, now: datetime
) -> Verdict | None:
    """Judge every outcome that `judge_card` does not judge. Return None if nothing changes.

    `asked` is the state of the session when the PSP was asked, and `current` is its present state.
    The order of the cases matters, because only the first case that matches applies.
    """
    match outcome:
        case CardCollected() | NoCardCollected() if not current.has_page_of(asked):
            # The session stays open because of the guest's current page.
            return Verdict(session=current, unkept=_token(current, outcome))
        case _ if current.is_settled:
            return None
        case NoCardCollected(missing=str()) if not is_confirmed(
            current.current_attempt.unknown_since, now
        ):
            # The PSP may report more about the card a moment later.
            return Verdict(session=current.page_unknown(now))
        case NoCardCollected(missing=str()):
            return Verdict(
                session=current.failed(CardIncomplete(), now), unkept=_token(current, outcome)
            )
        case NoCardCollected():
            return Verdict(session=current.without_card(now), unkept=_token(current, outcome))
        case _ if not current.has_attempt_of(asked):
            # Another attempt replaced the attempt of this outcome.
            return None
        case None:
            return Verdict(session=current.psp_unavailable(now))
        case PageClosed():
            return Verdict(session=current.without_card(now))
        case PageUnknown():
            return Verdict(session=current.page_unknown(now))
        case _:
            return Verdict(session=current.still_pending(now))


def judge_token(
    session: CardSession, collected: CardCollected, discard: Discard | None, now: datetime
) -> Verdict | None:
    """Judge the token of a collected card. Return None if the card may be stored.

    A card is not stored if its token was discarded after the card was collected, or if the card was
    collected after the session had been cancelled. In both cases, the page is over.

    While the token is being discarded, the session waits for the end of the discard. It does not
    wait if the page is already over because the center did not accept the card.
    """
    if session.not_accepted is not None and session.current_attempt.over and discard is not None:
        # A PSP that refuses the discard must not keep the session open.
        return Verdict(session=session.without_card(now), unkept=_token(session, collected))
    is_cancelled = (
        session.cancelled_at is not None and collected.collected_at > session.cancelled_at
    )
    if not is_cancelled:
        # Some PSPs return the same token when the guest types the same card again.
        session = replace(session, not_accepted=_not_accepted(session, collected))
    if not is_cancelled and discard is not None and discard.in_progress_until is not None:
        soon, later = now + WAIT_FOR_DISCARD, now + POLL_EVERY
        due_at = min(max(discard.in_progress_until, soon), later)
        return Verdict(session=session.postponed(due_at))
    is_dead = discard is not None and discard.was_done_after(collected.collected_at)
    if is_cancelled or is_dead:
        return Verdict(session=session.without_card(now), unkept=_token(session, collected))
    return None


def judge_card(
    session: CardSession,
    collected: CardCollected,
    on_file: OnFile,
    *,
    account_id: AccountId,
    agreement_ids: Sequence[AgreementId],
    now: datetime,
) -> Verdict:
    """Judge a card that was collected on the current page of a session that is not settled.

    Call `judge_token` first. The card becomes the account `account_id`, renews the account with the
    same card, or is refused. If the center does not accept the card, the page is over, but the
    session stays open.

    If the guest agreed to charges for bookings, the card gets these agreements, with the ids in
    `agreement_ids`. If the guest withdrew the consent after giving it on this page, the card is
    kept only for these bookings. If there is no booking, and the guest removed the same card after
    giving the consent on this page, the card is not stored again, and the page is over.
    """
    card, discard, configuration = collected.card, on_file.discard, session.configuration
    same = next(
        (one for one in on_file.accounts if one.is_same_card(card, configuration.psp_account)), None
    )
    number = session.current_attempt.request.attempt
    click = click_for(session.clicks or (), number, collected.collected_at)
    refusal = _refusal(session, collected, on_file, same)
    if refusal is None and click is not None and session.agreement is not None:
        refusal = _refusal_of_agreement(session, click, collected, on_file, same, now)
    if isinstance(refusal, NotAccepted):
        return Verdict(
            session=replace(session, not_accepted=refusal).without_card(now),
            unkept=_token(session, collected),
        )
    if refusal is not None:
        is_on_file = isinstance(refusal, PaymentMethodAlreadyExists)
        existing = same if is_on_file else None
        failed = session.failed(refusal, now, existing=existing.account_id if existing else None)
        return Verdict(
            session=failed,
            doubted=existing and replace(existing, due_at=now),
            unkept=_token(session, collected),
        )
    agreed = agreed_to(
        session,
        click,
        collected.collected_at,
        account_id=account_id if same is None else same.account_id,
        agreement_ids=agreement_ids,
    )
    consent, agreements, keep_until = agreed
    withdrawals = [
        each.withdrawn_at
        for each in (*on_file.accounts, *on_file.removed_by_guest)
        if each.is_same_card(card, configuration.psp_account)
        and each.has_withdrawn(consent.agreed_at)
    ]
    if withdrawals:
        # The guest withdrew the consent to keep the card after giving it. Only the bookings remain.
        keep_until = agreed.bookings_until or (same.keep_until if same else None)
        if same is None and keep_until is None:
            return Verdict(session=session.without_card(now), unkept=_token(session, collected))
    # The session keeps a copy, because the account changes when the bank or the guest renews the
    # card.
    session = replace(session, card=CardSummary.of(card, authenticated=collected.authenticated))
    if same is not None:
        if _is_stale(collected, same):
            # An outdated result must not undo a renewal, but the guest's consent and agreements are
            # stored.
            return Verdict(
                session=session.completed(same.account_id, now),
                kept=same.kept_longer(keep_until, consent.version),
                consent=consent,
                agreements=agreements,
                unkept=_token(session, collected),
            )
        has_general = click is None or click.general is not None or same.keep_until is not None
        is_general = has_general and not withdrawals
        # Without a new general consent, an earlier general consent still holds.
        version = consent.version if is_general else same.consent_version
        renewed = same.renewed(collected, consent_version=version, now=now)
        return Verdict(
            session=session.completed(same.account_id, now),
            renewed=replace(renewed, keep_until=longest_kept(keep_until, same.keep_until)),
            consent=consent,
            agreements=agreements,
            unkept=UnkeptToken.of(same),
            withdrawn=discard,
        )
    account = Account(
        **asdict(card),
        account_id=account_id,
        token_id=session.token_id,
        guest_id=session.guest_id,
        center_id=session.center_id,
        provider=configuration.provider,
        merchant_account=configuration.merchant_account,
        source=session.source,
        consent_version=consent.version,
        consented_at=collected.collected_at,
        created_at=now,
        expiry_notice_at=card.next_expiry_notice(now),
        charge_reference=collected.charge_reference,
        network_transaction_id=collected.network_transaction_id,
        authenticated=collected.authenticated,
        is_default=not has_default(on_file.accounts),
        due_at=now + READ_FIRST_AFTER,
        keep_until=keep_until,
        withdrawn_at=max(filter(None, withdrawals), default=None),
    )
    return Verdict(
        session=session.completed(account_id, now),
        added=account,
        consent=consent,
        agreements=agreements,
        withdrawn=discard,
    )


class Agreed(NamedTuple):
    """The consent and the agreements of a guest for one card.

    `keep_until` is None if the guest agreed that the card is kept without an end date.
    """

    consent: GivenConsent
    agreements: Sequence[Agreement]
    keep_until: datetime | None

    @property
    def bookings_until(self) -> datetime | None:
        """The time until which the card is kept for its bookings, or None without bookings."""
        return last_kept_until(self.agreements)


def agreed_to(
    session: CardSession,
    click: AgreementClick | None,
    collected_at: datetime,
    *,
    account_id: AccountId,
    agreement_ids: Sequence[AgreementId],
) -> Agreed:
    """Return the consent and the agreements that the guest gave in a session.

    The guest gave them with `click`, or on the session's page if `click` is None. `agreement_ids`
    are the ids for the agreements, one for each of the session's `bookings`.
    """
    if click is None:
        attempt = session.current_attempt
        shown, agreed_at = attempt.request.consent, attempt.agreed_for(collected_at)
    else:
        shown, agreed_at = click.consent, click.agreed_at
    consent = GivenConsent(
        account_id=account_id,
        token_id=session.token_id,
        version=shown.version,
        language=shown.language,
        text=shown.text,
        agreed_at=agreed_at or collected_at,
    )
    if click is None or session.agreement is None:
        return Agreed(consent, (), None)
    first = FurtherBooking(terms=session.agreement, shown=click.shown, kept_until=click.kept_until)
    agreed = Agreed(
        consent,
        [
            Agreement(
                agreement_id=agreement_id,
                account_id=account_id,
                guest_id=session.guest_id,
                center_id=session.center_id,
                token_id=session.token_id,
                terms=each.terms,
                shown=each.shown,
                agreed_at=click.agreed_at,
                kept_until=each.kept_until,
                due_at=each.terms.ends_at,
            )
            for agreement_id, each in zip(agreement_ids, (first, *click.further), strict=True)
        ],
        None,
    )
    return agreed._replace(keep_until=None if click.general else agreed.bookings_until)


def _token(session: CardSession, collected: CardCollected | NoCardCollected) -> UnkeptToken:
    return UnkeptToken(
        psp_account=session.configuration.psp_account,
        guest_reference=collected.guest_reference,
        token=collected.token,
        collected_at=collected.collected_at,
    )


def _not_accepted(session: CardSession, collected: CardCollected) -> NotAccepted | None:
    """Return the reason why the center does not accept a card, or None if it accepts the card."""
    if not session.configuration.accepts(collected.card):
        return NotAccepted.FUNDING
    is_required = session.required_authentication is Authentication.REQUIRED
    return NotAccepted.AUTHENTICATION if is_required and not collected.authenticated else None


def _refusal(
    session: CardSession,
    collected: CardCollected,
    on_file: OnFile,
    same: Account | None,
) -> Refusal | NotAccepted | None:
    configuration = session.configuration
    if not on_file.has_guest:
        return GuestNotFound()
    if not on_file.has_center:
        return InvalidCenterId()
    if not on_file.has_configuration:
        return PaymentConfigurationNotDone()
    if not_accepted := _not_accepted(session, collected):
        return not_accepted
    if configuration.avs and collected.avs is AvsResult.MISMATCH:
        return IncorrectBillingAddress()
    if same is not None:
        is_known = _is_stale(collected, same) or same.expires_with(collected.card)
        # If the session has an agreement, the card on file gets that agreement too. If the card was
        # kept for bookings only, the guest now agrees that the card is kept.
        is_on_file = is_known and session.agreement is None and same.keep_until is None
        return PaymentMethodAlreadyExists() if is_on_file else None
    replaced = session.replaces.account_id if session.replaces else None
    others = [each for each in on_file.accounts if each.account_id != replaced]
    allows_one = configuration.cards_per_guest is CardsPerGuest.ONE
    return CenterKeepsOneCard() if others and allows_one else None


def _is_stale(collected: CardCollected, same: Account) -> bool:
    """Return whether the card was typed in before the guest gave the account's stored consent."""
    return collected.collected_at < same.consented_at


def _refusal_of_agreement(
    session: CardSession,
    click: AgreementClick,
    collected: CardCollected,
    on_file: OnFile,
    same: Account | None,
    now: datetime,
) -> Refusal | None:
    # If the card was typed in before the booking ended, it is kept until `kept_until` for a
    # no-show.
    is_over = any(collected.collected_at >= each.ends_at for each in session.bookings)
    if is_over or now >= click.kept_until or not on_file.has_bookings:
        return AgreementEnded()
    count = 0 if same is None else on_file.open_agreements.get(same.account_id, 0)
    has_room = count + len(session.bookings) <= MAX_OPEN_AGREEMENTS
    return None if has_room else TooManyAgreements()
