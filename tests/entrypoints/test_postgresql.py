"""A whole installation on PostgreSQL: the command line, the HTTP API, and what comes at once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

import psycopg
import pytest

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.fake_psp.signatures import sign
from adapters.postgresql import connection
from adapters.postgresql.storage import PostgresqlStorage
from adapters.psp.contract.concurrency import at_once
from adapters.psp.contract.samples import GUEST_ID, a_uuid
from domain.card_sessions import CardSession, SessionStatus
from domain.errors import PaymentMethodAlreadyExists
from domain.hosted_pages import WebhookDelivery
from domain.identifiers import TokenId
from domain.payment_configuration import CardsPerGuest
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY, PRODUCTS, Api, refused, refused_bare
from tests.builders import CENTER_ID, a_session
from tests.entrypoints.conftest import ROOT, CommandLine
from tests.installation import GOOD_CARD, MERCHANT, OTHER_GOOD_CARD, REDIRECT_URI, Installation
from tests.postgresql import PostgresqlServer, new_database, own_server
from tests.programs import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

DEADLINE_SECONDS: Final = 60
SECRET: Final = "s3same"
NOBODY_LISTENS: Final = "127.0.0.1:1"
COMMANDS: Final = [("migrate",), ("token", "list"), ("serve",)]


@contextmanager
def command_line(folder: Path, url: str) -> Iterator[CommandLine]:
    """Lend the command line on a database."""
    cardonfile = CommandLine(folder)
    cardonfile.environment = {
        "CARDONFILE_DATABASE_URL": url,
        "CARDONFILE_FAKE_PSP_DATABASE": str(folder / "fake-psp.db"),
    }
    with closing(cardonfile.storage):
        yield cardonfile


@contextmanager
def installed(folder: Path, url: str) -> Iterator[Installation]:
    """Lend an installation on a migrated database."""
    installation = Installation(
        folder,
        CARDONFILE_DATABASE_URL=url,
        CARDONFILE_FAKE_PSP_DATABASE=str(folder / "fake-psp.db"),
    )
    with closing(installation):
        yield installation


@pytest.fixture
def url(postgresql_server: str) -> Iterator[str]:
    """Give the address of a migrated, empty database."""
    with new_database(postgresql_server) as url:
        yield url


@pytest.fixture
def empty(postgresql_server: str) -> Iterator[str]:
    """Give the address of a database with nothing in it."""
    with new_database(postgresql_server, migrated=False) as url:
        yield url


@pytest.fixture
def on_postgresql(tmp_path: Path, url: str) -> Iterator[CommandLine]:
    """Give the command line on a migrated database."""
    with command_line(tmp_path, url) as cardonfile:
        yield cardonfile


@pytest.fixture
def installation(tmp_path: Path, url: str) -> Iterator[Installation]:
    """Give an installation on PostgreSQL in place of a file."""
    with installed(tmp_path, url) as installation:
        yield installation


@pytest.fixture
def api(installation: Installation) -> Api:
    """Give a client whose caller may do everything."""
    return Api(installation)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    """Give a server that tests may stop, and have to start again."""
    with own_server() as server:
        yield server


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connected:
        connected.execute(statement.encode())


def as_user(url: str, user: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{user}@{parts.hostname}:{parts.port}").geturl()


class TestCommandLine:
    def test_every_command_prints_what_it_prints_on_sqlite(
        self, tmp_path: Path, unmigrated: CommandLine, empty: str
    ) -> None:
        on_sqlite = self.from_nothing(unmigrated)
        with command_line(tmp_path, empty) as cardonfile:
            assert self.from_nothing(cardonfile) == on_sqlite

    def from_nothing(self, cardonfile: CommandLine) -> list[str]:
        files = {
            "centers": f"id,name\n{CENTER_ID},Harbor Spa\n{a_uuid(2)},Zo\u00eb\u2019s \U0001f600 %s\n",
            "guests": "id,first_name,last_name,email\n"
            + "".join(f"{a_uuid(number)},Zo\u00eb,Li,\n" for number in range(300)),
            "products": "center_id,id,code,name,description,amount,currency\n"
            f"{CENTER_ID},{a_uuid(1)},P-1,Massage,An hour,0.10,EUR\n",
        }
        wrong = {
            "guests": files["guests"] + f"{a_uuid(299)},Zo\u00eb,Li,\n",
            "products": files["products"] + f"{a_uuid(404)},{a_uuid(2)},P-2,Sauna,,1.00,EUR\n",
        }
        moved = files["products"].replace(CENTER_ID, a_uuid(2))
        printed = []

        def import_(what: str, text: str) -> None:
            file = cardonfile.folder / f"{what}.csv"
            file.write_text(text)
            run("import", what, str(file))

        def run(*arguments: str) -> str:
            result = cardonfile.run(*arguments)
            text = re.sub(r"cof_[\w-]+|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "…", result.output)
            printed.append(f"{result.exit_code} {text}".replace(str(cardonfile.folder), ""))
            return result.stdout

        run("migrate")
        run("migrate")
        import_("products", files["products"])
        for what, text in [*files.items(), *files.items(), *wrong.items()]:
            import_(what, text)
        import_("products", moved)
        run("configure-payments", CENTER_ID, "--provider", "fake", "--avs")
        run("configure-payments", CENTER_ID, "--none")
        run("configure-payments", a_uuid(404), "--none")
        token = run("token", "issue", "--caller", "web-store", "--permission", "guests:add")
        run("token", "issue", "--caller", "kiosk", "--permission", "guests:add", "--ttl", "1m")
        run("token", "list")
        run("token", "revoke", token.strip())
        run("token", "revoke", "cof_nobody")
        run("token", "list")
        return printed

    def test_reconcile_does_what_is_due(self, url: str, on_postgresql: CommandLine) -> None:
        now = a_session().created_at
        with closing(PostgresqlStorage(url)) as storage, storage.write() as unit:
            unit.sessions.add(a_session(due_at=now, expires_at=now + timedelta(minutes=30)))
            unit.commit()

        with on_postgresql.start("reconcile") as process:
            printed, _ = process.communicate(timeout=DEADLINE_SECONDS)

        assert printed == b"reconciled 1 sessions and 0 discards, 0 faults\n"
        assert process.returncode == 0


class TestComplaints:
    """Each is one sentence, without a traceback and without a password."""

    @pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
    @pytest.mark.parametrize(
        ("address", "complaint"),
        [
            (f"postgresql://postgres:{SECRET}@{NOBODY_LISTENS}/nowhere", "Connection refused"),
            (f"postgresql://postgres:{SECRET}@localhost:1/nowhere", "Connection refused"),
            (f"postgresql://postgres:{SECRET}@nobody.invalid/nowhere", "nobody.invalid"),
            (f"postgresql://postgres:{SECRET}%zz@{NOBODY_LISTENS}/nowhere", "%40"),
            (f"postgresql://postgres:{SECRET} {SECRET}@{NOBODY_LISTENS}/nowhere", "%40"),
            (f"postgresql://postgres:not@{SECRET}@{NOBODY_LISTENS}/nowhere", "%40"),
            (f"postgresql://postgres:{SECRET}/@{NOBODY_LISTENS}/nowhere", "%40"),
            (f"postgresql://postgres@{NOBODY_LISTENS}/nowhere?{SECRET}=1", "cannot be read"),
            (f"postgresql://postgres:{SECRET}@host:port/nowhere", "port"),
        ],
        ids=["away", "two addresses", "host", "percent", "space", "at", "slash", "option", "port"],
    )
    def test_an_address_that_leads_nowhere(
        self, tmp_path: Path, arguments: tuple[str, ...], address: str, complaint: str
    ) -> None:
        with command_line(tmp_path, address) as cardonfile:
            sentence = cardonfile.refuses(*arguments)
        assert complaint in sentence
        assert SECRET not in sentence

    @pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
    def test_a_database_that_is_not_there(
        self, tmp_path: Path, url: str, arguments: tuple[str, ...]
    ) -> None:
        with command_line(tmp_path, f"{url}_not") as cardonfile:
            sentence = cardonfile.refuses(*arguments)
        assert re.search(r'cannot be used \(.*database "\w+_not" does not exist', sentence)

    @pytest.mark.parametrize("arguments", COMMANDS[1:], ids=" ".join)
    def test_one_that_is_not_migrated(
        self, tmp_path: Path, empty: str, arguments: tuple[str, ...]
    ) -> None:
        with command_line(tmp_path, empty) as cardonfile:
            assert "run `cardonfile migrate`" in cardonfile.refuses(*arguments)

    @pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
    def test_one_of_a_newer_release(
        self, url: str, on_postgresql: CommandLine, arguments: tuple[str, ...]
    ) -> None:
        execute(url, "INSERT INTO cardonfile_migrations VALUES ('m999_later')")
        assert "newer release" in on_postgresql.refuses(*arguments)

    def test_one_that_may_only_be_read_is_not_served(
        self, url: str, on_postgresql: CommandLine
    ) -> None:
        database = url.rpartition("/")[2]
        execute(url, f"ALTER DATABASE {database} SET default_transaction_read_only = on")

        complaint = on_postgresql.fails_to_start("serve", "--port", str(free_port()))

        assert complaint == "the database cannot be used (the server lets this role read only)"

    def test_the_log_names_the_database_without_its_password(
        self, tmp_path: Path, url: str
    ) -> None:
        server = urlsplit(url)
        address = f"{url}?{urlencode({'password': SECRET, 'sslpassword': SECRET})}"
        with (
            command_line(tmp_path, address) as cardonfile,
            cardonfile.start("serve", "--port", str(free_port())) as process,
        ):
            assert process.stderr is not None
            line = process.stderr.readline().decode()
            process.terminate()
            _, rest = process.communicate(timeout=DEADLINE_SECONDS)

        assert "serving" in line
        assert f"host={server.hostname} port={server.port} dbname={server.path[1:]}" in line
        assert SECRET not in line + rest.decode()

    def test_one_where_nothing_may_be_made_or_read(
        self, tmp_path: Path, url: str, empty: str
    ) -> None:
        clerk = f"clerk_{url.rpartition('/')[2]}"
        execute(url, f"CREATE ROLE {clerk} LOGIN")
        try:
            with command_line(tmp_path, as_user(empty, clerk)) as cardonfile:
                complaint = cardonfile.refuses("migrate")
            with command_line(tmp_path, as_user(url, clerk)) as cardonfile:
                other_complaint = cardonfile.refuses("token", "list")
        finally:
            execute(url, f"DROP ROLE {clerk}")
        assert "permission denied for schema public" in complaint
        assert "permission denied for table cardonfile_migrations" in other_complaint

    def test_one_whose_tables_are_gone(self, url: str, on_postgresql: CommandLine) -> None:
        execute(url, "DROP TABLE access_tokens")
        assert "does not fit this release" in on_postgresql.refuses("token", "list")

    def test_a_password_that_is_wrong(self, tmp_path: Path, server: PostgresqlServer) -> None:
        rules = server._data / "pg_hba.conf"
        rules.write_text("host all judy all scram-sha-256\n" + rules.read_text())
        execute(server.url, "CREATE ROLE judy LOGIN PASSWORD 'right'")
        execute(server.url, "SELECT pg_reload_conf()")
        address = as_user(server.url, f"judy:{SECRET}")

        for arguments in COMMANDS:
            with command_line(tmp_path, address) as cardonfile:
                sentence = cardonfile.refuses(*arguments)
            assert 'password authentication failed for user "judy"' in sentence
            assert SECRET not in sentence

    @pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
    def test_a_client_that_is_not_installed(
        self, tmp_path: Path, arguments: tuple[str, ...]
    ) -> None:
        program = (
            "import sys; sys.modules['psycopg'] = None; "
            "from entrypoints.cli import main; main(prog_name='cardonfile')"
        )
        ended = subprocess.run(
            [sys.executable, "-W", "error", "-c", program, *arguments],
            check=False,
            cwd=tmp_path,
            env={
                "PYTHONPATH": str(ROOT),
                "CARDONFILE_DATABASE_URL": f"postgresql://postgres:{SECRET}@localhost/cardonfile",
            },
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
        assert (ended.returncode, ended.stdout) == (1, "")
        assert re.fullmatch(r"Error: .* needs an extra .*EXTRAS=postgresql.*\n", ended.stderr)
        assert SECRET not in ended.stderr


class TestHttp:
    def test_a_card_is_added_listed_and_removed(self, api: Api) -> None:
        added = api.post({**GOOD_BODY, "source": 5})
        assert added.status_code == 200
        token_id = added.json["token_id"]
        session = api.installation.session(token_id)

        link = urlencode({"token_id": token_id, "redirect_uri": REDIRECT_URI})
        opened = api.send("GET", "/hosted-payments", query=link, authenticated=False)
        assert opened.status_code == 303
        api.installation.type_card(session)
        back = api.send(
            "GET", "/hosted-payments/return", query=f"token_id={token_id}", authenticated=False
        )
        assert (back.status_code, back.headers["location"]) == (303, REDIRECT_URI)

        (account,) = api.get(ACCOUNTS, f"center_id={CENTER_ID}").json["accounts"]
        assert (account["last_four"], account["expiry_on"]) == ("4242", "09/31")
        read = api.get(f"{ACCOUNTS}/sessions/{token_id}").json
        assert (read["status"], read["account_id"]) == ("completed", account["account_id"])
        assert api.get(f"{ACCOUNTS}/{account['account_id']}").status_code == 200
        assert api.send("DELETE", f"{ACCOUNTS}/{account['account_id']}").status_code == 200
        assert api.get(ACCOUNTS).json["accounts"] == []
        assert api.get(PRODUCTS).json["products"] == []
        api.installation.reconcile_until_idle()
        assert api.installation.tokens_at_psp() == frozenset()

    @pytest.mark.parametrize("broken", ["\x00", "\ud800"], ids=ascii)
    def test_text_that_postgresql_does_not_take_is_never_a_fault_of_ours(
        self, api: Api, broken: str
    ) -> None:
        text = f"a{broken}b"
        in_query = quote(text, errors="surrogatepass")
        session = api.installation.opened_session()
        fields = (
            "first_name",
            "last_name",
            "email",
            "address",
            "state",
            "zipcode",
            "city",
            "phone",
        )
        for field in fields:
            answer = api.post({**GOOD_BODY, "billing_info": {field: text}})
            assert refused(answer) == (400, f"billing_info.{field} is invalid")
        for field in ("center_id", "redirect_uri", "source"):
            assert api.post({**GOOD_BODY, field: text}).status_code == 400
        assert api.post({**GOOD_BODY, "unknown": text}).status_code == 200
        for path in (
            f"/api/v1/guests/{in_query}/accounts",
            f"{ACCOUNTS}/{in_query}",
            f"{ACCOUNTS}/sessions/{in_query}",
            f"/v1/centers/{in_query}/products",
        ):
            assert api.get(path).status_code in (400, 404)
        for name in ("center_id", "page", "size"):
            assert api.get(ACCOUNTS, f"{name}={in_query}").status_code in (400, 422)
        for path, query in (
            ("/hosted-payments", f"token_id={in_query}&redirect_uri={in_query}"),
            ("/hosted-payments", f"token_id={session.token_id}&redirect_uri={in_query}"),
            ("/hosted-payments/return", f"token_id={in_query}"),
        ):
            assert api.send("GET", path, query=query, authenticated=False).status_code in (400, 404)
        back = api.send(
            "GET",
            "/hosted-payments/return",
            query=f"token_id={session.token_id}&result={in_query}&{in_query}=1",
            authenticated=False,
        )
        assert back.status_code == 303
        with api.installation.storage.read() as unit:
            assert len(unit.evidence.of(session.token_id)) == 1

    @pytest.mark.parametrize("token_id", ["", "order-7", "{" + a_uuid(1) + "}"])
    def test_an_event_about_what_has_no_session_here_is_ignored(
        self, api: Api, token_id: str
    ) -> None:
        now = api.installation.clock.now()
        event = {
            "id": "e",
            "type": "page.completed",
            "created": 1,
            "page": "p",
            "merchant_account": MERCHANT,
            "token_id": token_id,
        }
        body = json.dumps({"events": [event]}).encode()
        signature = sign(body, secret=api.installation.psp.webhook_secret, now=now)

        answer = api.send(
            "POST",
            "/webhooks/fake",
            body=body,
            headers={"Fake-Psp-Signature": signature, "Content-Type": "application/json"},
            authenticated=False,
        )

        assert answer.status_code == 200


class TestAtOnce:
    @pytest.mark.parametrize("attempt", range(3))
    def test_many_who_settle_a_session_store_its_card_once(
        self, installation: Installation, attempt: int
    ) -> None:
        session = installation.opened_session()
        installation.type_card(session)

        settled = at_once(12, lambda _: installation.settle(session.token_id))

        (account,) = installation.accounts()
        assert all(each and each.account_id == account.account_id for each in settled)
        installation.reconcile_until_idle()
        assert installation.tokens_at_psp() == {account.token}

    def test_a_hundred_webhooks_store_one_card(self, installation: Installation) -> None:
        session = installation.opened_session()
        installation.type_card(session)
        now = installation.clock.now()
        event = installation.psp.take_due_event(now, until=now + timedelta(minutes=1))
        assert event is not None
        signature = sign(event.body, secret=installation.psp.webhook_secret, now=now)
        delivery = WebhookDelivery(headers={"fake-psp-signature": signature}, body=event.body)

        def deliver_or_reconcile(number: int) -> None:
            for _ in range(5):
                if number < 20:
                    installation.use_cases.receive_webhook(FAKE, delivery)
                else:
                    installation.reconcile()

        at_once(22, deliver_or_reconcile)
        installation.reconcile_until_idle()

        (account,) = installation.accounts()
        assert installation.session(session.token_id).status is SessionStatus.COMPLETED
        assert installation.tokens_at_psp() == {account.token}
        with installation.storage.read() as unit:
            assert len(unit.evidence.of(session.token_id)) == 1

    @pytest.mark.parametrize("attempt", range(3))
    def test_one_card_in_two_sessions_is_stored_once(
        self, installation: Installation, attempt: int
    ) -> None:
        self.settle_at_once(installation, GOOD_CARD, GOOD_CARD)

    @pytest.mark.parametrize("attempt", range(3))
    def test_of_two_cards_a_guest_who_may_have_one_gets_one(
        self, installation: Installation, attempt: int
    ) -> None:
        installation.configure(cards_per_guest=CardsPerGuest.ONE)
        self.settle_at_once(installation, GOOD_CARD, OTHER_GOOD_CARD)

    def settle_at_once(self, installation: Installation, *numbers: str) -> None:
        """Have cards collected in a session each, of which a single one may be stored."""
        sessions = [installation.opened_session() for _ in numbers]
        for session, number in zip(sessions, numbers, strict=True):
            installation.type_card(session, number)

        at_once(8, lambda number: installation.settle(sessions[number % 2].token_id))

        (account,) = installation.accounts()
        ends = [installation.session(session.token_id) for session in sessions]
        assert {end.status for end in ends} == {SessionStatus.COMPLETED, SessionStatus.FAILED}
        (failure,) = (end.failure for end in ends if end.failure)
        assert failure.message == PaymentMethodAlreadyExists.message
        installation.reconcile_until_idle()
        assert installation.tokens_at_psp() == {account.token}

    def test_sends_under_one_key_get_one_session(self, installation: Installation) -> None:
        def add_card(key: str, _: int) -> CardSession:
            return installation.add_card(idempotency_key=key)

        for again in range(5):
            sessions = at_once(12, partial(add_card, f"key-{again}"))
            assert len({session.token_id for session in sessions}) == 1
        installation.clock.advance(timedelta(hours=1))
        assert installation.reconcile().sessions == 5

    def test_each_of_several_reconcilers_takes_up_what_no_other_does(
        self, installation: Installation
    ) -> None:
        sessions = [installation.add_card() for _ in range(30)]
        installation.clock.advance(timedelta(hours=1))

        rounds = at_once(4, lambda _: installation.reconcile())

        assert sum(each.sessions for each in rounds) == len(sessions)
        assert not any(each.faults for each in rounds)
        assert {installation.session(each.token_id).status for each in sessions} == {
            SessionStatus.EXPIRED
        }

    def test_a_card_may_be_removed_while_it_is_stored_again(
        self, installation: Installation
    ) -> None:
        for _ in range(3):
            account = installation.stored_card()
            session = installation.opened_session()
            installation.type_card(session, expiry=(9, 2035))

            def remove_or_settle(
                number: int,
                account_id: str = account.account_id,
                token_id: TokenId = session.token_id,
            ) -> None:
                if number:
                    installation.settle(token_id)
                else:
                    installation.use_cases.remove_account(
                        installation.caller, guest_id=GUEST_ID, account_id=account_id
                    )

            at_once(4, remove_or_settle)
            installation.reconcile_until_idle()
            active = installation.accounts()
            assert installation.tokens_at_psp() == {each.token for each in active}
            for each in active:
                installation.use_cases.remove_account(
                    installation.caller, guest_id=GUEST_ID, account_id=each.account_id
                )
            installation.reconcile_until_idle()
            assert installation.tokens_at_psp() == frozenset()


class TestOutage:
    @pytest.fixture
    def api(self, tmp_path: Path, server: PostgresqlServer) -> Iterator[Api]:
        """Give a client of an installation on a server that may be stopped."""
        with new_database(server.url) as url, installed(tmp_path, url) as installation:
            yield Api(installation)

    def test_a_server_that_is_away_is_a_clear_503_until_it_is_back(
        self, api: Api, server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.5)
        api.installation.storage.close()
        assert api.get("/readyz").json == {"status": "ready"}
        session = api.installation.add_card()

        server.stop()
        try:
            assert refused_bare(api.get("/readyz")) == (503, "Service temporarily unavailable")
            assert api.get("/healthz").json == {"status": "ok"}
            assert refused(api.post(GOOD_BODY)) == (503, "Service temporarily unavailable")
            assert api.get(PRODUCTS).status_code == 503
            page = api.send(
                "GET", "/hosted-payments", query=self.link_of(session), authenticated=False
            )
            assert page.status_code == 503
            assert "load this page again" in page.text
        finally:
            server.start()

        wait_until(lambda: api.get("/readyz").status_code == 200)
        assert api.post(GOOD_BODY).status_code == 200
        page = api.send("GET", "/hosted-payments", query=self.link_of(session), authenticated=False)
        assert page.status_code == 303

    def test_nobody_notices_a_restart_between_two_requests(
        self, api: Api, server: PostgresqlServer
    ) -> None:
        at_once(8, lambda _: api.post(GOOD_BODY))

        server.stop()
        server.start()

        answers = at_once(16, lambda _: api.post(GOOD_BODY))
        assert {answer.status_code for answer in answers} == {200}

    def link_of(self, session: CardSession) -> str:
        return urlencode({"token_id": session.token_id, "redirect_uri": session.redirect_uri})
