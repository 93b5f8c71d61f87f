"""The click with which a guest agrees to the terms of a booking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from domain.agreements.reservation_text import ShownText
from domain.psps.hosted_page import Consent


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAgreement:
    """What a page asks the guest to agree to: the text about the booking, and a box.

    With the box, which is not ticked, the guest also agrees to `general`: the card is then kept
    after `kept_until`.
    """

    text: ShownText
    general: Consent
    kept_until: datetime

    @property
    def on_psp_page(self) -> Consent:
        """The line that the PSP's page repeats."""
        text = self.text
        return Consent(version=text.version, text=text.on_psp_page, language=text.language)

    @property
    def digest(self) -> str:
        """The name of the agreement in the form of the page. It changes with the words."""
        words = (self.text.version, self.text.language, self.text.text, self.text.button)
        return sha256("\n".join((*words, self.general.digest)).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementClick:
    """A guest's click on the page before the page of an `attempt`, with the words as shown.

    `general` is the text to which the guest agreed by the box; None if the box was not ticked.
    """

    attempt: int
    agreed_at: datetime
    shown: ShownText
    kept_until: datetime
    general: Consent | None = None


def with_click(
    clicks: Sequence[AgreementClick], click: AgreementClick
) -> tuple[AgreementClick, ...]:
    """Return the clicks with another one. Of each attempt, the first and the latest are kept."""
    same = [each for each in clicks if each.attempt == click.attempt]
    others = [each for each in clicks if each.attempt != click.attempt]
    return (*others, *same[:1], click)


def click_for(
    clicks: Sequence[AgreementClick], attempt: int, collected_at: datetime
) -> AgreementClick | None:
    """Return the click that belongs to a card: the latest before it, or otherwise the first.

    Return None if the page of the attempt was opened without a click, by an earlier release.
    """
    same = [each for each in clicks if each.attempt == attempt]
    before = [each for each in same if each.agreed_at <= collected_at]
    if before:
        return before[-1]
    return same[0] if same else None
