"""The click with which a guest agrees to the terms of a booking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Final

from domain.agreements.reservation_text import ShownText
from domain.agreements.terms import AgreementTerms
from domain.psps.hosted_page import Consent

WITH_CARD_ON_FILE: Final = 0
"""The value of `AgreementClick.attempt` if the guest used a card on file. Such a click does not
open a page of the PSP, so it does not belong to an attempt.
"""

MAX_CLICKS: Final = 20
"""The maximum number of clicks that are stored for an attempt. The number is limited because
anybody with the link can click.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherBooking:
    """Another booking whose terms the guest accepts with the same click, and the text about it.

    A guest who replaces a card accepts once more the terms of all bookings that the card
    guarantees.
    """

    terms: AgreementTerms
    shown: ShownText
    kept_until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAgreement:
    """The texts of a page that asks the guest to agree to charges for bookings.

    The page also has a box, which is not ticked in advance. A guest who ticks the box also agrees
    to `general`. The card then stays on file even when `kept_until` has passed.
    """

    text: ShownText
    general: Consent
    kept_until: datetime
    further: tuple[FurtherBooking, ...] = ()

    @property
    def texts(self) -> Sequence[str]:
        """The texts about the bookings, one text for each booking."""
        return [self.text.text, *(each.shown.text for each in self.further)]

    @property
    def on_psp_page(self) -> Consent:
        """The line about the booking that the PSP's page shows, as a `Consent`."""
        text = self.text
        return Consent(version=text.version, text=text.on_psp_page, language=text.language)

    @property
    def digest(self) -> str:
        """A hash of all texts. The page's form sends the hash to state what the guest agrees to."""
        words = (self.text.version, self.text.language, *self.texts, self.text.button)
        return sha256("\n".join((*words, self.general.digest)).encode()).hexdigest()

    def clicked(
        self, *, attempt: int, browser: str, keeps: bool, now: datetime, card: str | None = None
    ) -> AgreementClick:
        """Return the record of a click on the button. `keeps` is whether the box was ticked.

        `card` is the card on file that the guest used, such as `visa 4242`, or None.
        """
        return AgreementClick(
            attempt=attempt,
            browser=browser,
            agreed_at=now,
            shown=self.text,
            kept_until=self.kept_until,
            general=self.general if keeps else None,
            card=card,
            further=self.further,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementClick:
    """A guest's click on cardonfile's page, before the PSP's page of an `attempt` is opened.

    `browser` is the hash of the secret in the browser's cookie, so that only the same browser can
    go on to the PSP's page. If the guest used a card on file, there is no such page, and `browser`
    is "".

    `shown` is the text that the guest read. `general` is the text to which the guest agreed by
    ticking the box, or None. `card` is the card on file that the guest used, such as `visa 4242`,
    or None if the guest went on to type in a card.
    """

    attempt: int
    browser: str
    agreed_at: datetime
    shown: ShownText
    kept_until: datetime
    general: Consent | None = None
    card: str | None = None
    further: tuple[FurtherBooking, ...] = ()

    @property
    def consent(self) -> Consent:
        """The consent for the card: `general` if the box was ticked, otherwise the shown text."""
        text = self.shown
        own = Consent(version=text.version, text=text.text, language=text.language)
        return self.general or own


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserOfClick:
    """The IP address and the User-Agent of the browser in which a guest clicked."""

    clicked_at: datetime
    address: str
    user_agent: str


def with_click(
    clicks: Sequence[AgreementClick], click: AgreementClick
) -> tuple[AgreementClick, ...]:
    """Return the clicks with `click` added, unless it repeats the last click of its attempt.

    For each attempt, the first click and the latest clicks are kept, at most MAX_CLICKS together.
    """
    same = [each for each in clicks if each.attempt == click.attempt]
    others = [each for each in clicks if each.attempt != click.attempt]
    if same and replace(same[-1], agreed_at=click.agreed_at) == click:
        return tuple(clicks)
    return (*others, *same[:1], *same[1:][-MAX_CLICKS + 2 :], click)


def click_for(
    clicks: Sequence[AgreementClick], attempt: int, collected_at: datetime
) -> AgreementClick | None:
    """Return the click of an attempt that applies to the card collected at `collected_at`.

    This is the attempt's latest click at or before that time. If all clicks are later, it is the
    first click. Return None if the attempt has no clicks. That is the case if an earlier release
    opened the attempt's page, because that release did not ask for a click.

    The guest may have clicked in several browsers, and it is unknown in which of them the guest
    typed in the card. The returned click therefore includes `general` only if, in each browser, the
    latest click at or before `collected_at` includes `general`.
    """
    same = [each for each in clicks if each.attempt == attempt]
    if not same:
        return None
    before = [each for each in same if each.agreed_at <= collected_at] or same[:1]
    latest = {each.browser: each for each in before}
    has_all = all(each.general is not None for each in latest.values())
    return before[-1] if has_all else replace(before[-1], general=None)
