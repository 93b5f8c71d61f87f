"""`cardonfile events`: endpoints and deliveries of events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from domain.events.event import DeliveryCounts, EventType
from entrypoints.cli.installation import installation, reading
from entrypoints.cli.terminal import echo_records, json_option, limit_option, listed


@click.group()
def events() -> None:
    """Send signed events to clients, and see what became of them.

    \b
    Example:
      cardonfile events add https://shop.example/events --type account.stored
    """


@events.command()
@click.argument("url", metavar="URL")
@click.option(
    "--type",
    "types",
    type=click.Choice([each.value for each in EventType]),
    multiple=True,
    required=True,
    help="What the endpoint is told; may be repeated.",
)
@click.option(
    "--center",
    "centers",
    metavar="ID",
    multiple=True,
    help="A center whose events it gets; may be repeated.  [default: all centers]",
)
def add(*, url: str, types: Sequence[str], centers: Sequence[str]) -> None:
    """Add an endpoint, and print its secret alone.

    Events that happen from now on are sent to it by a running `cardonfile serve` or `work`. URL is
    https, or http while the service itself is on this machine. It must lead to a public address,
    or to a network in CARDONFILE_EVENT_NETWORKS.

    \b
    Example:
      cardonfile events add https://shop.example/events --type account.stored
    """
    with installation() as container:
        endpoint = container.add_event_endpoint()(url=url, types=types, centers=centers or None)
        click.echo(f"added {endpoint.endpoint_id}; its secret is not shown again:", err=True)
        click.echo(endpoint.secrets.current)
        why = container.event_sender().why_unreachable(endpoint.url)
        if why is not None:
            click.echo(f"Warning: with these settings nothing is sent there: {why}", err=True)


@events.command("list")
@json_option
def list_endpoints(*, as_json: bool) -> None:
    """List the endpoints, oldest first.

    PENDING and FAILED count deliveries that are on record, of 30 days unless set otherwise.

    \b
    Example:
      cardonfile events list
    """
    with reading() as (unit, _):
        counts = unit.event_deliveries.counts()
        last_successes = unit.event_deliveries.last_successes()
        columns = (
            *("endpoint=endpoint_id", "url", "types", "centers", "added=created_at"),
            *("pending", "failed", "last_success", "state"),
        )
        echo_records(
            columns,
            (
                {
                    **asdict(each),
                    **asdict(counts.get(each.endpoint_id, DeliveryCounts())),
                    "last_success": last_successes.get(each.endpoint_id),
                    "centers": listed(each.centers),
                    "state": "active" if each.is_active else "disabled",
                }
                for each in unit.event_endpoints.all()
            ),
            as_json=as_json,
        )


@events.command()
@click.argument("endpoint_id", metavar="ENDPOINT")
def remove(endpoint_id: str) -> None:
    """Remove an endpoint: nothing more is sent to it.

    ENDPOINT is an id that `cardonfile events list` shows.

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
    """Make a new secret, and print it alone.

    For 24 hours events are signed with both secrets, so that the receiver can change over. Rolling
    again in that time ends the older one at once.

    \b
    Example:
      cardonfile events roll-secret 2f6c1a52-7d0b-4e4a-9c35-6a1d0c9b7e10
    """
    with installation() as container:
        click.echo(container.roll_event_secret()(endpoint_id).secrets.current)


@events.command("deliveries")
@click.option("--failed", is_flag=True, help="Only those that are not tried any more.")
@limit_option
@json_option
def deliveries(*, failed: bool, limit: int, as_json: bool) -> None:
    """List deliveries, newest first. Old ones are deleted unless they are due.

    RESULT is the HTTP status of the last attempt, or why there was no response.

    \b
    Example:
      cardonfile events deliveries --failed
    """
    with reading() as (unit, _):
        columns = (
            *("event=event.event_id", "type=event.type", "happened=event.occurred_at"),
            *("endpoint=endpoint_id", "state=status", "attempts"),
            *("next=due_at", "result=last_result"),
        )
        found = unit.event_deliveries.latest(limit=limit, only_failed=failed)
        echo_records(columns, found, as_json=as_json, limit=limit)


@events.command()
@click.argument("event_id", metavar="EVENT")
def replay(event_id: str) -> None:
    """Send an event again, to every endpoint that takes such events now.

    EVENT is an id that `cardonfile events deliveries` shows; receivers know it as `webhook-id`.

    \b
    Example:
      cardonfile events replay evt_5d1c0f0e-8a53-4f53-b9d4-0c8f6a3e2b71
    """
    with installation() as container:
        count = container.replay_event()(event_id)
        click.echo(f"{event_id} will be sent to {count} endpoint{'' if count == 1 else 's'}")
