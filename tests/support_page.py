"""Runs the commands of docs/support.md on a prepared installation.

`python -m tests.support_page` writes what they print into the page.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from click.testing import CliRunner
from dependency_injector import providers

import entrypoints.container
from adapters.psp.contract.ids import SeededIds
from adapters.psp.contract.samples import GUEST_ID
from domain.access.token import hash_of
from domain.audit.entry import Actor
from domain.audit.note_act import NoteAct
from domain.cards.account import Account
from domain.events.event import EventType
from domain.psps.payment_provider import ProviderUnavailable
from domain.sessions.session import CardSession
from entrypoints.cli.main import main
from entrypoints.container import Container
from entrypoints.settings import Settings
from tests.installation import DECLINED_CARD, GOOD_CARD, OTHER_GOOD_CARD, Installation, Trouble
from tests.simulation.endpoints import Endpoints, EndpointTrouble
from tests.use_cases import UseCases

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "support.md"
OPERATOR: Final = Actor("user:deploy")
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
LEFT_OUT: Final = "…"
"""The last line of an output that goes on, or the first of one whose beginning is left out."""

EXAMPLE: Final = re.compile(
    r"^(```sh\ncardonfile (.*?)\n```\n\n```\w+)\n(.*?)```$", re.MULTILINE | re.DOTALL
)


def with_real_outputs() -> str:
    """Return the page with what its commands print.

    Ids are always the same in it, however many the installation has used up.
    """
    with TemporaryDirectory() as folder, _prepared(Path(folder)) as (installation, ids):

        def answered(example: re.Match[str]) -> str:
            before, command, shown = example.groups()
            for on_page, real in ids.items():
                command = command.replace(on_page, real)
            output = _run(installation, *shlex.split(command))
            for on_page, real in ids.items():
                output = output.replace(real, on_page)
            lines = output.splitlines()
            kept = shown.count("\n") - 1
            if shown.endswith(f"{LEFT_OUT}\n"):
                lines[kept:] = [LEFT_OUT]
            elif shown.startswith(f"{LEFT_OUT}\n"):
                lines[:-kept] = [LEFT_OUT]
            return "\n".join([before, *lines, "```"])

        return EXAMPLE.sub(answered, PAGE.read_text())


@contextmanager
def _prepared(folder: Path) -> Iterator[tuple[Installation, Mapping[str, str]]]:
    """Provide an installation in which a week has passed, and the ids on the page with its own."""
    with closing(Installation(folder)) as it:
        endpoints = Endpoints()
        _share(it, it.container)
        it.container.event_sender.override(providers.Object(endpoints))
        it.container.reset_singletons()
        it.use_cases = UseCases.of(it.container)
        it.reconcile = it.container.reconcile()
        real = list(_week(it, endpoints))
        on_page = SeededIds(2026)
        shown = [f"cof_{on_page.secret()[:8]}", *(on_page.uuid() for _ in real[1:])]
        whole = dict(zip(shown, real, strict=True))
        beginnings = {page[:8]: id_[:8] for page, id_ in whole.items() if len(id_) == 36}
        yield it, whole | beginnings


def _week(it: Installation, endpoints: Endpoints) -> Iterator[str]:
    """Live through a week; yield the prefix of the token, and then each id that was made."""
    token = ("token", "issue", "--caller", "web-shop", "--permission", "guests:add", "--ttl", "9d")
    issued = _run(it, *token).strip()
    yield issued[:12]
    endpoint = it.container.add_event_endpoint()(
        url="https://shop.example/events",
        types=[EventType.ACCOUNT_STORED, EventType.ACCOUNT_REMOVED],
        centers=None,
    )
    yield endpoint.endpoint_id

    _pass(it, DAY)
    card = _card(it, GOOD_CARD, (12, 2026))
    _pass(it, DAY)
    declined = it.session_with_card(DECLINED_CARD)
    _pass(it, MINUTE)
    _pass(it, 2 * HOUR)
    again = it.opened_session()
    it.type_card(again, GOOD_CARD, expiry=(12, 2026))
    it.return_to_shop(again)
    _pass(it, 2 * DAY)
    removed = _card(it, OTHER_GOOD_CARD, (9, 2031))
    _run(it, "configure-payments", card.center_id, "--session-minutes", "60")
    endpoints.troubles[endpoint.endpoint_id] = EndpointTrouble.REFUSES
    _pass(it, HOUR)
    it.use_cases.remove_account(it.caller, guest_id=GUEST_ID, account_id=removed.account_id)
    _pass(it, HOUR)
    with it.storage.write() as unit:
        unit.access_tokens.note_use(hash_of(issued), it.clock.now().replace(minute=0))
        unit.commit()
    it.provider.have(Trouble.BEFORE_IT_ACTED)
    silent = it.add_card()
    with suppress(ProviderUnavailable):
        it.open_page(silent)
    _pass(it, 10 * MINUTE)

    yield from (card.account_id, card.token_id, declined.token_id, again.token_id)
    yield from (removed.account_id, removed.token_id, silent.token_id)
    for delivery in it.deliveries():
        yield delivery.event.event_id.removeprefix("evt_")


def _card(it: Installation, number: str, expiry: tuple[int, int]) -> Account:
    session: CardSession = it.opened_session()
    it.clock.advance(MINUTE)
    it.type_card(session, number, expiry=expiry)
    it.return_to_shop(session)
    return it.account(it.session(session.token_id).account_id)


def _pass(it: Installation, time: timedelta) -> None:
    it.reconcile_until_idle()
    it.clock.advance(time)
    it.reconcile_until_idle()


def _share(it: Installation, container: Container) -> None:
    """Have a container use the time and ids of the installation, and the operator's name."""
    note_act = NoteAct(operator=OPERATOR, clock=it.clock, ids=it.ids)
    container.clock.override(providers.Object(it.clock))
    container.ids.override(providers.Object(it.ids))
    container.note_act.override(providers.Object(note_act))


def _run(it: Installation, *arguments: str) -> str:
    """Run a command that must succeed, and return its output."""
    really = entrypoints.container.build

    def build(settings: Settings) -> Container:
        container = really(settings)
        _share(it, container)
        return container

    environment = {
        "CARDONFILE_DATABASE_URL": f"sqlite:///{it.database}",
        "CARDONFILE_ERASURES_FILE": str(it.database.with_name("erasures.txt")),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entrypoints.container, "build", build)
        result = CliRunner().invoke(main, arguments, env=environment, catch_exceptions=False)
    assert (result.exit_code, result.stderr) == (0, ""), result.stderr
    return result.stdout


if __name__ == "__main__":
    PAGE.write_text(with_real_outputs())
