"""Record the refused cards of a page, and make the guest's other open pages due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from domain.centers.card_limit import CardLimit
from domain.events.event import EventType
from domain.events.note_event import NoteEvent
from domain.psps.hosted_page import Reported
from domain.sessions.card_testing import limits_that_close_pages, must_close_page
from domain.sessions.end import SessionStatus
from domain.sessions.note_session_event import note_session_event
from domain.sessions.refused_card import RefusedCard
from domain.sessions.session import CardSession
from domain.storage import Storage, WriteUnit

MAX_REFUSED_ON_PAGE: Final = 100
"""The maximum number of refused cards that are recorded for one page, whatever the PSP reports."""

MAX_DECLINED_EVENTS: Final = 10
"""The maximum number of `session.card_declined` events that a session causes, so that card testing
does not flood the readers of events.
"""


def note_refused_cards(
    unit: WriteUnit,
    note_event: NoteEvent,
    asked: CardSession,
    outcome: Reported,
    changed: CardSession,
    *,
    now: datetime,
) -> int:
    """Record the cards that were refused on a page, by the PSP or by a rule of cardonfile.

    `asked` is the state of the session when the PSP was asked about its page, `outcome` is the
    answer, and `changed` is the session after the outcome was applied. Each card is recorded once,
    even if it is reported several times. The PSP's refusal code is stored with the last card that
    the PSP refused.

    For each card that was not recorded yet, `session.card_declined` is noted, unless the session
    failed because of the card. Return how many cards refused by the PSP were not recorded yet. The
    caller commits the unit, and then calls `ask_about_open_pages`.
    """
    by_page = min(outcome.refused_cards, MAX_REFUSED_ON_PAGE) if outcome else 0
    code = outcome.refusal_code if outcome else None
    is_refused_by_rule = changed.status is SessionStatus.FAILED or changed.not_accepted is not None
    by_rule = unit.refused_cards.add(
        [_refused(changed, changed, 0, changed.not_accepted, now)] if is_refused_by_rule else []
    )
    declined = unit.refused_cards.add(
        _refused(asked, changed, number, code if number == by_page else None, now)
        for number in range(1, by_page + 1)
    )
    reasons = [*[None] * (declined - 1), code] if declined else []
    if by_rule and changed.status is not SessionStatus.FAILED:
        reasons.append(changed.not_accepted)
    if reasons:
        before = len(unit.refused_cards.of(changed.token_id)) - len(reasons)
        for reason in reasons[: max(MAX_DECLINED_EVENTS - before, 0)]:
            note_session_event(
                unit,
                note_event,
                EventType.SESSION_CARD_DECLINED,
                changed,
                reason=reason,
                now=now,
            )
    return declined


def _refused(
    session: CardSession, changed: CardSession, number: int, code: str | None, now: datetime
) -> RefusedCard:
    return RefusedCard(
        token_id=session.token_id,
        attempt=session.current_attempt.request.attempt,
        number=number,
        # The guest may have been merged since the PSP was asked.
        guest_id=changed.guest_id,
        caller=session.caller,
        center_id=session.center_id,
        refused_at=now,
        code=code,
    )


def ask_about_open_pages(
    storage: Storage, limits: Sequence[CardLimit], session: CardSession, now: datetime
) -> None:
    """Make the guest's other open pages due after the page of `session` has refused a card.

    The PSP is then asked about them, and refused cards of these pages are counted. If too many
    cards were refused, the page of `session` also becomes due, and all these pages are closed when
    they are settled. Nothing becomes due if none of the session's limits is a limit that closes
    pages (`limits_that_close_pages`).

    May be called more than once. If the process dies before this call, the PSP is asked about each
    page at the next poll.
    """
    if not limits_that_close_pages(limits, session):
        return
    with storage.read() as unit:
        is_limit_reached = must_close_page(unit, limits, session, now)

    def make_due(unit: WriteUnit) -> None:
        # This needs a separate unit. Two units that each held a lock on a session would wait for
        # each other.
        except_for = None if is_limit_reached else session.token_id
        unit.sessions.make_pages_due(session.guest_id, now, except_for=except_for)
        unit.commit()

    storage.transact(make_due)
