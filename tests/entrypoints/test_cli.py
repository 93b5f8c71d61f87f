"""The commands, as an operator runs them: what they do, print and refuse."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from signal import SIGHUP, SIGINT, SIGTERM, SIGUSR1, default_int_handler, getsignal, signal
from typing import Final

import click
import pytest
from click.testing import CliRunner

from adapters.psp.contract.samples import GUEST_ID
from domain.centers.payment_configuration import CardsPerGuest, PaymentConfiguration
from domain.identifiers import CenterId, MerchantAccount, ProviderName
from entrypoints.cli.main import main
from entrypoints.csv_import import KINDS
from tests.builders import CENTER_ID, a_center, a_session
from tests.entrypoints.conftest import ROOT, CommandLine
from tests.programs import free_port
from tests.waiting import wait_until

DEADLINE_SECONDS = 60
EVERY_COMMAND_BUT_MIGRATE_AND_DEMO = [
    ("import", "centers", "centers.csv"),
    ("configure-payments", CENTER_ID, "--none"),
    ("token", "issue", "--caller", "web-store", "--permission", "guests:add"),
    ("token", "list"),
    ("token", "revoke", "cof_abcdefgh"),
    ("serve",),
    ("reconcile",),
]


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Name every command and group below one."""
    yield path
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from commands(below, (*path, name))


@pytest.fixture
def with_center(cardonfile: CommandLine) -> CommandLine:
    """Return the command line on a database with one center."""
    with cardonfile.storage.write() as unit:
        unit.centers.put_many([a_center()])
        unit.commit()
    return cardonfile


@pytest.fixture
def taken_port() -> Iterator[str]:
    """Return a port on which nothing can listen: a command that should have refused ends there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield str(taken.getsockname()[1])


def configuration(command_line: CommandLine) -> PaymentConfiguration | None:
    with command_line.storage.read() as unit:
        return unit.configurations.get(CENTER_ID)


class TestHelp:
    def test_the_commands_are_the_ones_that_operators_script_against(self) -> None:
        assert set(commands(main)) == {
            (),
            ("migrate",),
            ("import",),
            ("configure-payments",),
            ("token",),
            ("token", "issue"),
            ("token", "list"),
            ("token", "revoke"),
            ("session",),
            ("session", "cancel"),
            ("events",),
            ("events", "add"),
            ("events", "list"),
            ("events", "remove"),
            ("events", "roll-secret"),
            ("events", "deliveries"),
            ("events", "replay"),
            ("serve",),
            ("work",),
            ("reconcile",),
            ("copy-database",),
            ("demo",),
        }

    def test_shows_the_columns_that_are_expected(self) -> None:
        text = CliRunner().invoke(main, ["import", "--help"]).stdout

        for what, kind in KINDS.items():
            assert f"{what:8}  {','.join(kind.columns)}\n" in text

    def test_imports_nothing_that_is_heavy(self) -> None:
        program = "import sys, entrypoints.cli.main; print(*sys.modules)"
        printed = subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True)

        assert {"falcon", "sqlite_utils", "structlog", "waitress"}.isdisjoint(printed.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("import", "pets", "pets.csv"),
        ("configure-payments", CENTER_ID),
        ("configure-payments", CENTER_ID, "--avs"),
        ("configure-payments", CENTER_ID, "--none", "--provider", "fake"),
        # An option is refused also if it says what holds without it.
        ("configure-payments", CENTER_ID, "--none", "--account", "default"),
        ("configure-payments", CENTER_ID, "--provider", "fake", "--cards-per-guest", "two"),
        ("token", "issue", "--caller", "web-store"),
        ("token", "issue", "--caller", "web-store", "--permission", "guests:all"),
        ("serve", "--port", "0"),
        ("demo", "--port", "65536"),
        ("copy-database", "sqlite:///cards.db"),
    ],
    ids=" ".join,
)
def test_arguments_of_another_form_are_answered_with_the_usage(
    cardonfile: CommandLine, arguments: tuple[str, ...]
) -> None:
    result = cardonfile.run(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: cardonfile" in result.stderr


class TestDatabase:
    def test_migrate_makes_it_and_a_second_time_changes_nothing(
        self, unmigrated: CommandLine
    ) -> None:
        assert unmigrated.succeeds("migrate").startswith("applied m001_")
        assert unmigrated.succeeds("migrate") == "the database is up to date\n"
        unmigrated.succeeds("token", "list")

    @pytest.mark.parametrize("arguments", EVERY_COMMAND_BUT_MIGRATE_AND_DEMO, ids=" ".join)
    def test_one_that_is_not_there_is_not_made_by_other_commands(
        self, unmigrated: CommandLine, arguments: tuple[str, ...]
    ) -> None:
        assert "run `cardonfile migrate`" in unmigrated.refuses(*arguments)
        assert not unmigrated.database.exists()

    def test_one_with_pending_migrations_is_not_used(self, unmigrated: CommandLine) -> None:
        unmigrated.database.touch()

        assert "run `cardonfile migrate`" in unmigrated.refuses("token", "list")

    @pytest.mark.parametrize("arguments", [("migrate",), ("token", "list")], ids=" ".join)
    def test_one_of_a_newer_release_is_refused(
        self, cardonfile: CommandLine, arguments: tuple[str, ...]
    ) -> None:
        with closing(sqlite3.connect(cardonfile.database)) as db, db:
            db.execute(
                "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) "
                "VALUES ('cardonfile', 'm999_later', '2027-01-01')"
            )

        assert "newer release" in cardonfile.refuses(*arguments)

    @pytest.mark.parametrize("arguments", [("migrate",), ("token", "list")], ids=" ".join)
    def test_a_file_that_is_none_is_refused(
        self, unmigrated: CommandLine, arguments: tuple[str, ...]
    ) -> None:
        unmigrated.database.write_bytes(b"This is a letter, and not a database. " * 100)

        assert unmigrated.refuses(*arguments) == (
            f"the database cannot be used ({unmigrated.database}: file is not a database)"
        )
        assert unmigrated.database.read_bytes().startswith(b"This is a letter")

    def test_one_of_another_program_is_left_alone(self, unmigrated: CommandLine) -> None:
        with closing(sqlite3.connect(unmigrated.database)) as db, db:
            db.execute("CREATE TABLE guests (guest TEXT)")

        assert "does not fit this release" in unmigrated.refuses("migrate")

    def test_a_folder_that_is_missing_is_named(self, unmigrated: CommandLine) -> None:
        complaint = unmigrated.refuses("migrate", CARDONFILE_DATABASE_URL="sqlite:////no/such.db")

        assert complaint == "/no/such.db: No such file or directory"

    @pytest.mark.parametrize("arguments", [("migrate",), ("token", "list")], ids=" ".join)
    def test_a_setting_that_cannot_be_used_is_named_without_its_value(
        self, cardonfile: CommandLine, arguments: tuple[str, ...]
    ) -> None:
        url = "mysql://cards:opensesame@db.example/cards"

        complaint = cardonfile.refuses(*arguments, CARDONFILE_DATABASE_URL=url)

        assert complaint.startswith("CARDONFILE_DATABASE_URL ")
        assert "opensesame" not in complaint


class TestConfigurePayments:
    def test_without_options_the_defaults_hold(self, with_center: CommandLine) -> None:
        printed = with_center.succeeds("configure-payments", CENTER_ID, "--provider", "fake")

        assert printed == "Harbor Spa takes cards with fake, merchant account default\n"
        assert configuration(with_center) == PaymentConfiguration(
            provider=ProviderName("fake"), merchant_account=MerchantAccount("default")
        )

    def test_every_option_is_stored_in_place_of_what_was_there(
        self, with_center: CommandLine
    ) -> None:
        with_center.succeeds("configure-payments", CENTER_ID, "--provider", "fake")
        with_center.succeeds(
            *("configure-payments", CENTER_ID.upper(), "--provider", "fake"),
            *("--account", "Harbor_spa-2", "--avs", "--cards-per-guest", "one"),
            *("--redirect-origin", "https://shop.example", "--redirect-origin", "myspa://"),
            *("--redirect-origin", "HTTPS://Shop.Example/", "--session-minutes", "1440"),
            *("--link-minutes", "43200"),
        )

        assert configuration(with_center) == PaymentConfiguration(
            provider=ProviderName("fake"),
            merchant_account=MerchantAccount("Harbor_spa-2"),
            avs=True,
            cards_per_guest=CardsPerGuest.ONE,
            redirect_origins=("https://shop.example", "myspa://"),
            session_minutes=1440,
            link_minutes=43_200,
        )

    def test_stripe_is_taken_for_an_account_with_keys(self, with_center: CommandLine) -> None:
        keys = {
            "CARDONFILE_STRIPE_HARBOR_SPA_SECRET_KEY": "sk_test_x",
            "CARDONFILE_STRIPE_HARBOR_SPA_WEBHOOK_SECRETS": "whsec_x",
        }
        printed = with_center.succeeds(
            *("configure-payments", CENTER_ID, "--provider", "stripe", "--account", "harbor_spa"),
            **keys,
        )

        assert printed == "Harbor Spa takes cards with stripe, merchant account harbor_spa\n"
        assert configuration(with_center) == PaymentConfiguration(
            provider=ProviderName("stripe"), merchant_account=MerchantAccount("harbor_spa")
        )
        assert b"sk_test_x" not in with_center.database.read_bytes()

    def test_none_takes_it_away_and_twice_is_fine(self, with_center: CommandLine) -> None:
        with_center.succeeds("configure-payments", CENTER_ID, "--provider", "fake")

        for _ in range(2):
            printed = with_center.succeeds("configure-payments", CENTER_ID, "--none")
            assert printed == "Harbor Spa takes no cards\n"
            assert configuration(with_center) is None

    def test_a_center_whose_name_makes_the_consent_too_long_for_the_psp_is_refused(
        self, with_center: CommandLine
    ) -> None:
        # No import takes such a name; a PSP with a lower limit would meet it in a shorter one.
        with with_center.storage.write() as unit:
            unit.centers.put_many([a_center(name="Spa " * 1_000)])
            unit.commit()

        complaint = with_center.refuses("configure-payments", CENTER_ID, "--provider", "fake")

        assert "the text that guests agree to names the center" in complaint
        assert "fake shows 5000 at most: import the center with a shorter name" in complaint
        assert configuration(with_center) is None

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            (("--provider", "adyen"), "'adyen' is not known; known: fake, stripe"),
            (("--provider", ""), "known: fake, stripe"),
            (
                ("--provider", "stripe"),
                (
                    "stripe is not set up: set CARDONFILE_STRIPE_SECRET_KEY and "
                    "CARDONFILE_STRIPE_WEBHOOK_SECRETS"
                ),
            ),
            (
                ("--provider", "stripe", "--account", "harbor_spa"),
                (
                    "set CARDONFILE_STRIPE_HARBOR_SPA_SECRET_KEY and "
                    "CARDONFILE_STRIPE_HARBOR_SPA_WEBHOOK_SECRETS"
                ),
            ),
            (("--provider", "stripe", "--account", "Harbor-Spa"), "such as harbor_spa"),
            (("--account", "two words"), "--account must be 1 to 64 letters, digits"),
            (("--redirect-origin", "shop.example"), "--redirect-origin must be an origin such as"),
            (("--redirect-origin", "ms-msdt://"), "--redirect-origin must be an origin such as"),
            (("--session-minutes", "14"), "--session-minutes must be from 15 to 1440"),
            (("--link-minutes", "29"), "--link-minutes must be from 30 to 43200"),
        ],
        ids=str,
    )
    def test_an_option_that_cannot_be_used_is_named_and_nothing_changes(
        self, with_center: CommandLine, options: tuple[str, ...], expected: str
    ) -> None:
        complaint = with_center.refuses(
            "configure-payments", CENTER_ID, "--provider", "fake", *options
        )

        assert expected in complaint
        assert configuration(with_center) is None

    @pytest.mark.parametrize("options", [("--provider", "fake"), ("--none",)], ids=" ".join)
    @pytest.mark.parametrize(
        ("center_id", "expected"),
        [
            (f"{{{CENTER_ID}}}", "CENTER_ID must be a UUID"),
            (GUEST_ID, f"there is no center {GUEST_ID}"),
        ],
    )
    def test_a_center_must_exist(
        self, with_center: CommandLine, options: tuple[str, ...], center_id: str, expected: str
    ) -> None:
        assert with_center.refuses("configure-payments", center_id, *options).startswith(expected)

    def test_the_fake_psp_is_refused_where_guests_can_reach_it(
        self, with_center: CommandLine
    ) -> None:
        arguments = ("configure-payments", CENTER_ID, "--provider", "fake")
        public = "https://cards.example"

        complaint = with_center.refuses(*arguments, CARDONFILE_PUBLIC_BASE_URL=public)

        assert "CARDONFILE_ALLOW_FAKE_PSP=1" in complaint
        assert configuration(with_center) is None
        with_center.succeeds(
            *(*arguments, "--redirect-origin", "https://shop.example"),
            CARDONFILE_PUBLIC_BASE_URL=public,
            CARDONFILE_ALLOW_FAKE_PSP="1",
        )


@pytest.mark.parametrize(
    ("length", "note"),
    [
        (12, ""),
        (14, "compared only {prefix}: the rest of a token is not kept\n"),
        (999, ""),
    ],
)
def test_a_token_is_revoked_by_any_beginning_and_told_what_was_compared(
    cardonfile: CommandLine, length: int, note: str
) -> None:
    arguments = ("token", "issue", "--caller", "web-store", "--permission", "guests:add")
    token = cardonfile.succeeds(*arguments).strip()

    result = cardonfile.run("token", "revoke", token[:length])

    prefix = token[:12]
    assert result.stdout == f"revoked {prefix} of web-store\n"
    assert result.stderr == note.format(prefix=prefix)
    assert cardonfile.succeeds("token", "list").endswith("revoked\n")


def test_reconcile_does_what_is_due_and_counts_it(with_center: CommandLine) -> None:
    now = a_session().created_at
    with with_center.storage.write() as unit:
        unit.sessions.add(a_session(due_at=now, expires_at=now + timedelta(minutes=30)))
        unit.commit()

    result = with_center.run("reconcile")

    assert result.stdout == "reconciled 1 sessions and 0 discards, 0 faults\n"
    assert result.exit_code == 0


class TestNamesThatNoSettingHas:
    TYPED: Final = {"CARDONFILE_DATABSE_URL": "postgresql://cards:opensesame@db.example/cards"}
    SENTENCE: Final = (
        "CARDONFILE_DATABSE_URL is not a setting; the nearest is CARDONFILE_DATABASE_URL"
    )

    def test_keep_the_service_from_starting(self, cardonfile: CommandLine, taken_port: str) -> None:
        complaint = cardonfile.refuses("serve", "--port", taken_port, **self.TYPED)

        assert complaint == self.SENTENCE

    def test_are_warned_of_once_by_any_other_command(self, cardonfile: CommandLine) -> None:
        for command in (("migrate",), ("token", "list")):
            result = cardonfile.run(*command, **self.TYPED)

            assert (result.exit_code, result.stderr) == (0, f"Warning: {self.SENTENCE}\n")


class TestLiveKeys:
    KEYS: Final = {
        "CARDONFILE_STRIPE_SECRET_KEY": "sk_live_opensesame",
        "CARDONFILE_STRIPE_WEBHOOK_SECRETS": "whsec_opensesame",
    }

    @pytest.mark.parametrize("command", ["serve", "demo"])
    def test_are_refused_on_this_machine_alone(
        self, cardonfile: CommandLine, taken_port: str, command: str
    ) -> None:
        complaint = cardonfile.refuses(command, "--port", taken_port, **self.KEYS)

        assert "CARDONFILE_STRIPE_SECRET_KEY" in complaint
        assert "live key" in complaint
        assert "opensesame" not in complaint

    def test_are_fine_for_a_command_that_answers_no_guest(self, cardonfile: CommandLine) -> None:
        assert cardonfile.succeeds("token", "list", **self.KEYS)


class TestServe:
    # Shows F9.
    def test_runs_until_it_is_told_to_stop(self, cardonfile: CommandLine) -> None:
        with cardonfile.start("serve", "--port", str(free_port())) as process:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert b"serving" in line
            assert f"database='{cardonfile.database}'".encode() in line
            # It means nothing, and stops nothing.
            process.send_signal(SIGUSR1)
            process.send_signal(SIGTERM)
            printed, logged = process.communicate(timeout=DEADLINE_SECONDS)

        assert (process.returncode, printed) == (0, b"")
        assert b"stopped" in logged
        assert b"Traceback" not in logged

    def test_without_worker_it_leaves_the_work_to_another(self, cardonfile: CommandLine) -> None:
        port = str(free_port())
        with cardonfile.start("serve", "--no-worker", "--port", port) as process:
            assert process.stderr is not None
            assert b"serving" in process.stderr.readline()
            assert self.last_heartbeat(cardonfile) is None
            cardonfile.environment["CARDONFILE_PUBLIC_BASE_URL"] = f"http://127.0.0.1:{port}"
            with cardonfile.start("work") as worker:
                wait_until(lambda: self.last_heartbeat(cardonfile))
                worker.send_signal(SIGHUP)
                _, logged = worker.communicate(timeout=DEADLINE_SECONDS)
            process.send_signal(SIGINT)
            process.communicate(timeout=DEADLINE_SECONDS)

        assert (process.returncode, worker.returncode) == (0, 0)
        assert b"working" in logged
        assert b"stopped" in logged

    @staticmethod
    def last_heartbeat(cardonfile: CommandLine) -> datetime | None:
        with cardonfile.storage.read() as unit:
            return unit.worker_heartbeats.last()

    def test_what_lets_others_in_is_warned_of_once_with_what_to_do(
        self, with_center: CommandLine
    ) -> None:
        public = {
            "CARDONFILE_PUBLIC_BASE_URL": "https://cards.example",
            "CARDONFILE_ALLOW_FAKE_PSP": "1",
        }
        with_center.environment |= public
        with_center.run("configure-payments", CENTER_ID, "--provider", "fake")
        with_center.database.chmod(0o644)

        with with_center.start("serve", "--port", str(free_port())) as process:
            assert process.stderr is not None
            lines = [process.stderr.readline().decode() for _ in range(3)]
            process.send_signal(SIGTERM)
            lines += process.communicate(timeout=DEADLINE_SECONDS)[1].decode().splitlines()
        (files,) = (line for line in lines if "database_open_to_all" in line)
        assert f"files=['{with_center.database}']" in files
        assert "chmod 600" in files
        (anywhere,) = (line for line in lines if "redirects_to_anywhere" in line)
        assert "centers=1" in anywhere
        assert "configure-payments --redirect-origin" in anywhere

    def test_an_address_that_is_taken_is_refused(
        self, cardonfile: CommandLine, taken_port: str
    ) -> None:
        assert cardonfile.refuses("serve", "--port", taken_port).startswith(
            f"cannot listen on 127.0.0.1 port {taken_port}"
        )

    @pytest.mark.parametrize("host", ["", "h\u00f6st"])
    def test_a_host_that_is_none_is_refused(self, cardonfile: CommandLine, host: str) -> None:
        assert "--host must be" in cardonfile.refuses("serve", "--host", host)

    def test_several_processes_are_refused_in_a_sentence_that_names_granian(
        self, cardonfile: CommandLine
    ) -> None:
        complaint = cardonfile.refuses("serve", "--processes", "4")

        assert "run the application with granian (docs/scaling.md)" in complaint


class TestImport:
    def test_ctrl_c_works_as_before_once_it_is_over(self, cardonfile: CommandLine) -> None:
        file = cardonfile.folder / "centers.csv"
        file.write_text("id,name\n")
        before = signal(SIGINT, default_int_handler)
        try:
            cardonfile.succeeds("import", "centers", str(file))

            assert getsignal(SIGINT) is default_int_handler
        finally:
            signal(SIGINT, before)

    def test_an_interrupted_one_imports_nothing(self, cardonfile: CommandLine) -> None:
        rows = "".join(f"{CENTER_ID[:-6]}{number:06},Harbor Spa\n" for number in range(10_000))

        with cardonfile.start("import", "centers", "/dev/stdin") as process:
            assert process.stdin is not None
            # More than a pipe holds, so that rows have been read once it is written.
            process.stdin.write(f"id,name\n{rows}".encode())
            process.send_signal(SIGINT)
            printed, complaint = process.communicate(timeout=DEADLINE_SECONDS)

        assert (process.returncode, printed) == (130, b"")
        assert complaint == b"interrupted: nothing was imported\n"
        with cardonfile.storage.read() as unit:
            assert unit.centers.get(CenterId(f"{CENTER_ID[:-6]}000000")) is None
