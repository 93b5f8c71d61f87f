"""`cardonfile configure-payments`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource
from typing_extensions import override

from domain.centers.configure_payments import ConsentTooLong, Missing, PspNotReady
from domain.centers.payment_configuration import CardsPerGuest, PaymentConfiguration
from domain.identifiers import DEFAULT_MERCHANT_ACCOUNT
from entrypoints.cli.installation import installation
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
    default=DEFAULT_MERCHANT_ACCOUNT,
    show_default=True,
    help="The merchant account at the PSP.",
)
@click.option("--avs", is_flag=True, help="Verify billing addresses (AVS).")
@click.option(
    "--cards-per-guest",
    type=click.Choice([each.value for each in CardsPerGuest]),
    default=CardsPerGuest.MANY.value,
    show_default=True,
    help="How many cards a guest may have at this center.",
)
@click.option(
    "--redirect-origin",
    "redirect_origins",
    metavar="ORIGIN",
    multiple=True,
    help="Where guests may be sent back to, such as https://shop.example, or myspa:// for an app; "
    "may be repeated.  [default: any web address]",
)
@click.option(
    "--session-minutes",
    type=int,
    metavar="N",
    default=30,
    show_default=True,
    help="How long a link may wait to be opened, from 15 to 1440.",
)
@click.option(
    "--link-minutes",
    type=int,
    metavar="N",
    help="The longest time that a client may ask for instead, up to 43200 (30 days).  "
    "[default: as --session-minutes]",
)
@click.pass_context
def configure_payments(
    context: click.Context,
    *,
    center_id: str,
    provider: str | None,
    none: bool,
    merchant_account: str,
    avs: bool,
    cards_per_guest: str,
    redirect_origins: tuple[str, ...],
    session_minutes: int,
    link_minutes: int | None,
) -> None:
    """Set up how a center takes cards.

    It replaces what was set up before. Sessions that have begun keep the setup that they began
    with.

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
    if none and given != {"center_id", "none"}:
        raise click.UsageError("--none goes with no other option")
    if not none and provider is None:
        raise click.UsageError("give --provider NAME, or --none")
    with installation() as container:
        configuration = None
        if provider is not None:
            configuration = PaymentConfiguration.parse(
                provider=provider,
                merchant_account=merchant_account,
                avs=avs,
                cards_per_guest=CardsPerGuest(cards_per_guest),
                redirect_origins=redirect_origins,
                session_minutes=session_minutes,
                link_minutes=link_minutes,
            )
            # Shows here, and not to the first guest, when a package that a PSP needs is not
            # installed.
            container.psp_adapters()
        try:
            center = container.configure_payments()(center_id, configuration)
        except PspNotReady as refused:
            raise click.ClickException(_how_to_get_ready(container, refused)) from refused
        except ConsentTooLong as refused:
            raise click.ClickException(f"CENTER_ID: {refused}") from refused
        if configuration is None:
            click.echo(f"{center.name} takes no cards")
        else:
            click.echo(
                f"{center.name} takes cards with {provider}, merchant account {merchant_account}"
            )


def _how_to_get_ready(container: Container, refused: PspNotReady) -> str:
    name, account = refused.account
    if refused.missing is Missing.PSP:
        installed = installed_names()
        if name in installed:
            return f"--provider: {name} is installed, and {PSPS_SETTING} does not name it"
        return f"--provider: {name!a} is not known; known: {', '.join(installed)}"
    how = container.settings().psps[name].how_to_set_up(account)
    if refused.missing is Missing.SETTINGS:
        return f"--provider: {name} is not set up: {how}"
    return f"--account: {name} has no keys for {account}: {how}"
