"""`cardonfile configure-payments` and `center`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click
from typing_extensions import override

from domain.centers.center import Center
from domain.centers.center_settings import MAX_LOGO_BYTES, CenterSettings
from domain.centers.changes import Record, changes, in_words
from domain.centers.configure_payments import Missing, PspNotReady
from domain.centers.find_centers import existing_center
from domain.centers.payment_configuration import CardsPerGuest, GuestRemoval, PaymentConfiguration
from domain.identifiers import DEFAULT_MERCHANT_ACCOUNT
from domain.languages import DEFAULT_LANGUAGE, look_up
from domain.pagination import ALL, PageRequest
from domain.psps.capabilities import ConsentTooLong
from domain.psps.card import Funding
from domain.psps.hosted_page import Authentication
from domain.storage import RecordUnreadable, UnitOfWork
from entrypoints.cli.installation import installation, reading
from entrypoints.cli.terminal import echo_record, echo_records, json_option
from entrypoints.psps import PSPS_SETTING, installed_names

if TYPE_CHECKING:
    from entrypoints.container import Container

_DAYS: Final = re.compile("[0-9]{1,4}d?")
_COLUMNS: Final = ("id", "name", "provider", "merchant_account", "state")
_UNREADABLE: Final = "unreadable"


class PspName(click.ParamType[str]):
    """A parameter that is the name of a PSP. Its help lists the installed PSPs."""

    name = "psp"

    @override
    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(installed_names())}]"

    @override
    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or fail if no such PSP is installed.

        The use case checks whether the PSP is set up.
        """
        if value not in installed_names():
            # The PSP is checked before the center is looked up, so that a wrong center does not
            # hide a wrong PSP.
            known = ", ".join(installed_names())
            raise click.ClickException(
                f"--provider: no PSP {value!a} is installed; the installed ones are {known}"
            )
        return value


def _days(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """Parse a number of days, such as 7 for `7d`."""
    if value is None:
        return None
    if not _DAYS.fullmatch(value):
        raise click.BadParameter("give a number of days, such as 7d")
    return int(value.removesuffix("d"))


@click.command()
@click.argument("center_id", metavar="CENTER_ID")
@click.option("--provider", type=PspName(), help="The payment service provider (PSP).")
@click.option("--none", is_flag=True, help="Stop taking cards at this center.")
@click.option(
    "--account",
    "merchant_account",
    metavar="NAME",
    help=f"The merchant account at the PSP.  [initially: {DEFAULT_MERCHANT_ACCOUNT}]",
)
@click.option(
    "--avs/--no-avs",
    default=None,
    help="Verify billing addresses (AVS) or not.  [initially: --no-avs]",
)
@click.option(
    "--cards-per-guest",
    type=click.Choice([each.value for each in CardsPerGuest]),
    help="Whether a guest may have one card or many cards at this center.  [initially: many]",
)
@click.option(
    "--redirect-origin",
    "redirect_origins",
    metavar="ORIGIN",
    multiple=True,
    help="An origin to which guests may be redirected, such as https://shop.example, or "
    "myspa:// for an app. May be given several times. Replaces all origins that were set before.",
)
@click.option(
    "--any-redirect",
    is_flag=True,
    help="Allow redirects to any web address.  [initial setting]",
)
@click.option(
    "--session-minutes",
    type=int,
    metavar="N",
    help="How many minutes a guest has to open a link, from 15 to 1440.  [initially: 30]",
)
@click.option(
    "--link-minutes",
    type=int,
    metavar="N",
    help="Let clients set how long a guest has to open a link, up to N minutes. N is at most "
    "43200 (30 days).",
)
@click.option(
    "--no-link-minutes",
    is_flag=True,
    help="Do not let clients set how long a guest has to open a link.  [initial setting]",
)
@click.option(
    "--card-testing-limits",
    metavar="LIMITS",
    help="Limits on sessions and refused cards in 24 hours, such as guest=5/5,center=3000/600.",
)
@click.option(
    "--no-card-testing-limits",
    is_flag=True,
    help="Apply only the limits of CARDONFILE_CARD_TESTING_LIMITS.  [initial setting]",
)
@click.option(
    "--refuse-funding",
    type=click.Choice([each.value for each in Funding]),
    multiple=True,
    help="Do not accept cards with this funding. May be given several times. Needs "
    "--acquirer-agreed.",
)
@click.option(
    "--accept-any-funding",
    is_flag=True,
    help="Accept credit, debit and prepaid cards.  [initial setting]",
)
@click.option(
    "--acquirer-agreed",
    is_flag=True,
    default=None,
    help="Confirm that the acquirer has agreed to --refuse-funding.",
)
@click.option(
    "--authentication",
    type=click.Choice([each.value for each in Authentication]),
    help="Whether the bank must authenticate guests (3-D Secure).  [initially: automatic]",
)
@click.option(
    "--keep-after-end",
    "keep_after_end_days",
    metavar="DAYS",
    callback=_days,
    help="How long a card is kept after the end of the booking that it guarantees, up to 90d.  "
    "[initially: 7d]",
)
@click.option(
    "--no-show-indicator/--only-unscheduled",
    default=None,
    help="Whether a charge for a booking may state no_show as its reason. With --only-unscheduled, "
    "every charge states unscheduled. Ask your acquirer before you allow no_show.  [initially: "
    "--only-unscheduled]",
)
@click.option(
    "--portal-minutes",
    type=int,
    metavar="N",
    help="How many minutes a link to a guest's own page works, from 5 to 1440.  [initially: 15]",
)
@click.option(
    "--guest-removal",
    type=click.Choice([each.value for each in GuestRemoval]),
    help="When a card is removed that a guest removes on the guest's own page. always: at once. "
    "after-agreement: at once, or if the card guarantees a booking, after the booking.  "
    "[initially: after-agreement if the center takes agreements, otherwise always]",
)
def configure_payments(
    *,
    center_id: str,
    none: bool,
    any_redirect: bool,
    no_link_minutes: bool,
    no_card_testing_limits: bool,
    accept_any_funding: bool,
    **settings: Any,  # fields of PaymentConfiguration; None or () means not given
) -> None:
    """Set up how a center takes cards.

    Options that are not given keep their values. If the center does not take cards yet, --provider
    is required. Sessions that have already begun do not change.

    \b
    Examples:
      cardonfile configure-payments 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3 --provider NAME --avs
      cardonfile configure-payments 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3 --none
    """
    cleared: dict[str, Any] = {"redirect_origins": ()} if any_redirect else {}
    cleared |= {"link_minutes": None} if no_link_minutes else {}
    cleared |= {"card_testing_limits": None} if no_card_testing_limits else {}
    cleared |= {"refuse_funding": ()} if accept_any_funding else {}
    named = _named(settings, cleared)
    if none == bool(named):
        raise click.UsageError("give either the options to change, or --none by itself")
    with installation() as container:
        if not none:
            # If a package that the PSP needs is not installed, fail here and not at the first
            # guest.
            container.psp_adapters()
        try:
            done = container.configure_payments()(center_id, None if none else named)
        except PspNotReady as refused:
            raise click.ClickException(_setup_advice(container, refused)) from refused
        except ConsentTooLong as refused:
            raise click.ClickException(f"CENTER_ID: {refused}") from refused
        if done.now is None:
            click.echo(f"{done.center.name} does not take cards")
        else:
            provider, account = done.now.psp_account
            click.echo(
                f"{done.center.name} takes cards with {provider}, merchant account {account}"
            )
        _echo_changes(PaymentConfiguration, done.before, done.now)


@click.group()
def center() -> None:
    """Show how centers take cards, and set their appearance."""


@center.command("list")
@click.option(
    "--account",
    "merchant_account",
    metavar="NAME",
    help="List only centers that use this merchant account.",
)
@json_option
def list_(*, merchant_account: str | None, as_json: bool) -> None:
    """List the centers, sorted by name.

    STATE is `unreadable` if another release has stored the center's payment configuration, and this
    release cannot read it. If so, run `cardonfile configure-payments` with every option. With
    --account, unreadable centers are listed too, because they may use the account.

    \b
    Example:
      cardonfile center list --account harbor_spa
    """
    with reading() as (unit, _):
        centers = unit.centers.page(None, PageRequest(size=ALL)).items
        rows = [_row(unit, each)[0] for each in centers]
    wanted = (
        row
        for row in rows
        if merchant_account in (None, row["merchant_account"]) or row["state"] == _UNREADABLE
    )
    echo_records(_COLUMNS, wanted, as_json=as_json)


@center.command()
@click.argument("center_id", metavar="ID")
@json_option
def show(*, center_id: str, as_json: bool) -> None:
    """Show how a center takes cards, and what its guests see.

    \b
    Example:
      cardonfile center show 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3
    """
    with installation() as container:
        with container.storage().read() as unit:
            found = existing_center(unit, center_id)
            (row, configuration), settings = _row(unit, found), unit.center_settings.get(found.id)
            consents = {text.language: text.version for text in unit.consent_texts.of(found.id)}
            bookings = {each.language: each.version for each in unit.reservation_texts.of(found.id)}
        shipped = container.shipped_consents()
    if as_json:
        row |= asdict(settings) | {"logo": settings.logo and str(settings.logo)}
        row |= {"consents": consents, "reservation_texts": bookings}
        row |= asdict(configuration) if configuration else {}
    else:
        row |= in_words(CenterSettings, settings)
        row["consents"] = _versions(consents) or "en"
        row["reservation_texts"] = _versions(bookings) or "none"
        row |= in_words(PaymentConfiguration, configuration) if configuration else {}
    echo_record(row, as_json=as_json)
    _echo_fallback(shipped, found, settings, consents)


def _versions(texts: Mapping[str, str]) -> str:
    return ", ".join(f"{language} {version}" for language, version in texts.items())


@center.command("set")
@click.argument("center_id", metavar="ID")
@click.option(
    "--contact",
    metavar="ADDRESS",
    help="Where guests can ask for help: tel:…, mailto:… or https://…",
)
@click.option("--logo", type=click.File("rb"), help="A PNG or WebP picture of at most 100 KB.")
@click.option(
    "--color",
    metavar="#RRGGBB",
    help="The color of buttons, dark enough for white text (WCAG 2.2).",
)
@click.option(
    "--language",
    metavar="TAG",
    help="The language for guests whose language is unknown, such as de or pt-BR.",
)
@click.option(
    "--time-zone",
    metavar="NAME",
    help="The center's time zone (IANA), such as Europe/Berlin, in which guests read times.",
)
@click.option(
    "--accessibility",
    metavar="URI",
    help="The https address of the center's accessibility statement, shown at the foot of pages.",
)
@click.option(
    "--clear",
    type=click.Choice([field.name for field in fields(CenterSettings)]),
    multiple=True,
    help="Reset this setting to its initial value. May be given several times.",
)
def set_(
    *, center_id: str, logo: BinaryIO | None, clear: Sequence[str], **settings: str | None
) -> None:
    """Set what the guests of a center see.

    Options that are not given keep their values.

    \b
    Example:
      cardonfile center set 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3 --contact tel:+49301234567
    """
    content = None if logo is None else logo.read(MAX_LOGO_BYTES + 1)
    named = _named({**settings, "logo": content}, dict.fromkeys(clear))
    if not named:
        raise click.UsageError("give at least one option to change")
    with installation() as container:
        done = container.set_center()(center_id, named)
        click.echo(done.center.name)
        _echo_changes(CenterSettings, done.before, done.now)
        with container.storage().read() as unit:
            consents = {text.language for text in unit.consent_texts.of(done.center.id)}
        _echo_fallback(container.shipped_consents(), done.center, done.now, consents)


def _echo_fallback(
    shipped: Collection[str], center: Center, settings: CenterSettings, consents: Collection[str]
) -> None:
    """If the center has no consent text in its own language, warn that guests read English."""
    language = settings.language
    if language is None or look_up(language, {DEFAULT_LANGUAGE, *consents}) is not None:
        return
    of_text = look_up(language, shipped)
    own = "" if of_text else " --file YOUR_TEXT"
    click.echo(
        f"no consent text in {language}, so guests read English. To set the text: cardonfile "
        f"consent set --center {center.id} --language {of_text or language}{own}",
        err=True,
    )


def _named(settings: Mapping[str, object], cleared: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that were given, and those that a flag clears.

    Raises click.UsageError if a setting was both given and cleared.
    """
    named = {name: value for name, value in settings.items() if value not in (None, ())}
    if named.keys() & cleared.keys():
        raise click.UsageError("give an option or its opposite, not both")
    return named | dict(cleared)


def _echo_changes(record_type: type[Record], before: Record | None, now: Record | None) -> None:
    """Print each setting with its value. For a changed setting, also print its earlier value."""
    unchanged = {} if now is None else in_words(record_type, now)
    for name, words in {**unchanged, **changes(record_type, before, now)}.items():
        click.echo(f"  {name}: {words}")


def _row(unit: UnitOfWork, center: Center) -> tuple[dict[str, object], PaymentConfiguration | None]:
    """Return a center's row in the list, and its configuration.

    The configuration is None if it is missing or cannot be decoded.
    """
    try:
        configuration = unit.configurations.get(center.id)
        state = "takes_cards" if configuration else "takes_no_cards"
    except RecordUnreadable:
        configuration, state = None, _UNREADABLE
    account = configuration.psp_account if configuration else (None, None)
    values = (center.id, center.name, *account, state)
    return dict(zip(_COLUMNS, values, strict=True)), configuration


def _setup_advice(container: Container, refused: PspNotReady) -> str:
    name, account = refused.account
    if refused.missing is Missing.CLOSED:
        reopen = f"cardonfile psp close-account {name} --account {account} --reopen"
        return (
            f"--account: {account} of {name} is closed; if the PSP has opened it again: `{reopen}`"
        )
    if refused.missing is Missing.PSP:
        return f"--provider: {name} is installed but not enabled: add it to {PSPS_SETTING}"
    how = container.settings().psps[name].how_to_set_up(account)
    if refused.missing is Missing.SETTINGS:
        return f"--provider: {name} is not set up: {how}"
    return f"--account: {name} has no keys for {account}: {how}"
