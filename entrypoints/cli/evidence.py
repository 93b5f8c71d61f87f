"""`cardonfile evidence`: the keys that sign evidence, and its verification."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from entrypoints.plain_errors import plain_errors
from entrypoints.settings_error import with_extra_jwt

_PACKAGE: Final = "the package for signatures"


@click.group()
def evidence() -> None:
    """Make keys that sign evidence, and verify evidence.

    `cardonfile card evidence` prints evidence. These commands need no database.
    """


@evidence.command("new-key")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def new_key(*, file: Path) -> None:
    """Make a new key that signs evidence, in FILE.

    If the file exists, the new key replaces the key that signs. The public parts of former keys
    stay, so that earlier evidence can be verified. Only the owner can read the file. Set
    CARDONFILE_EVIDENCE_KEYS_FILE to it, and restart the service.

    \b
    Example:
      cardonfile evidence new-key /etc/cardonfile/evidence-keys.json
    """
    with plain_errors():
        with with_extra_jwt(_PACKAGE):
            from adapters.json_web_signatures import NotKeys, with_new_key
        former = file.read_text("utf-8") if file.exists() else None
        try:
            keys = with_new_key(former)
        except NotKeys as error:
            raise click.ClickException(f"{file} cannot be extended: {error}") from None
        # Beside the file, so that a crash leaves the former keys.
        beside = file.with_name(f"{file.name}.new")
        with os.fdopen(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as new:
            new.write(keys)
            new.flush()
            os.fsync(new.fileno())
        if former is not None:
            owner = file.stat()
            os.chown(beside, owner.st_uid, owner.st_gid)
        beside.replace(file)
    click.echo(f"{'rolled' if former else 'made'} the key in {file}: restart the service to use it")


@evidence.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--keys",
    "keys_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The public keys, from /.well-known/jwks.json of the service.",
)
def verify(*, file: Path, keys_file: Path) -> None:
    """Verify the signature of evidence.

    FILE is JSON as the API or `cardonfile card evidence` gives it. The exit status is 1 if it was
    changed, or if no key in the file has signed it.

    \b
    Example:
      cardonfile evidence verify evidence.json --keys jwks.json
    """
    with plain_errors():
        with with_extra_jwt(_PACKAGE):
            from adapters.json_web_signatures import NotGenuine, NotKeys, verify_evidence
        try:
            found = verify_evidence(file.read_text("utf-8"), keys_file.read_text("utf-8"))
        except (NotGenuine, NotKeys, UnicodeDecodeError) as error:
            about = keys_file if isinstance(error, NotKeys) else file
            raise click.ClickException(f"{about} is not accepted: {error}") from None
    click.echo(
        f"genuine: made at {found.made_at} for {found.service}, signed by the key {found.key_id}"
    )
