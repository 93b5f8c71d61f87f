"""What every command does alike: help, usage, settings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import click
import pytest
from click.testing import CliRunner

from entrypoints.cli.main import main
from entrypoints.csv_import import KINDS
from tests.builders import CENTER_ID
from tests.entrypoints.conftest import ROOT, CommandLine


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Name every command and group below one."""
    yield path
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from commands(below, (*path, name))


class TestHelp:
    def test_the_commands_are_the_ones_that_operators_script_against(self) -> None:
        assert set(commands(main)) == {
            (),
            ("migrate",),
            ("status",),
            ("doctor",),
            ("backup",),
            ("import",),
            ("configure-payments",),
            ("center",),
            ("center", "list"),
            ("center", "set"),
            ("center", "show"),
            ("token",),
            ("token", "issue"),
            ("token", "list"),
            ("token", "revoke"),
            ("session",),
            ("session", "cancel"),
            ("session", "list"),
            ("session", "show"),
            ("session", "stats"),
            ("guest",),
            ("guest", "show"),
            ("guest", "export"),
            ("guest", "erase"),
            ("card",),
            ("card", "compare"),
            ("card", "list"),
            ("card", "remove"),
            ("consent",),
            ("consent", "set"),
            ("consent", "show"),
            ("events",),
            ("events", "add"),
            ("events", "list"),
            ("events", "remove"),
            ("events", "roll-secret"),
            ("events", "deliveries"),
            ("events", "replay"),
            ("events", "test"),
            ("events", "update"),
            ("psp",),
            ("psp", "check"),
            ("psp", "new"),
            ("serve",),
            ("work",),
            ("reconcile",),
            ("copy-database",),
            ("audit",),
            ("audit", "list"),
            ("demo",),
        }

    def test_shows_the_columns_that_are_expected(self) -> None:
        text = CliRunner().invoke(main, ["import", "--help"]).stdout

        for what, kind in KINDS.items():
            optional = "".join(f"[,{column}]" for column in kind.optional)
            assert f"{what:8}  {','.join(kind.columns)}{optional}\n" in text


# Shows S29.
def test_no_package_is_imported_before_it_is_needed() -> None:
    program = (
        "import sys, entrypoints.cli.main; print(*sys.modules); from entrypoints import serve, wsgi; "
        "from entrypoints.container import build; from entrypoints.settings import Settings; "
        "build(Settings.read({})).behind_proxy(); print(*sys.modules)"
    )
    environment = {name: each for name, each in os.environ.items() if "CARDONFILE" not in name}
    printed = subprocess.check_output(
        [sys.executable, "-c", program], cwd=ROOT, text=True, env=environment
    )

    by_a_command, by_the_service = (set(line.split()) for line in printed.splitlines())
    assert {"falcon", "sqlite_utils", "structlog", "waitress"}.isdisjoint(by_a_command)
    assert "prometheus_client" not in by_the_service


@pytest.mark.parametrize(
    "arguments",
    [
        ("import", "pets", "pets.csv"),
        ("configure-payments", CENTER_ID),
        ("configure-payments", CENTER_ID, "--any-redirect", "--redirect-origin", "myspa://"),
        ("configure-payments", CENTER_ID, "--no-link-minutes", "--link-minutes", "60"),
        ("configure-payments", CENTER_ID, "--none", "--provider", "fake"),
        # An option is refused also if it says what holds without it.
        ("configure-payments", CENTER_ID, "--none", "--account", "default"),
        ("configure-payments", CENTER_ID, "--provider", "fake", "--cards-per-guest", "two"),
        ("token", "issue", "--caller", "web-store"),
        ("token", "issue", "--caller", "web-store", "--permission", "guests:all"),
        ("serve", "--port", "0"),
        # The shop needs the next port.
        ("demo", "--port", "65535"),
        ("copy-database", "sqlite:///cards.db"),
        ("psp", "check"),
        ("psp", "new", "one", "two"),
    ],
    ids=" ".join,
)
def test_arguments_of_another_form_are_answered_with_the_usage(
    cardonfile: CommandLine, arguments: tuple[str, ...]
) -> None:
    result = cardonfile.run(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: cardonfile" in result.stderr


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
