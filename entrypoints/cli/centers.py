"""`cardonfile configure-payments` and `center`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource
from typing_extensions import override

from domain.centers.configure_payments import ConsentTooLong, Missing, PspNotReady
from domain.centers.payment_configuration import (
    CardsPerGuest,
    ConfigurationChange,
    changes,
    in_words,
)
from domain.centers.show_centers import ShownCenter
from domain.identifiers import DEFAULT_MERCHANT_ACCOUNT, PspAccount
from entrypoints.cli.installation import installation
from entrypoints.cli.terminal import echo_json, echo_records, json_option
from entrypoints.psps import PSPS_SETTING, installed_names

if TYPE_CHECKING:
    from entrypoints.container import Container


class PspName(click.ParamType[str]):
    """The name of a PSP; help and usage list those that are installed."""

    name = "psp"

    @override
    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(installed_names())}]"


@click.command()
@click.argument("center_id", metavar="CENTER_ID")
@click.option("--provider", type=PspName(), help="The payment service provider (PSP).")
@click.option("--none", is_flag=True, help="Take no cards at this center any more.")
@click.option(
    "--account",
    "merchant_account",
    metavar="NAME",
    help=f"The merchant account at the PSP.  [at first: {DEFAULT_MERCHANT_ACCOUNT}]",
)
@click.option(
    "--avs/--no-avs",
    default=None,
    help="Verify billing addresses (AVS), or do not.  [at first: --no-avs]",
)
@click.option(
    "--cards-per-guest",
    type=click.Choice([each.value for each in CardsPerGuest]),
    help="How many cards a guest may have at this center.  [at first: many]",
)
@click.option(
    "--redirect-origin",
    "redirect_origins",
    metavar="ORIGIN",
    multiple=True,
    help="Where guests may be sent back to, such as https://shop.example, or myspa:// for an app; "
    "repeat it to name all.",
)
@click.option(
    "--any-redirect", is_flag=True, help="Send guests back to any web address.  [at first]"
)
@click.option(
    "--session-minutes",
    type=int,
    metavar="N",
    help="How long a link may wait to be opened, from 15 to 1440.  [at first: 30]",
)
@click.option(
    "--link-minutes",
    type=int,
    metavar="N",
    help="The longest time that a client may ask for instead, up to 43200 (30 days).",
)
@click.option(
    "--no-link-minutes", is_flag=True, help="Clients may ask for no longer time.  [at first]"
)
@click.pass_context
def configure_payments(
    context: click.Context,
    *,
    center_id: str,
    provider: str | None,
    none: bool,
    merchant_account: str | None,
    avs: bool | None,
    cards_per_guest: str | None,
    redirect_origins: tuple[str, ...],
    any_redirect: bool,
    session_minutes: int | None,
    link_minutes: int | None,
    no_link_minutes: bool,
) -> None:
    """Set up how a center takes cards.

    What is not named stays as it was. A center that took no cards needs --provider. Sessions that
    have begun keep the setup that they began with.

    \b
    Examples:
      cardonfile configure-payments 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3 --provider NAME --avs
      cardonfile configure-payments 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3 --none
    """
    given = {
        name
        for name in context.params
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if given == {"center_id"}:
        raise click.UsageError("name what to change, or --none")
    for option, others in (
        ("none", given - {"center_id", "none"}),
        ("any_redirect", given & {"redirect_origins"}),
        ("no_link_minutes", given & {"link_minutes"}),
    ):
        if option in given and others:
            raise click.UsageError(f"--{option.replace('_', '-')} goes with no other such option")
    with installation() as container:
        change = None
        if not none:
            change = ConfigurationChange(
                provider=provider,
                merchant_account=merchant_account,
                avs=avs,
                cards_per_guest=CardsPerGuest(cards_per_guest) if cards_per_guest else None,
                redirect_origins=redirect_origins if redirect_origins or any_redirect else None,
                session_minutes=session_minutes,
                link_minutes=link_minutes,
                without_link_minutes=no_link_minutes,
            )
            # Shows here, and not to the first guest, when a package that a PSP needs is not
            # installed.
            container.psp_adapters()
        try:
            done = container.configure_payments()(center_id, change)
        except PspNotReady as refused:
            how = _how_to_get_ready(container, refused.account, refused.missing)
            raise click.ClickException(": ".join(how)) from refused
        except ConsentTooLong as refused:
            raise click.ClickException(f"CENTER_ID: {refused}") from refused
        if done.now is None:
            click.echo(f"{done.center.name} takes no cards")
        else:
            provider, account = done.now.psp_account
            click.echo(
                f"{done.center.name} takes cards with {provider}, merchant account {account}"
            )
        unchanged = {} if done.now is None else in_words(done.now)
        for name, words in {**unchanged, **changes(done.before, done.now)}.items():
            click.echo(f"  {name}: {words}")


@click.group()
def center() -> None:
    """Show how centers take cards.

    \b
    Example:
      cardonfile center list --account default
    """


@center.command("list")
@click.option(
    "--account",
    "merchant_account",
    metavar="NAME",
    help="Only those that use this merchant account.",
)
@json_option
def list_(*, merchant_account: str | None, as_json: bool) -> None:
    """List the centers, by name.

    A center TAKES_CARDS if it is configured for a PSP that this installation has keys for.

    \b
    Examples:
      cardonfile center list
      cardonfile center list --account harbor_spa
    """
    with installation() as container:
        echo_records(
            ("id", "name", "takes_cards", "provider", "merchant_account"),
            (
                _record(container, each)
                for each in container.show_centers()(merchant_account=merchant_account)
            ),
            as_json=as_json,
        )


@center.command()
@click.argument("center_id", metavar="ID")
@json_option
def show(*, center_id: str, as_json: bool) -> None:
    """Show how a center takes cards, and what it lacks to take them.

    \b
    Example:
      cardonfile center show 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3
    """
    with installation() as container:
        shown = container.show_center()(center_id)
        record = _record(container, shown)
        if as_json:
            echo_json(record | (asdict(shown.configuration) if shown.configuration else {}))
        else:
            settings = record | (in_words(shown.configuration) if shown.configuration else {})
            rows = ({"setting": name, "value": value} for name, value in settings.items())
            echo_records(("setting", "value"), rows, as_json=False)


def _record(container: Container, shown: ShownCenter) -> dict[str, object]:
    configuration = shown.configuration
    missing = None
    if configuration is None:
        missing = "a configuration: cardonfile configure-payments"
    elif shown.missing is not None:
        _, missing = _how_to_get_ready(container, configuration.psp_account, shown.missing)
    return {
        "id": shown.center.id,
        "name": shown.center.name,
        "takes_cards": shown.takes_cards,
        "missing": missing,
        "provider": configuration and configuration.provider,
        "merchant_account": configuration and configuration.merchant_account,
    }


def _how_to_get_ready(
    container: Container, psp_account: PspAccount, missing: Missing
) -> tuple[str, str]:
    """Return the option that names what is missing, and what to do."""
    name, account = psp_account
    if missing is Missing.PSP:
        installed = installed_names()
        if name in installed:
            return "--provider", f"{name} is installed, and {PSPS_SETTING} does not name it"
        return "--provider", f"{name!a} is not known; known: {', '.join(installed)}"
    how = container.settings().psps[name].how_to_set_up(account)
    if missing is Missing.SETTINGS:
        return "--provider", f"{name} is not set up: {how}"
    return "--account", f"{name} has no keys for {account}: {how}"
