"""`cardonfile configure-payments` and `center`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adapters.psp.contract.samples import GUEST_ID, a_uuid
from domain.audit.entry import Action
from domain.centers.center_settings import CenterSettings, Logo
from domain.centers.payment_configuration import CardsPerGuest, PaymentConfiguration
from domain.identifiers import CenterId, MerchantAccount, ProviderName
from tests.builders import CENTER_ID, a_center, a_configuration
from tests.databases import change_by_hand
from tests.entrypoints.conftest import CommandLine
from tests.pictures import a_png


def configuration(command_line: CommandLine) -> PaymentConfiguration | None:
    with command_line.storage.read() as unit:
        return unit.configurations.get(CENTER_ID)


class TestConfigurePayments:
    def test_without_options_the_defaults_hold(self, with_center: CommandLine) -> None:
        printed = with_center.succeeds("configure-payments", CENTER_ID, "--provider", "fake")

        assert printed == (
            "Harbor Spa takes cards with fake, merchant account default\n"
            "  provider: none → fake\n"
            "  merchant_account: none → default\n"
            "  avs: none → no\n"
            "  cards_per_guest: none → many\n"
            "  redirect_origins: none → any\n"
            "  session_minutes: none → 30\n"
            "  link_minutes: none\n"
        )
        assert configuration(with_center) == PaymentConfiguration(
            provider=ProviderName("fake"), merchant_account=MerchantAccount("default")
        )

    def test_every_option_is_stored(self, with_center: CommandLine) -> None:
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

    def test_each_setting_that_changes_is_shown_beside_those_that_stay(
        self, with_center: CommandLine
    ) -> None:
        command = ("configure-payments", CENTER_ID)
        with_center.succeeds(
            *(*command, "--provider", "fake", "--avs", "--cards-per-guest", "one"),
            *("--redirect-origin", "https://shop.example", "--link-minutes", "60"),
        )

        printed = with_center.succeeds(*command, "--account", "spa")

        assert printed == (
            "Harbor Spa takes cards with fake, merchant account spa\n"
            "  provider: fake\n"
            "  merchant_account: default → spa\n"
            "  avs: yes\n"
            "  cards_per_guest: one\n"
            "  redirect_origins: https://shop.example\n"
            "  session_minutes: 30\n"
            "  link_minutes: 60\n"
        )
        taken_back = with_center.succeeds(
            *command, "--no-avs", "--any-redirect", "--no-link-minutes"
        )
        assert [line for line in taken_back.splitlines() if "→" in line] == [
            "  avs: yes → no",
            "  redirect_origins: https://shop.example → any",
            "  link_minutes: 60 → none",
        ]

    def test_a_center_that_takes_no_cards_needs_a_provider(self, with_center: CommandLine) -> None:
        complaint = with_center.refuses("configure-payments", CENTER_ID, "--avs")

        assert complaint == "--provider must be given for a center that takes no cards yet"

    def test_stripe_is_taken_for_an_account_with_keys(self, with_center: CommandLine) -> None:
        keys = {
            "CARDONFILE_STRIPE_HARBOR_SPA_SECRET_KEY": "sk_test_x",
            "CARDONFILE_STRIPE_HARBOR_SPA_WEBHOOK_SECRETS": "whsec_x",
        }
        printed = with_center.succeeds(
            *("configure-payments", CENTER_ID, "--provider", "stripe", "--account", "harbor_spa"),
            **keys,
        )

        assert printed.startswith(
            "Harbor Spa takes cards with stripe, merchant account harbor_spa\n"
        )
        assert configuration(with_center) == PaymentConfiguration(
            provider=ProviderName("stripe"), merchant_account=MerchantAccount("harbor_spa")
        )
        assert b"sk_test_x" not in with_center.database.read_bytes()

    def test_none_takes_it_away_however_often(self, with_center: CommandLine) -> None:
        with_center.succeeds("configure-payments", CENTER_ID, "--provider", "fake")

        printed = []
        for _ in range(2):
            printed.append(with_center.succeeds("configure-payments", CENTER_ID, "--none"))
            assert configuration(with_center) is None
        assert printed[0].startswith("Harbor Spa takes no cards\n  provider: fake → none\n")
        assert printed[1] == "Harbor Spa takes no cards\n"

    def test_a_center_whose_name_makes_the_consent_too_long_for_the_psp_is_refused(
        self, with_center: CommandLine
    ) -> None:
        # No import takes such a name; a PSP with a lower limit would meet it in a shorter one.
        with with_center.storage.write() as unit:
            unit.centers.put_many([a_center(name="Spa " * 1_000)])
            unit.commit()

        complaint = with_center.refuses("configure-payments", CENTER_ID, "--provider", "fake")

        assert "the text that guests agree to in en has 8226 characters" in complaint
        assert "fake shows 5000 at most: import the center with a shorter name" in complaint
        assert configuration(with_center) is None

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            (("--provider", "adyen"), "'adyen' is not known; known: fake, mollie, stripe"),
            (("--provider", ""), "known: fake, mollie, stripe"),
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
    def test_an_option_that_cannot_be_used_changes_nothing(
        self, with_center: CommandLine, options: tuple[str, ...], expected: str
    ) -> None:
        complaint = with_center.refuses(
            "configure-payments", CENTER_ID, "--provider", "fake", *options
        )

        assert expected in complaint
        assert configuration(with_center) is None

    @pytest.mark.parametrize(
        ("center_id", "expected"),
        [
            (f"{{{CENTER_ID}}}", "CENTER_ID must be a UUID"),
            (GUEST_ID, f"there is no center {GUEST_ID}"),
        ],
    )
    def test_a_center_must_exist(
        self, with_center: CommandLine, center_id: str, expected: str
    ) -> None:
        assert with_center.refuses("configure-payments", center_id, "--none").startswith(expected)

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


KEYS = {
    "CARDONFILE_STRIPE_SPAIN_SECRET_KEY": "sk_test_x",
    "CARDONFILE_STRIPE_SPAIN_WEBHOOK_SECRETS": "whsec_x",
}


@pytest.fixture
def with_centers(with_center: CommandLine) -> CommandLine:
    """Return the command line on a database with 103 centers; two take cards."""
    with with_center.storage.write() as unit:
        unit.centers.put_many(
            a_center(id=CenterId(a_uuid(number)), name=f"Spa {number}")
            for number in range(1000, 1102)
        )
        unit.commit()
    with_center.succeeds("configure-payments", CENTER_ID, "--provider", "fake")
    with_center.succeeds(
        *("configure-payments", a_uuid(1101), "--provider", "stripe", "--account", "spain"), **KEYS
    )
    return with_center


def make_unreadable(cardonfile: CommandLine) -> None:
    """Have another release's value in the configuration of the center."""
    change_by_hand(
        cardonfile.storage,
        f"UPDATE payment_configurations SET cards_per_guest = 'two' WHERE center_id = '{CENTER_ID}'",
    )


class TestCenter:
    def test_all_are_listed_by_name(self, with_centers: CommandLine) -> None:
        found = json.loads(with_centers.succeeds("center", "list", "--json", **KEYS))

        assert [each["name"] for each in found] == [
            "Harbor Spa",
            *(f"Spa {number}" for number in range(1000, 1102)),
        ]
        assert [each["provider"] for each in found] == ["fake", *[None] * 101, "stripe"]

    def test_those_that_use_a_merchant_account_are_listed(self, with_centers: CommandLine) -> None:
        listed = with_centers.succeeds("center", "list", "--account", "spain")

        assert listed == (
            "ID                                    NAME      PROVIDER  MERCHANT_ACCOUNT  STATE\n"
            f"{a_uuid(1101)}  Spa 1101  stripe    spain             takes_cards\n"
        )
        assert with_centers.succeeds("center", "list", "--account", "italy", "--json") == "[]\n"

    def test_one_is_shown_with_what_is_set(self, with_centers: CommandLine) -> None:
        shown = with_centers.succeeds("center", "show", a_uuid(1101))

        assert shown == (
            f"id                {a_uuid(1101)}\n"
            "name              Spa 1101\n"
            "provider          stripe\n"
            "merchant_account  spain\n"
            "state             takes_cards\n"
            "contact           none\n"
            "color             none\n"
            "logo              none\n"
            "language          none\n"
            "consents          en\n"
            "avs               no\n"
            "cards_per_guest   many\n"
            "redirect_origins  any\n"
            "session_minutes   30\n"
            "link_minutes      none\n"
        )

    def test_as_json_values_have_their_types(self, with_centers: CommandLine) -> None:
        shown = json.loads(with_centers.succeeds("center", "show", CENTER_ID, "--json"))

        assert shown == {
            "id": CENTER_ID,
            "name": "Harbor Spa",
            "provider": "fake",
            "merchant_account": "default",
            "state": "takes_cards",
            "contact": None,
            "color": None,
            "logo": None,
            "language": None,
            "consents": {},
            "avs": False,
            "cards_per_guest": "many",
            "redirect_origins": [],
            "session_minutes": 30,
            "link_minutes": None,
        }

    def test_one_that_takes_no_cards_has_no_settings(self, with_centers: CommandLine) -> None:
        shown = json.loads(with_centers.succeeds("center", "show", a_uuid(1000), "--json"))

        assert shown == {
            "id": a_uuid(1000),
            "name": "Spa 1000",
            "provider": None,
            "merchant_account": None,
            "state": "takes_no_cards",
            "contact": None,
            "color": None,
            "logo": None,
            "language": None,
            "consents": {},
        }

    def test_one_whose_configuration_cannot_be_read_is_listed_as_such(
        self, with_centers: CommandLine
    ) -> None:
        make_unreadable(with_centers)
        for options in ((), ("--account", "spain")):
            listed = with_centers.run("center", "list", "--json", *options)
            found = {each["id"]: each["state"] for each in json.loads(listed.stdout)}

            assert listed.exit_code == 0
            assert found[CENTER_ID] == "unreadable"
            assert found[a_uuid(1101)] == "takes_cards"
        shown = with_centers.run("center", "show", CENTER_ID)
        assert ["state", "unreadable"] in map(str.split, shown.stdout.splitlines())

    def test_one_whose_configuration_cannot_be_read_is_configured_with_all_options(
        self, with_centers: CommandLine
    ) -> None:
        make_unreadable(with_centers)
        options = [
            *("--provider", "fake", "--account", "spain", "--no-avs", "--cards-per-guest", "one"),
            *("--any-redirect", "--session-minutes", "15", "--no-link-minutes"),
        ]
        command = ("configure-payments", CENTER_ID)
        refused = with_centers.run(*command, *options[:-1])
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert refused.stderr.splitlines()[-1] == (
            "Error: CENTER_ID must be a center whose configuration this release can read; name every "
            "option to replace this one"
        )
        configured = with_centers.run(*command, *options)
        assert (configured.exit_code, configuration(with_centers)) == (
            0,
            a_configuration(
                provider=ProviderName("fake"),
                merchant_account=MerchantAccount("spain"),
                avs=False,
                cards_per_guest=CardsPerGuest.ONE,
                redirect_origins=(),
                session_minutes=15,
            ),
        )
        make_unreadable(with_centers)
        assert with_centers.run(*command, "--none").exit_code == 0
        assert configuration(with_centers) is None
        with with_centers.storage.read() as unit:
            *noted, _ = unit.audit_trail.latest(about=CENTER_ID)
        assert [(each.details or {})["configuration"] for each in noted] == ["unreadable"] * 2

    def test_one_that_does_not_exist_is_refused(self, with_center: CommandLine) -> None:
        assert with_center.refuses("center", "show", a_uuid(404)).startswith("there is no center")
        assert with_center.refuses("center", "show", "x").startswith("ID must be a UUID")


class TestCenterSet:
    def test_what_is_not_named_stays(self, with_center: CommandLine, tmp_path: Path) -> None:
        logo = tmp_path / "logo.png"
        logo.write_bytes(a_png())
        command = ("center", "set", CENTER_ID)
        with_center.succeeds(*command, "--contact", "tel:+49301234567", "--logo", str(logo))
        shown_as = str(Logo(media_type="image/png", content=a_png()))

        printed = with_center.succeeds(*command, "--color", "#1D4F91", "--clear", "contact")

        assert printed == (
            "Harbor Spa\n"
            "  contact: tel:+49301234567 → none\n"
            "  color: none → #1d4f91\n"
            f"  logo: {shown_as}\n"
            "  language: none\n"
        )
        shown = json.loads(with_center.succeeds("center", "show", CENTER_ID, "--json"))
        assert [shown[name] for name in ("contact", "color", "logo")] == [
            *(None, "#1d4f91", shown_as)
        ]
        with with_center.storage.read() as unit:
            latest, first = unit.audit_trail.latest(about=CENTER_ID)
        assert {latest.action, first.action} == {Action.CENTER_SET}
        assert latest.details == {
            "contact": "tel:+49301234567 → none",
            "color": "none → #1d4f91",
        }

    def test_an_import_of_the_center_leaves_them(
        self, with_center: CommandLine, tmp_path: Path
    ) -> None:
        with_center.succeeds("center", "set", CENTER_ID, "--color", "#1d4f91")
        (tmp_path / "centers.csv").write_text(f"id,name\n{CENTER_ID},Harbor Day Spa\n")
        with_center.run("import", "centers", str(tmp_path / "centers.csv"))

        assert "#1d4f91" in with_center.succeeds("center", "show", CENTER_ID)

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            (("--contact", "desk"), "--contact must be tel:+49301234567 without blanks, mailto:"),
            (("--contact", ""), "--contact must be tel:+49301234567 without blanks, mailto:"),
            (("--color", "#ffd700"), "--color must be dark enough for white text"),
            (("--logo", "/dev/null"), "--logo must be a PNG or WebP picture of at most 100 KB"),
        ],
        ids=str,
    )
    def test_an_option_that_cannot_be_used_changes_nothing(
        self, with_center: CommandLine, options: tuple[str, ...], expected: str
    ) -> None:
        complaint = with_center.refuses("center", "set", CENTER_ID, *options)

        assert complaint.startswith(expected)
        with with_center.storage.read() as unit:
            assert unit.center_settings.get(CENTER_ID) == CenterSettings()

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ((), "name what to change"),
            (("--color", "#1d4f91", "--clear", "color"), "an option and its opposite are given"),
        ],
        ids=str,
    )
    def test_options_that_make_no_sense_are_misused(
        self, with_center: CommandLine, options: tuple[str, ...], expected: str
    ) -> None:
        result = with_center.run("center", "set", CENTER_ID, *options)

        assert result.exit_code == 2
        assert expected in result.stderr

    def test_a_center_must_exist(self, with_center: CommandLine) -> None:
        arguments = ("center", "set", a_uuid(404), "--color", "#1d4f91")
        assert with_center.refuses(*arguments).startswith("there is no center")
