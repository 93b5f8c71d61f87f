"""`cardonfile psp`."""

from __future__ import annotations

import os
import re
import shlex
import sys
from importlib.resources import files
from pathlib import Path
from typing import Final

import click

from domain.identifiers import MerchantAccount, ProviderName, PspAccount
from entrypoints.cli.installation import installation
from entrypoints.cli.status import echo_findings
from entrypoints.cli.terminal import echo_records, json_option
from entrypoints.plain_errors import plain_errors
from entrypoints.psps import installed_names
from entrypoints.settings import refuse_settings_of_service

_NAME: Final = re.compile(r"[a-z][a-z0-9]{0,39}")
_EXAMPLE: Final = "psp_example"
_NAMES: Final = ("acme", "Acme", "ACME")


@click.group()
def psp() -> None:
    """Check a PSP, manage its accounts, or create an adapter."""


@psp.command()
@click.argument("name")
@json_option
@click.pass_context
def check(context: click.Context, *, name: str, as_json: bool) -> None:
    """Find what is wrong with one PSP.

    The command runs the checks of `cardonfile doctor` for this PSP. It also shows the package that
    provides the PSP, and the URLs to register at the PSP for webhooks. The exit status is 1 if
    there is a problem, otherwise 0.

    \b
    Example:
      cardonfile psp check stripe
    """
    from entrypoints.doctor import examine_psp

    with plain_errors():
        echo_findings(context, lambda: examine_psp(os.environ, ProviderName(name)), as_json=as_json)


@psp.command("close-account")
@click.argument("name")
@click.option(
    "--account", "merchant_account", metavar="NAME", required=True, help="The merchant account."
)
@click.option("--dry-run", is_flag=True, help="Show what would end, without changing anything.")
@click.option("--reopen", is_flag=True, help="Let the account take cards again.")
@json_option
def close_account(
    *,
    name: ProviderName,
    merchant_account: MerchantAccount,
    dry_run: bool,
    reopen: bool,
    as_json: bool,
) -> None:
    """Close a merchant account that the PSP has closed.

    Also use this command if the keys of the account are lost. NAME is the PSP, which does not have
    to be set up. The command asks you to type the name of the account. Then it ends open sessions
    and removes cards. The PSP is no longer called for the account. Pending discards of cards and
    pending erasures of guests at the account therefore end, and are recorded as out of reach.
    --reopen allows the account to take cards again, but does not restore anything. The audit trail
    records both the closing and the reopening.

    \b
    Examples:
      cardonfile psp close-account stripe --account harbor --dry-run
      cardonfile psp close-account stripe --account harbor
    """
    if dry_run and reopen:
        raise click.UsageError("give only one of --dry-run and --reopen")
    account = PspAccount(name, merchant_account)
    with installation() as container:
        close = container.close_account()
        if reopen:
            if not close.reopen(account):
                raise click.ClickException(f"{merchant_account} of {name} is not closed")
            click.echo(f"{merchant_account} of {name} may take cards again")
            return
        found = close.count(account)
        if not dry_run:
            left = ", ".join(f"{count} {kind}" for kind, count in found._asdict().items())
            click.echo(
                f"This permanently ends, at the account {merchant_account} of {name}: {left}",
                err=True,
            )
            typed = click.prompt("Type the name of the account to confirm", default="", err=True)
            if typed != merchant_account:
                raise click.ClickException("nothing was changed: the name does not match")
            found = close(account)
        echo_records(found._fields, [found], as_json=as_json)


@psp.command("confirm-keys")
@click.argument("name")
@click.option(
    "--account", "merchant_account", metavar="NAME", required=True, help="The merchant account."
)
def confirm_keys(*, name: ProviderName, merchant_account: MerchantAccount) -> None:
    """Confirm that the keys of an account are right.

    The service removes cards that the PSP has reported as unknown for a week. If there are too many
    such cards, the service stops removing them, because the keys may be wrong. Use this command if
    the keys are right. For a day, the service then removes unknown cards without a limit. NAME is
    the PSP. The audit trail records who confirmed the keys.

    \b
    Example:
      cardonfile psp confirm-keys stripe --account harbor
    """
    with installation() as container:
        container.confirm_keys()(PspAccount(name, merchant_account))
        click.echo(
            f"for a day, all cards of {merchant_account} that {name} does not know are removed"
        )


@psp.command()
@click.argument("name")
@click.option(
    "--account", "merchant_account", metavar="NAME", required=True, help="The merchant account."
)
def trust(*, name: ProviderName, merchant_account: MerchantAccount) -> None:
    """Forget which merchant an account belongs to, and trust its next keys.

    Use this command if the first keys of the account were wrong. NAME is the PSP. Stop the service
    first, and start it afterwards with the right keys. At its first call to the PSP, the service
    stores which merchant the right keys belong to. The command refuses an account that has cards on
    file, or cards that still have to be discarded. The audit trail records who ran the command.

    \b
    Example:
      cardonfile psp trust stripe --account default
    """
    with installation() as container:
        container.trust_keys()(PspAccount(name, merchant_account))
        click.echo(
            f"at its next call to {name}, the service will trust the keys of {merchant_account}"
        )


@psp.command()
@click.argument("name")
def new(name: str) -> None:
    """Create an adapter for a PSP, in a new folder.

    The folder is created in the current folder. It contains a package that passes the contract
    suite: a copy of the example in docs/adding-a-provider.md, with the new name. NAME consists of
    lower-case letters and digits.

    \b
    Example:
      cardonfile psp new adyen
    """
    if not _NAME.fullmatch(name):
        raise click.ClickException(
            "NAME must be at most 40 lower-case letters and digits, and begin with a letter"
        )
    folder = Path(f"cardonfile-{name}")
    with plain_errors():
        if name in installed_names():
            raise click.ClickException(f"a PSP {name} is installed: choose another name")
        refuse_settings_of_service(name)
        folder.mkdir()
        _copy_example(name, folder)
    python = shlex.quote(sys.executable)
    click.echo(
        f"{folder} contains the adapter for the PSP {name}. Install it, and run the contract suite:"
    )
    click.echo(f"  {python} -m pip install --editable ./{folder} 'pytest>=9'")
    click.echo(
        f"  {python} -m pytest -p adapters.psp_suite.pytest_plugin --pyargs adapters.psp_suite"
        f" --psp {name}_psp.under_test:{name.capitalize()}UnderTest"
    )


def _copy_example(name: str, folder: Path) -> None:
    """Copy the example into a folder, and replace the name of its PSP in files and file names."""
    package = f"{name}_psp"
    names = dict(zip(_NAMES, (name, name.capitalize(), name.upper()), strict=True))
    names[f"adapters.{_EXAMPLE}"] = package

    def renamed(text: str) -> str:
        return re.sub("|".join(names), lambda found: names[found[0]], text)

    (folder / package).mkdir()
    for source in Path(str(files("adapters"))).joinpath(_EXAMPLE).glob("*.*"):
        copy = folder / (package if source.suffix == ".py" else "") / renamed(source.name)
        copy.write_text(renamed(source.read_text()))
