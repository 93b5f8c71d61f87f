"""`cardonfile evidence`: the keys that sign evidence, and its verification."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from entrypoints.plain_errors import plain_errors
from entrypoints.settings_error import with_extra_jwt

_MAX_BYTES: Final = 10_000_000
_PACKAGE: Final = "the package for signatures"


@click.group()
def evidence() -> None:
    """Make keys that sign evidence, and verify evidence.

    `cardonfile card evidence` prints evidence. The commands here do not need a database.
    """


@evidence.command("new-key")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def new_key(*, file: Path) -> None:
    """Make a new key that signs evidence, and write it to FILE.

    If the file exists, the new key replaces the signing key. The public parts of former keys are
    kept, so that earlier evidence can be verified. Only the owner can read the file. Set
    CARDONFILE_EVIDENCE_KEYS_FILE to the path of the file, and restart the service.

    \b
    Example:
      cardonfile evidence new-key /etc/cardonfile/evidence-keys.json
    """
    with plain_errors():
        with with_extra_jwt(_PACKAGE):
            from adapters.json_web_signatures import NotKeys, with_new_key
        # If the path is a symbolic link, keep the link, and replace the file to which it leads.
        file = file.resolve()
        # Write to another file first, so that the former keys survive a crash.
        beside = file.with_name(f"{file.name}.new")
        try:
            # The file is opened before the former keys are read, so that a concurrent run fails.
            with os.fdopen(
                os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w"
            ) as new:
                try:
                    former = _text_of(file)
                except FileNotFoundError:
                    former = None
                new.write(with_new_key(former))
                new.flush()
                os.fsync(new.fileno())
            if former is not None:
                owner = file.stat()
                os.chown(beside, owner.st_uid, owner.st_gid)
            beside.replace(file)
        except FileExistsError:
            raise click.ClickException(
                f"{beside} exists: another run is making a key, or was interrupted. If no other "
                "run is active, delete this file"
            ) from None
        except (NotKeys, OSError, click.ClickException) as error:
            beside.unlink(missing_ok=True)
            if isinstance(error, NotKeys):
                raise click.ClickException(f"cannot add a key to {file}: {error}") from None
            raise
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

    FILE is the JSON that the API or `cardonfile card evidence` returns. The exit status is 1 if the
    evidence was changed, or if none of the keys signed it.

    \b
    Example:
      cardonfile evidence verify evidence.json --keys jwks.json
    """
    with plain_errors():
        with with_extra_jwt(_PACKAGE):
            from adapters.json_web_signatures import NotGenuine, NotKeys, verify_evidence
        try:
            found = verify_evidence(_text_of(file), _text_of(keys_file))
        except (NotGenuine, NotKeys) as error:
            about = keys_file if isinstance(error, NotKeys) else file
            raise click.ClickException(f"{about} is not accepted: {error}") from None
    click.echo(
        f"genuine: about the payment account {found.account_id}, made at {found.made_at} for "
        f"{found.service}, signed by the key {found.key_id}"
    )


def _text_of(file: Path) -> str:
    """Return the text of a file. Raises OSError or ClickException."""
    with file.open("rb") as opened:
        content = opened.read(_MAX_BYTES + 1)
    if len(content) <= _MAX_BYTES:
        with suppress(UnicodeDecodeError):
            return content.decode()
    raise click.ClickException(f"{file} is not accepted: it must be a text file of at most 10 MB")
