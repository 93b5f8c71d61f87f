"""Card testing, done as criminals do it: with links made before, typing on the pages behind them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from adapters.fake_psp.psp import PageState
from adapters.psp_suite.samples import a_uuid
from domain.identifiers import GuestId, TokenId
from domain.sessions.session import CardSession
from entrypoints.worker.worker import Worker
from tests.adapters.fake_psp.conftest import Browser
from tests.builders import CALLER, a_guest, a_session
from tests.entrypoints.conftest import CommandLine
from tests.installation import DECLINED_CARD, Installation
from tests.waiting import wait_until

LINKS = 25


class Criminal:
    """Somebody with stolen cards, all of which the bank declines, and a browser."""

    def __init__(self, installation: Installation) -> None:
        self._psp = installation.psp
        self._client = installation.client()
        self.declined = 0

    def open(self, session: CardSession) -> str | None:
        """Open a link; return the reference of the page that it leads to, None if it is paused."""
        query = {"token_id": session.token_id, "redirect_uri": session.redirect_uri}
        opened = self._client.simulate_get("/hosted-payments", params=query)
        if opened.status_code == 303:
            return opened.headers["location"].rpartition("/")[2]
        assert opened.status_code == 429
        assert int(opened.headers["retry-after"]) > 0
        return None

    def try_card(self, reference: str) -> bool:
        """Try a card on a page; return whether the bank was asked."""
        before = self._psp.page(reference).refused_cards
        Browser(self._psp, reference, self._client).pay(DECLINED_CARD)
        declined = self._psp.page(reference).refused_cards - before
        self.declined += declined
        return declined > 0

    def come_back(self, session: CardSession) -> None:
        """Leave the page by the return address."""
        back = self._client.simulate_get(
            "/hosted-payments/return", params={"token_id": session.token_id}
        )
        assert back.status_code == 303


@contextmanager
def service(folder: Path, limits: str) -> Iterator[Installation]:
    """Provide an installation with these limits, whose worker runs."""
    installation = Installation(folder, CARDONFILE_CARD_TESTING_LIMITS=limits)
    worker = Worker(installation.container, base_url="http://127.0.0.1:1")
    worker.start()
    yield installation
    worker.stop()
    installation.close()


def links_of_guests(installation: Installation) -> list[CardSession]:
    """Return links of as many guests."""
    guests = [GuestId(a_uuid(700 + number)) for number in range(LINKS)]
    for guest_id in guests:
        installation.has_guest(a_guest(id=guest_id))
    return [installation.add_card(guest_id=guest_id) for guest_id in guests]


def is_closed(installation: Installation, page: str) -> bool:
    return installation.psp.page(page).state is PageState.CLOSED


# Shows S27.
def test_links_of_many_guests_made_before_try_no_more_cards_than_the_limit_of_their_caller(
    tmp_path: Path,
) -> None:
    limits = "guest=off/10,guest-everywhere=off/off,caller=off/5,center=off/8"
    with service(tmp_path, limits) as installation:
        criminal = Criminal(installation)
        for session in links_of_guests(installation):
            while (page := criminal.open(session)) is not None:
                while criminal.try_card(page):
                    pass
                criminal.come_back(session)

        assert criminal.declined == 5


# Shows S27.
def test_pages_of_a_guest_opened_before_try_no_more_cards_than_the_limit(tmp_path: Path) -> None:
    with service(tmp_path, "guest=off/10") as installation:
        criminal = Criminal(installation)
        sessions = [installation.add_card() for _ in range(LINKS)]
        pages = [criminal.open(session) for session in sessions]
        for session, page in zip(sessions[:10], pages, strict=False):
            assert page is not None
            assert criminal.try_card(page)
            criminal.come_back(session)

        for page in filter(None, pages):
            wait_until(partial(is_closed, installation, page))
            assert not criminal.try_card(page)
        assert criminal.declined == 10
        assert {criminal.open(session) for session in sessions} == {None}


def test_the_command_cancels_the_open_sessions_of_a_caller(cardonfile: CommandLine) -> None:
    cardonfile.succeeds("token", "issue", "--caller", CALLER, "--permission", "guests:add")
    with cardonfile.storage.write() as unit:
        for number in range(3):
            unit.sessions.add(a_session(token_id=TokenId(a_uuid(500 + number))))
        unit.commit()

    cancel = ("session", "cancel", "--caller", CALLER)
    assert cardonfile.succeeds(*cancel) == f"cancelled 3 sessions of {CALLER}\n"
    assert cardonfile.succeeds(*cancel) == f"cancelled 0 sessions of {CALLER}\n"
