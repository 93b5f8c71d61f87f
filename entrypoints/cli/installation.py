"""Open the installation on which a command works."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import click

from domain.access.revoke_token import TokenAmbiguous, TokenNotFound
from domain.centers.center import CenterNotFound
from domain.centers.find_centers import existing_center
from domain.disputes.read_evidence import GuestWasErased
from domain.errors import (
    CardsDoNotMatch,
    EventNotFound,
    GuestIdNotUsable,
    GuestNotFound,
    InvalidField,
    PaymentAccountNotFound,
)
from domain.events.add_event_endpoint import TooManyEndpoints
from domain.events.find_endpoint import EndpointNotFound
from domain.fields import parse_uuid
from domain.identifiers import CenterId, GuestId
from domain.installation.change_origin import NoCopy, NotPublic
from domain.installation.recognize_origin import AnotherOrigin
from domain.personal_data.erasure import Erasure
from domain.storage import UnitOfWork
from entrypoints.cli.terminal import cell_of
from entrypoints.plain_errors import plain_errors
from entrypoints.settings import LogLevel, Settings

if TYPE_CHECKING:
    from entrypoints.container import Container


@contextmanager
def reading() -> Iterator[tuple[UnitOfWork, datetime]]:
    """Yield a read unit of the installation and the current time, for a command that only reads.

    The command should print only after the unit has ended. If it printed earlier, a pager could
    keep the unit open, and on SQLite an erasure would have to wait for the unit.
    """
    with installation() as container, container.storage().read() as unit:
        yield unit, container.clock().now()


def existing(
    unit: UnitOfWork, guest_id: str | None, center_id: str | None
) -> tuple[GuestId | None, CenterId | None]:
    """Check the guest and the center to which a list is limited, and return their ids.

    An option that was not given is None. If the guest was erased, a line on standard error says so.
    Raises InvalidField, GuestNotFound or CenterNotFound.
    """
    guest = None if guest_id is None else GuestId(parse_uuid("guest_id", guest_id))
    if guest is not None:
        if erasure := unit.erasures.get(guest):
            click.echo(f"guest {guest} {how_ended(erasure)}", err=True)
        elif not unit.guests.is_on_file(guest):
            raise GuestNotFound
    return guest, None if center_id is None else existing_center(unit, center_id).id


def how_ended(erasure: Erasure) -> str:
    """Return a text about an erasure or a merge, such as "was erased at 2026-11-20T12:00:00Z"."""
    how = f"merged into {erasure.merged_into}" if erasure.merged_into else "erased"
    return f"was {how} at {cell_of(erasure.erased_at)}"


@contextmanager
def installation(
    read: Callable[[Mapping[str, str]], Settings] = Settings.read,
    *,
    may_take_long: bool = True,
    acts: bool = False,
) -> Iterator[Container]:
    """Yield the container for the installation that the environment describes.

    `read` returns the settings for an environment. With `may_take_long`, database statements have
    no time limit, because some commands read a whole table and only the operator waits for them.

    Set `acts` if the command calls a PSP or an endpoint, directly or through the worker. The
    command is then refused if the database belongs to another origin. Without this check, an
    installation with a copy of the database could act in place of the original installation.

    Errors of the installation and refusals of the domain become a ClickException with one sentence.
    """
    with plain_errors(
        *(CenterNotFound, GuestNotFound, GuestIdNotUsable, PaymentAccountNotFound),
        *(TokenNotFound, TokenAmbiguous),
        *(EndpointNotFound, EventNotFound, TooManyEndpoints),
        *(AnotherOrigin, NotPublic, NoCopy, CardsDoNotMatch, GuestWasErased),
    ):
        from entrypoints import databases
        from entrypoints.container import build
        from entrypoints.logs import configure_logs

        settings = read(os.environ)
        # Log lines go to standard error, so they do not mix with what a command prints.
        configure_logs(settings.log_format, at_least=LogLevel.ERROR)
        databases.require_up_to_date(settings.database)
        container = build(settings)
        container.storage.add_kwargs(may_take_long=may_take_long)
        try:
            if acts:
                container.recognize_origin()()
            yield container
        except InvalidField as error:
            raise click.ClickException(
                f"{_parameter_of(error.field)} must be {error.expected}"
            ) from error
        finally:
            container.storage().close()


def _parameter_of(field: str) -> str:
    """Return the name of a parameter as the user types it, such as `--account` or `CENTER_ID`."""
    parameters = click.get_current_context().command.params
    parameter = next(parameter for parameter in parameters if parameter.name == field)
    is_option = isinstance(parameter, click.Option)
    return parameter.opts[0] if is_option else parameter.human_readable_name
