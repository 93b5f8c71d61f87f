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
"""The `attempt` of a click with which the guest used a card on file: no page followed."""

MAX_CLICKS: Final = 20
"""The most clicks that are kept of one attempt. Anybody with the link can cause them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherBooking:
    """Another booking to which the guest agrees by the same click, with the text as shown.

    A guest who replaces a card agrees again to all bookings that it guarantees.
    """

    terms: AgreementTerms
    shown: ShownText
    kept_until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAgreement:
    """What a page asks the guest to agree to: the texts about the bookings, and a box.

    The box is not ticked in advance. If the guest ticks the box, the guest also agrees to
    `general`, and the card is kept after `kept_until`.
    """

    text: ShownText
    general: Consent
    kept_until: datetime
    further: tuple[FurtherBooking, ...] = ()

    @property
    def texts(self) -> Sequence[str]:
        """The text about each booking."""
        return [self.text.text, *(each.shown.text for each in self.further)]

    @property
    def on_psp_page(self) -> Consent:
        """The line that the PSP's page repeats."""
        text = self.text
        return Consent(version=text.version, text=text.on_psp_page, language=text.language)

    @property
    def digest(self) -> str:
        """A hash of the words, by which the page's form says what the guest agrees to."""
        words = (self.text.version, self.text.language, *self.texts, self.text.button)
        return sha256("\n".join((*words, self.general.digest)).encode()).hexdigest()

    def clicked(
        self, *, attempt: int, browser: str, keeps: bool, now: datetime, card: str | None = None
    ) -> AgreementClick:
        """Return the click on the button. `keeps` says whether the box is ticked.

        `card` is the card on file that the page showed, such as `visa 4242`.
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

    `browser` is the hash of the secret of the guest's browser; "" if the guest used a card on file,
    because no page follows that another browser could use. `shown` has the words that the guest
    read. `general` is the text to which the guest agreed by ticking the box; None if the box was
    not ticked. `card` is the card on file that the page showed, such as `visa 4242`; None if the
    guest went on to type a card.
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
        """The consent for the card: `general` if the box was ticked, else the text as shown."""
        text = self.shown
        own = Consent(version=text.version, text=text.text, language=text.language)
        return self.general or own


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserOfClick:
    """Where a guest's click came from: the IP address, and the browser's User-Agent."""

    clicked_at: datetime
    address: str
    user_agent: str


def with_click(
    clicks: Sequence[AgreementClick], click: AgreementClick
) -> tuple[AgreementClick, ...]:
    """Return the clicks with `click` added, unless it repeats the last click of its attempt.

    For each attempt, this keeps the first click and the latest clicks, at most MAX_CLICKS.
    """
    same = [each for each in clicks if each.attempt == click.attempt]
    others = [each for each in clicks if each.attempt != click.attempt]
    if same and replace(same[-1], agreed_at=click.agreed_at) == click:
        return tuple(clicks)
    return (*others, *same[:1], *same[1:][-MAX_CLICKS + 2 :], click)


def click_for(
    clicks: Sequence[AgreementClick], attempt: int, collected_at: datetime
) -> AgreementClick | None:
    """Return the latest click of an attempt before a card was collected, or else the first click.

    It is not known in which browser the card was typed. So the returned click has `general` only if
    the latest click in every browser has `general`. Return None if the page of the attempt was
    opened without a click, by an earlier release.
    """
    same = [each for each in clicks if each.attempt == attempt]
    if not same:
        return None
    before = [each for each in same if each.agreed_at <= collected_at] or same[:1]
    latest = {each.browser: each for each in before}
    has_all = all(each.general is not None for each in latest.values())
    return before[-1] if has_all else replace(before[-1], general=None)
