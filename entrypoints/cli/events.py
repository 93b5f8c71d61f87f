"""`cardonfile events`: endpoints for events, and deliveries."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Final

import click

from domain.events.event import ENDPOINT_TYPES, DeliveryCounts
from domain.events.event_sender import EventNotSent
from domain.outside import time_before
from entrypoints.cli.installation import installation, reading
from entrypoints.cli.terminal import echo_records, json_option, limit_option, listed, since_option


@click.group()
def events() -> None:
    """Manage the endpoints that receive signed events, and their deliveries."""


types_option: Final[Callable[[Callable[..., None]], Callable[..., None]]] = click.option(
    "--type",
    "types",
    type=click.Choice([each.value for each in ENDPOINT_TYPES]),
    multiple=True,
    required=True,
    help="A type of event that the endpoint receives. May be given several times.",
)


@events.command()
@click.argument("url", metavar="URL")
@types_option
@click.option(
    "--center",
    "centers",
    metavar="ID",
    multiple=True,
    help="A center whose events the endpoint receives. May be given several times.  "
    "[default: all centers]",
)
def add(*, url: str, types: Sequence[str], centers: Sequence[str]) -> None:
    """Add an endpoint, and print only its secret.

    A running `cardonfile serve` or `work` sends the endpoint the events that occur from now on. URL
    must be https, or http if only this machine can reach the service. Its host must have a public
    IP address, or an address in CARDONFILE_EVENT_NETWORKS.

    \b
    Example:
      cardonfile events add https://shop.example/events --type account.stored
    """
    with installation(acts=True) as container:
        endpoint = container.add_event_endpoint()(url=url, types=types, centers=centers or None)
        click.echo(f"added {endpoint.endpoint_id}; its secret is not shown again:", err=True)
        click.echo(endpoint.secrets.current)
        why = container.http_event_sender().unreachable_reason(endpoint.url)
        if why is not None:
            click.echo(
                f"Warning: with the current settings, events cannot be sent there: {why}", err=True
            )


@events.command("list")
@json_option
def list_endpoints(*, as_json: bool) -> None:
    """List the endpoints, oldest first.

    PENDING is the number of stored deliveries that will be attempted again. FAILED is the number of
    stored deliveries that will not be attempted again. Deliveries are stored for 30 days, unless
    CARDONFILE_RETENTION sets another time.

    \b
    Example:
      cardonfile events list
    """
    with reading() as (unit, _):
        endpoints = unit.event_endpoints.all()
        counts = unit.event_deliveries.counts()
        last_successes = unit.event_deliveries.last_successes()
    columns = (
        *("endpoint=endpoint_id", "url", "types", "centers", "added=created_at"),
        *("pending", "failed", "last_success", "state"),
    )
    rows = (
        {
            **asdict(endpoint),
            **asdict(counts.get(endpoint.endpoint_id, DeliveryCounts())),
            "last_success": last_successes.get(endpoint.endpoint_id),
            "centers": listed(endpoint.centers),
            "state": "active" if endpoint.is_active else "disabled",
        }
        for endpoint in endpoints
    )
    echo_records(columns, rows, as_json=as_json)


@events.command()
@click.argument("endpoint_id", metavar="ENDPOINT")
@types_option
def update(endpoint_id: str, *, types: Sequence[str]) -> None:
    """Change which events an endpoint receives.

    From now on, only events of these types are sent to the endpoint. Its secret and its existing
    deliveries do not change.

    \b
    Example:
      cardonfile events update 2f6c1a52-7d0b-4e4a-9c35-6a1d0c9b7e10 --type account.stored
    """
    with installation() as container:
        updated = container.update_event_endpoint()(endpoint_id, types=types)
        click.echo(f"{updated.endpoint_id} receives {', '.join(updated.types)}")


@events.command("test")
@click.argument("endpoint_id", metavar="ENDPOINT")
def send_test(endpoint_id: str) -> None:
    """Send one signed test event, and show the response.

    The type of the event is `test`. The exit status is 1 unless the response is 2xx. The event is
    not stored, and it is not sent again.

    \b
    Example:
      cardonfile events test 2f6c1a52-7d0b-4e4a-9c35-6a1d0c9b7e10
    """
    with installation(acts=True) as container:
        began = time.monotonic()
        try:
            status = container.send_test_event()(endpoint_id)
        except EventNotSent as error:
            raise click.ClickException(f"the event was not delivered: {error}") from None
        took = f"{status} after {time.monotonic() - began:.2f} seconds"
        if status // 100 != 2:
            raise click.ClickException(f"the endpoint responded with {took}; expected a 2xx status")
        click.echo(f"the endpoint responded with {took}")


@events.command()
@click.argument("endpoint_id", metavar="ENDPOINT")
def remove(endpoint_id: str) -> None:
    """Remove an endpoint, so that events are no longer sent to it.

    ENDPOINT is an id from `cardonfile events list`.

    \b
    Example:
      cardonfile events remove 2f6c1a52-7d0b-4e4a-9c35-6a1d0c9b7e10
    """
    with installation() as container:
        removed = container.remove_event_endpoint()(endpoint_id)
        click.echo(f"removed {removed.endpoint_id}, {removed.url}")


@events.command("roll-secret")
@click.argument("endpoint_id", metavar="ENDPOINT")
def roll_secret(endpoint_id: str) -> None:
    """Make a new secret, and print only the secret.

    For 24 hours, events are signed with the old and the new secret, so that the receiver can switch
    to the new secret. If you run the command again within that time, the oldest secret is dropped
    at once.

    \b
    Example:
      cardonfile events roll-secret 2f6c1a52-7d0b-4e4a-9c35-6a1d0c9b7e10
    """
    with installation() as container:
        click.echo(container.roll_event_secret()(endpoint_id).secrets.current)


@events.command("deliveries")
@click.option(
    "--failed", is_flag=True, help="List only deliveries that have failed and will not be retried."
)
@limit_option
@json_option
def deliveries(*, failed: bool, limit: int, as_json: bool) -> None:
    """List deliveries, newest first.

    Deliveries are stored for 30 days, unless CARDONFILE_RETENTION sets another time. Deliveries
    that are still due are kept longer. RESULT is the HTTP status of the last attempt, or the reason
    why there was no response.

    \b
    Example:
      cardonfile events deliveries --failed
    """
    with reading() as (unit, _):
        found = unit.event_deliveries.latest(limit=limit, only_failed=failed)
    columns = (
        *("event=event.event_id", "type=event.type", "happened=event.occurred_at"),
        *("endpoint=endpoint_id", "state=status", "attempts"),
        *("next=due_at", "result=last_result"),
    )
    echo_records(columns, found, as_json=as_json, limit=limit)


@events.command()
@click.argument("event_id", metavar="[EVENT]", required=False)
@since_option
@click.option(
    "--endpoint",
    "endpoint_id",
    metavar="ENDPOINT",
    help="With --since, send only to this endpoint.",
)
def replay(event_id: str | None, *, within: timedelta | None, endpoint_id: str | None) -> None:
    """Resend one event, or all events since a given time.

    Each event is sent to every endpoint that now subscribes to its type. EVENT is an id that
    `cardonfile events deliveries` shows, and that receivers get as `webhook-id`. With --since, the
    events from that time on are sent, even those that have already arrived. An event is left out if
    no endpoint subscribed to its type when the event occurred.

    \b
    Examples:
      cardonfile events replay evt_5d1c0f0e-8a53-4f53-b9d4-0c8f6a3e2b71
      cardonfile events replay --since 12h --endpoint 2f6c1a52-7d0b-4e4a-9c35-6a1d0c9b7e10
    """
    if (event_id is None) == (within is None):
        raise click.UsageError("give either EVENT or --since")
    if event_id is not None and endpoint_id is not None:
        raise click.UsageError("--endpoint needs --since")
    with installation(acts=True) as container:
        if event_id is not None:
            count = container.replay_event()(event_id)
            if count == 0:
                raise click.ClickException(
                    f"no endpoint receives events of this type now, so {event_id} is not sent"
                )
            click.echo(f"{event_id} will be sent to {count} endpoint{'' if count == 1 else 's'}")
        elif within is not None:
            since = time_before(container.clock().now(), within)
            done = container.replay_events_since()(since, endpoint_id=endpoint_id)
            click.echo(
                f"stored events: {done.events}, deliveries that are due now: {done.deliveries}"
            )
