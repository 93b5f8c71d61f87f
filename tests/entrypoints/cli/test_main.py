"""Behavior that all commands share: help, usage and settings."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import Final

import click
import pytest

from adapters.psp_suite.samples import GUEST_ID, a_uuid
from entrypoints.cli.main import main
from tests.builders import CENTER_ID
from tests.databases import audit_trail
from tests.entrypoints.conftest import CommandLine
from tests.programs import ROOT

COMMANDS: Final = {
    "audit": "list",
    "card": "compare evidence list remove",
    "center": "list set show",
    "consent": "set show",
    "evidence": "new-key verify",
    "events": "add list remove roll-secret deliveries replay test update",
    "guest": "show export merge erase",
    "installation": "copy move",
    "psp": "check close-account confirm-keys new trust",
    "session": "cancel list show stats",
    "token": "issue list revoke",
    **dict.fromkeys(("backup", "configure-payments", "copy-database", "demo", "doctor"), ""),
    **dict.fromkeys(("import", "migrate", "reconcile", "serve", "status", "work"), ""),
}


def test_the_names_of_commands_stay_stable() -> None:
    assert {
        name: set(command.commands) if isinstance(command, click.Group) else set()
        for name, command in main.commands.items()
    } == {name: set(below.split()) for name, below in COMMANDS.items()}


# Shows S29.
def test_optional_packages_are_imported_only_when_needed() -> None:
    program = (
        "import sys, entrypoints.cli.main; print(*sys.modules); from entrypoints import serve, wsgi; "
        "from entrypoints.container import build; from entrypoints.settings import Settings; "
        "build(Settings.read({})).behind_proxy(); print(*sys.modules)"
    )
    # Importing reads no settings.
    environment = {**os.environ, "CARDONFILE_DATABASE_URL": "nonsense"}
    printed = subprocess.check_output(
        [sys.executable, "-c", program], cwd=ROOT, text=True, env=environment
    )

    by_a_command, by_the_service = (set(line.split()) for line in printed.splitlines())
    assert {"falcon", "sqlite_utils", "structlog", "waitress"}.isdisjoint(by_a_command)
    assert "prometheus_client" not in by_the_service


ISSUE: Final = "token issue --caller kiosk --permission guests:add"
CONFIGURE: Final = f"configure-payments {CENTER_ID}"
FAKE: Final = f"{CONFIGURE} --provider fake"
CONSENT: Final = f"consent set --center {CENTER_ID} --language"
ERASE: Final = "guest erase"
TTL: Final = "Invalid value for '--ttl': it must look like 90m, 24h or 30d"
NOT_BOTH: Final = "give an option or its opposite, not both"
MONTH: Final = "it must be YYYY-MM, such as 2026-12"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("import pets pets.csv", "'pets' is not one of"),
        (CONFIGURE, "give either the options to change"),
        (f"{CONFIGURE} --any-redirect --redirect-origin myspa://", NOT_BOTH),
        (f"{CONFIGURE} --no-link-minutes --link-minutes 60", NOT_BOTH),
        (f"{CONFIGURE} --none --provider fake", "--none"),
        # An option is refused also if it says what holds without it.
        (f"{CONFIGURE} --none --account default", "--none"),
        (f"{CONFIGURE} --provider fake --cards-per-guest two", "'two' is not one of"),
        (f"center set {CENTER_ID}", "give at least one option to change"),
        (f"center set {CENTER_ID} --color #1d4f91 --clear color", NOT_BOTH),
        (f"{CONSENT} de --none --file {__file__}", "not both"),
        ("token issue --caller kiosk", "Missing option '--permission'"),
        ("token issue --caller kiosk --permission guests:all", "'guests:all' is not one of"),
        *(
            (f"{ISSUE} --ttl='{ttl}'", TTL)
            for ttl in ("", "24", "-1h", "1.5h", "24H", "\u0662\u0664h", "9" * 10 + "d")
        ),
        *(
            (f"card list --expires-from {month}", MONTH)
            for month in ("12/26", "2026-13", "2026-12-01")
        ),
        (ERASE, "give either ID or --again"),
        (f"{ERASE} --again {GUEST_ID}", "give either ID or --again"),
        ("session cancel kiosk", "Missing option '--caller'"),
        *(
            (f"events replay {wrong}", "replay [OPTIONS] [EVENT]")
            for wrong in ("", "evt_1 --since 1h", "evt_1 --endpoint x")
        ),
        ("serve --port 0", "0 is not in the range"),
        # The shop needs the next port.
        ("demo --port 65535", "65535 is not in the range"),
        ("psp check", "Missing argument 'NAME'"),
        ("psp new one two", "Got unexpected extra argument (two)"),
        # No address is shown.
        ("copy-database sqlite:///my cards.db postgresql://a:s3cret@b/c", "Usage: "),
    ],
)
def test_a_command_with_malformed_arguments_prints_the_usage(
    cardonfile: CommandLine, command: str, said: str
) -> None:
    result = cardonfile.run(*shlex.split(command))

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: cardonfile")
    assert said in result.stderr
    assert "s3cret" not in result.stderr


INSTALLED: Final = "is installed; the installed ones are fake, mollie, stripe"
UUID: Final = "must be a UUID such as 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3"
NOBODY: Final = a_uuid(404)
NO_CENTER: Final = f"there is no center {NOBODY}"
NO_ENDPOINT: Final = "no endpoint has this id; give the complete id"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (f"{ISSUE} --ttl 59s", "--ttl must be from 1 minute to 3650 days"),
        (f"{ISSUE} --caller 'web\nstore'", "--caller must be 1 to 100 characters, not blank, "),
        (f"{ISSUE} --center harbor", f"--center {UUID}"),
        (f"{ISSUE} --center {NOBODY}", NO_CENTER),
        ("token revoke cof_", "PREFIX must be longer than cof_, the beginning of every token"),
        ("token revoke cof_none", "no token begins with this text"),
        ("session list --guest ada", f"--guest {UUID}"),
        (f"session list --guest {NOBODY}", "Guest not found"),
        ("card list --center spa", f"--center {UUID}"),
        (f"card list --center {NOBODY}", NO_CENTER),
        ("card remove 4aa53fb9", f"ID {UUID}"),
        (f"card remove {NOBODY}", f"no card has the id {NOBODY}"),
        (f"configure-payments {{{CENTER_ID}}} --none", f"CENTER_ID {UUID}"),
        (f"configure-payments {NOBODY} --none", NO_CENTER),
        (f"{CONFIGURE} --avs", "--provider must be given for a center that does not take cards"),
        (f"{CONFIGURE} --provider adyen", f"no PSP 'adyen' {INSTALLED}"),
        (f"{CONFIGURE} --provider ''", INSTALLED),
        (f"{CONFIGURE} --provider stripe", "stripe is not set up: set CARDONFILE_STRIPE_SECRET_"),
        (f"{CONFIGURE} --provider stripe --account spa", "set CARDONFILE_STRIPE_SPA_SECRET_KEY"),
        (f"{CONFIGURE} --provider stripe --account Harbor-Spa", "such as harbor_spa"),
        (f"{FAKE} --account 'two words'", "--account must be 1 to 64 letters, digits"),
        (f"{FAKE} --redirect-origin shop.example", "--redirect-origin must be an origin such as"),
        (f"{FAKE} --session-minutes 14", "--session-minutes must be from 15 to 1440"),
        (f"{FAKE} --link-minutes 29", "--link-minutes must be from 30 to 43200"),
        ("center show x", f"ID {UUID}"),
        (f"center show {NOBODY}", NO_CENTER),
        (f"center set {CENTER_ID} --contact desk", "--contact must be tel:+49301234567 without"),
        (f"center set {CENTER_ID} --color '#ffd700'", "--color must be dark enough for white text"),
        (f"center set {CENTER_ID} --logo /dev/null", "--logo must be a PNG or WebP picture of at"),
        (f"{CONSENT} ja", "cardonfile ships no text in ja, only in ar, de, en, es, fr, it, nl, pt"),
        (f"{CONSENT} de_DE", "--language must be a language tag such as de or pt-BR"),
        (f"consent set --center {NOBODY} --language de", NO_CENTER),
        (f"consent show {NOBODY}", "Payment account not found"),
        ("guest export ada", f"ID {UUID}"),
        *((f"guest {each} {NOBODY}", "Guest not found") for each in ("show", "export", "erase")),
        ("guest show x@guests.example", "Guest not found"),
        (f"guest merge {NOBODY} --from {a_uuid(405)} --yes", "Guest not found"),
        (f"guest merge {NOBODY} --from {NOBODY}", "--from must be the id of another guest"),
        (f"events add https://shop.example --type session.failed --center {NOBODY}", NO_CENTER),
        *((f"events {command} x", NO_ENDPOINT) for command in ("remove", "roll-secret", "test")),
        ("events replay --since 1h --endpoint x", NO_ENDPOINT),
        *((f"events replay {event}", "Event not found") for event in ("evt_1", "evt_\udcff")),
        *(
            (f"copy-database {urls}", "FROM_URL must be an SQLite file, and TO_URL a PostgreSQL")
            for urls in ("sqlite:///a.db sqlite:///b.db", "postgresql://a/a postgresql://b/b")
        ),
        ("copy-database a.db b", "FROM_URL must look like "),
        ("copy-database sqlite:///a b", "TO_URL must look like "),
        ("psp check amce", f"no PSP 'amce' {INSTALLED}"),
        ("session cancel --caller web-stroe", "--caller must be a caller that `cardonfile token "),
    ],
)
def test_a_command_that_cannot_be_carried_out_is_refused_in_one_sentence(
    with_center: CommandLine, command: str, sentence: str
) -> None:
    assert sentence in with_center.refuses(*shlex.split(command))

    assert list(audit_trail(with_center.storage)) == []


class TestUnknownSettings:
    TYPED: Final = {"CARDONFILE_DATABSE_URL": "postgresql://cards:opensesame@db.example/cards"}
    SENTENCE: Final = (
        "CARDONFILE_DATABSE_URL is not a setting; did you mean CARDONFILE_DATABASE_URL"
    )

    def test_unknown_settings_prevent_the_service_from_starting(
        self, cardonfile: CommandLine, taken_port: str
    ) -> None:
        complaint = cardonfile.refuses("serve", "--port", taken_port, **self.TYPED)

        assert complaint == self.SENTENCE

    def test_commands_that_do_not_serve_guests_warn_once_about_unknown_settings(
        self, cardonfile: CommandLine
    ) -> None:
        for command in (("migrate",), ("token", "list")):
            result = cardonfile.run(*command, **self.TYPED)

            assert (result.exit_code, result.stderr) == (0, f"Warning: {self.SENTENCE}\n")


class TestLiveKeys:
    KEYS: Final = {
        "CARDONFILE_STRIPE_SECRET_KEY": "sk_live_opensesame",
        "CARDONFILE_STRIPE_WEBHOOK_SECRETS": "whsec_opensesame",
    }

    @pytest.mark.parametrize("command", ["serve", "demo"])
    def test_serving_with_live_keys_on_a_loopback_address_is_refused(
        self, cardonfile: CommandLine, taken_port: str, command: str
    ) -> None:
        complaint = cardonfile.refuses(command, "--port", taken_port, **self.KEYS)

        assert "CARDONFILE_STRIPE_SECRET_KEY" in complaint
        assert "live key" in complaint
        assert "opensesame" not in complaint
        # Commands that do not serve guests accept these keys.
        assert cardonfile.succeeds("token", "list", **self.KEYS)
