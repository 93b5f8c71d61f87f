"""Show evidence as a single HTML page for printing. The page does not need other files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from domain.agreements.terms import Money
from domain.disputes.evidence import ClockSource, EndCause, Moment, SignedEvidence

_CLOCKS: Final = {
    ClockSource.SERVICE: "clock of the service",
    ClockSource.PSP: "clock of the payment service provider",
    None: "clock not known",
}
_ENDS: Final = {
    None: "open",
    EndCause.BOOKING_OVER: "the booking was over",
    EndCause.REPLACED: "the guest agreed to another agreement in its place",
    EndCause.SHOP: "the shop ended it",
    EndCause.ERASURE: "the guest was erased",
}


def page_of(evidence: SignedEvidence) -> str:
    """Return the page as HTML. It states the id of the key that signed the evidence."""
    return _PAGE.render(evidence=evidence.document, key_id=evidence.key_id, ends=_ENDS)


def _time(at: datetime | None) -> str:
    return "not stated" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _moment(moment: Moment) -> str:
    return f"{_time(moment.at)} ({_CLOCKS[moment.clock]})"


def _money(money: Money | None) -> str:
    return "nothing" if money is None else f"{money.amount} {money.currency}"


def _is(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "not reported by the payment service provider"}[value]


_ENVIRONMENT: Final = Environment(
    loader=PackageLoader(__name__),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
_ENVIRONMENT.filters.update(time=_time, moment=_moment, money=_money, told=_is)
_PAGE: Final = _ENVIRONMENT.get_template("evidence.html")
