"""`cardonfile psp`. tests/outside installs and tests a new plug-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from adapters.psp_suite.samples import MERCHANT_ACCOUNT, NOW
from domain.identifiers import CardToken
from tests.builders import (
    CENTER_ID,
    PROVIDER,
    a_center,
    a_configuration,
    a_discard,
    a_session,
    a_standing,
    an_account,
)
from tests.databases import committed
from tests.entrypoints.conftest import PLUGIN, CommandLine, Site

PUBLIC = {"CARDONFILE_PUBLIC_BASE_URL": "https://cards.example"}


class TestCheck:
    """tests/entrypoints/test_doctor.py tests the findings about a PSP."""

    def test_psp_check_shows_the_package_and_the_webhook_address_of_a_psp(
        self, unmigrated: CommandLine, site: Site
    ) -> None:
        site.install(
            "cardonfile-acme",
            f"{PLUGIN}\nimport dataclasses\nfrom adapters.psp.findings import unknown\n"
            "PLUGIN = dataclasses.replace(PLUGIN, make=lambda *_: Adapter(),"
            " check=lambda adapter, account, url: [unknown('key', f'{account}, {url}')])\n"
            "from domain.psps.payment_provider import PaymentProvider\n"
            "class Adapter(PaymentProvider):\n    start = outcome = close = discard = None\n"
            "    read_webhook = None\n",
        )
        keys = {f"CARDONFILE_ACME_{name}API_KEY": "key" for name in ("", "SPAIN_")}

        printed = unmigrated.succeeds(
            "psp", "check", "acme", "--json", CARDONFILE_PSPS="acme", **keys, **PUBLIC
        )

        url = "https://cards.example/webhooks/acme"
        assert [list(finding.values()) for finding in json.loads(printed)] == [
            ["ok", "acme", "cardonfile-acme 1.0"],
            ["ok", "settings", "the service can use them"],
            ["ok", "acme/default", f"its webhooks go to {url}"],
            ["ok", "acme/spain", f"its webhooks go to {url}/spain"],
            ["unknown", "acme/default key", f"default, {url}"],
            ["unknown", "acme/spain key", f"spain, {url}/spain"],
        ]

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({}, "not enabled: add it to CARDONFILE_PSPS"),
            ({"CARDONFILE_PSPS": "acme"}, "not set up: set CARDONFILE_ACME_API_KEY"),
            (
                {"CARDONFILE_PSPS": "acme", "CARDONFILE_ACME_spain_API_KEY": "key"},
                "write the account's name with capital letters",
            ),
        ],
        ids=["not named", "not set up", "wrong setting"],
    )
    def test_psp_check_reports_that_a_psp_cannot_be_used(
        self, unmigrated: CommandLine, site: Site, settings: dict[str, str], said: str
    ) -> None:
        site.install("cardonfile-acme")

        result = unmigrated.run("psp", "check", "acme", **PUBLIC, **settings)

        assert result.exit_code == 1
        (problem,) = (line for line in result.stdout.splitlines() if line.startswith("problem"))
        assert said in problem


class TestNew:
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    def test_psp_new_renames_everything_in_its_copy_of_the_example_plugin(
        self, unmigrated: CommandLine
    ) -> None:
        # Variables of these names would shadow others.
        printed = unmigrated.succeeds("psp", "new", "class")

        folder = unmigrated.folder / "cardonfile-class"
        copied = {str(path.relative_to(folder)): path for path in folder.rglob("*.*")}
        assert {"pyproject.toml", "class_psp/adapter.py", "class_psp/fake_class.py"} <= {*copied}
        for name, path in copied.items():
            text = path.read_text()
            assert "acme" not in (name + text).lower()
            if name.endswith(".py"):
                compile(text, name, "exec")
        assert "class_psp.under_test:ClassUnderTest" in printed
        for path in copied.values():
            path.write_bytes(b"changed")
        assert unmigrated.refuses("psp", "new", "class") == "cardonfile-class: File exists"
        assert {path.read_bytes() for path in folder.rglob("*.*")} == {b"changed"}

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("Adyen", "NAME must be"),
            ("../adyen", "NAME must be"),
            ("a" * 41, "NAME must be"),
            ("stripe", "a PSP stripe is installed: choose another name"),
            ("database", "a PSP cannot be called database"),
        ],
    )
    def test_psp_new_refuses_an_invalid_name(
        self, unmigrated: CommandLine, name: str, said: str
    ) -> None:
        assert unmigrated.refuses("psp", "new", name).startswith(said)
        assert [*unmigrated.folder.glob("cardonfile-*")] == []


class TestCloseAccount:
    """tests/domain/worker/test_close_account.py tests the effect of the command."""

    CLOSE = ("psp", "close-account", PROVIDER, "--account", MERCHANT_ACCOUNT)
    COUNTS: Final = {"sessions": 1, "cards": 1, "discards": 1, "erasures": 0}

    @pytest.fixture(autouse=True)
    def _in_use(self, cardonfile: CommandLine) -> None:
        with committed(cardonfile.storage) as unit:
            unit.centers.put_many([a_center()])
            unit.configurations.put(CENTER_ID, a_configuration())
            unit.sessions.add(a_session())
            unit.accounts.add(an_account())
            unit.discards.add(a_discard(token=CardToken("unkept")))

    @pytest.mark.parametrize("typed", ["", "\n", f"{PROVIDER}\n"])
    def test_a_merchant_account_is_closed_only_after_its_name_is_typed(
        self, cardonfile: CommandLine, typed: str
    ) -> None:
        assert cardonfile.run(*self.CLOSE, typed=typed).exit_code == 1

        # A dry run only counts the records that would end.
        for _ in range(2):
            shown = cardonfile.succeeds(*self.CLOSE, "--dry-run", "--json")
            assert json.loads(shown) == [self.COUNTS]

    def test_a_merchant_account_can_be_closed_even_if_its_psp_is_not_set_up(
        self, cardonfile: CommandLine
    ) -> None:
        result = cardonfile.run(*self.CLOSE, "--json", typed=f"{MERCHANT_ACCOUNT}\n")

        assert json.loads(result.stdout) == [self.COUNTS]
        assert "1 sessions, 1 cards, 1 discards, 0 erasures" in result.stderr
        refused = cardonfile.refuses(
            *("configure-payments", CENTER_ID, "--account", MERCHANT_ACCOUNT, "--avs")
        )
        assert refused.endswith(f"`{' '.join(('cardonfile', *self.CLOSE))} --reopen`")
        assert "may take cards again" in cardonfile.succeeds(*self.CLOSE, "--reopen")
        assert "is not closed" in cardonfile.refuses(*self.CLOSE, "--reopen")
        unknown = cardonfile.refuses("psp", "close-account", PROVIDER, "--account", "harbour")
        assert unknown.startswith(f"--account must be a merchant account of {PROVIDER} that this ")


@pytest.mark.parametrize(
    ("command", "refused", "said"),
    [
        ("confirm-keys", "an account at which", "for a day, all cards of"),
        ("trust", "an account whose identity", "the service will trust the keys of"),
    ],
)
def test_confirm_keys_and_trust_refuse_an_account_that_does_not_need_the_command(
    cardonfile: CommandLine, command: str, refused: str, said: str
) -> None:
    arguments = ("psp", command, PROVIDER, "--account", MERCHANT_ACCOUNT)
    assert cardonfile.refuses(*arguments).startswith(f"--account must be {refused}")
    with committed(cardonfile.storage) as unit:
        unit.merchant_standings.put(a_standing(stopped_at=NOW))
        unit.merchant_identities.claim(PROVIDER, MERCHANT_ACCOUNT, "wrong")

    assert said in cardonfile.succeeds(*arguments)
