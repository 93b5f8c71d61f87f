"""`cardonfile configure-payments` and `center`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adapters.psp_suite.samples import a_uuid
from domain.audit.entry import Action
from domain.centers.center_settings import Logo
from domain.centers.payment_configuration import CardsPerGuest, GuestRemoval, PaymentConfiguration
from domain.identifiers import CenterId, MerchantAccount, ProviderName
from domain.psps.card import Funding
from domain.psps.hosted_page import Authentication
from tests.builders import CENTER_ID, a_center, a_configuration
from tests.databases import audit_trail, change_by_hand, committed
from tests.entrypoints.conftest import CommandLine
from tests.pictures import a_png


def configuration(command_line: CommandLine) -> PaymentConfiguration | None:
    with command_line.storage.read() as unit:
        return unit.configurations.get(CENTER_ID)


class TestConfigurePayments:
    def test_configure_payments_stores_every_option(self, with_center: CommandLine) -> None:
        with_center.succeeds("configure-payments", CENTER_ID, "--provider", "fake")
        with_center.succeeds(
            *("configure-payments", CENTER_ID.upper(), "--provider", "fake"),
            *("--account", "Harbor_spa-2", "--avs", "--cards-per-guest", "one"),
            *("--redirect-origin", "https://shop.example", "--redirect-origin", "myspa://"),
            *("--redirect-origin", "HTTPS://Shop.Example/", "--session-minutes", "1440"),
            *("--link-minutes", "43200", "--card-testing-limits", "guest=5/5,center=off/900"),
            *("--refuse-funding", "prepaid", "--acquirer-agreed", "--authentication", "required"),
        )

        assert configuration(with_center) == PaymentConfiguration(
            provider=ProviderName("fake"),
            merchant_account=MerchantAccount("Harbor_spa-2"),
            avs=True,
            cards_per_guest=CardsPerGuest.ONE,
            redirect_origins=("https://shop.example", "myspa://"),
            session_minutes=1440,
            link_minutes=43_200,
            card_testing_limits="guest=5/5,center=off/900",
            refuse_funding=frozenset({Funding.PREPAID}),
            acquirer_agreed=True,
            authentication=Authentication.REQUIRED,
        )

    def test_configure_payments_prints_all_settings_and_marks_the_changed_settings(
        self, with_center: CommandLine
    ) -> None:
        def configure(*options: str) -> list[str]:
            command = ("configure-payments", CENTER_ID, *options)
            return with_center.succeeds(*command).splitlines()

        first = configure("--provider", "fake", "--avs", "--redirect-origin", "myspa://")
        assert first[0] == "Harbor Spa takes cards with fake, merchant account default"
        configure("--cards-per-guest", "one", "--link-minutes", "60")
        _, *lines = configure("--account", "spa", "--no-avs", "--any-redirect", "--no-link-minutes")
        assert [line for line in lines if "→" in line] == [
            "  merchant_account: default → spa",
            "  avs: yes → no",
            "  redirect_origins: myspa:// → any",
            "  link_minutes: 60 → none",
        ]
        assert {"  provider: fake", "  cards_per_guest: one", "  refuse_funding: none"} < {*lines}

    def test_removing_the_payment_configuration_twice_succeeds(
        self, with_center: CommandLine
    ) -> None:
        with_center.succeeds("configure-payments", CENTER_ID, "--provider", "fake")

        none = ("configure-payments", CENTER_ID, "--none")
        first, second = with_center.succeeds(*none), with_center.succeeds(*none)
        assert configuration(with_center) is None
        assert first.startswith("Harbor Spa does not take cards\n  provider: fake → none\n")
        assert second == "Harbor Spa does not take cards\n"

    def test_configure_payments_refuses_a_psp_or_merchant_account_that_cannot_be_used(
        self, with_center: CommandLine
    ) -> None:
        command = ("configure-payments", CENTER_ID, "--provider")
        with_center.environment["CARDONFILE_PUBLIC_BASE_URL"] = "https://cards.example"

        refused = with_center.refuses(*command, "stripe", "--account", "italy", **KEYS)
        assert refused.startswith("--account: stripe has no keys for italy: set CARDONFILE_STRIPE_")
        # Guests can reach the service, so test cards would look like real cards.
        assert "CARDONFILE_ALLOW_FAKE_PSP=1" in with_center.refuses(*command, "fake")
        assert configuration(with_center) is None


KEYS = {
    "CARDONFILE_STRIPE_SPAIN_SECRET_KEY": "sk_test_x",
    "CARDONFILE_STRIPE_SPAIN_WEBHOOK_SECRETS": "whsec_x",
}


@pytest.fixture
def with_centers(with_center: CommandLine) -> CommandLine:
    """Return the command line on a database with 103 centers. Two of them take cards."""
    with committed(with_center.storage) as unit:
        unit.centers.put_many(
            a_center(id=CenterId(a_uuid(number)), name=f"Spa {number}")
            for number in range(1000, 1102)
        )
    with_center.succeeds("configure-payments", CENTER_ID, "--provider", "fake")
    with_center.succeeds(
        *("configure-payments", a_uuid(1101), "--provider", "stripe", "--account", "spain"), **KEYS
    )
    return with_center


def make_unreadable(cardonfile: CommandLine) -> None:
    """Put a value from another release into the configuration of the center."""
    change_by_hand(
        cardonfile.storage,
        f"UPDATE payment_configurations SET cards_per_guest = 'two' WHERE center_id = '{CENTER_ID}'",
    )


class TestCenter:
    def test_center_list_shows_all_centers_in_order_of_their_names(
        self, with_centers: CommandLine
    ) -> None:
        found = json.loads(with_centers.succeeds("center", "list", "--json", **KEYS))

        assert [each["name"] for each in found] == [
            "Harbor Spa",
            *(f"Spa {number}" for number in range(1000, 1102)),
        ]
        assert [each["provider"] for each in found] == ["fake", *[None] * 101, "stripe"]

    def test_center_list_can_be_limited_to_a_merchant_account(
        self, with_centers: CommandLine
    ) -> None:
        header, line = with_centers.succeeds("center", "list", "--account", "spain").splitlines()

        assert header.split() == ["ID", "NAME", "PROVIDER", "MERCHANT_ACCOUNT", "STATE"]
        assert line == f"{a_uuid(1101)}  Spa 1101  stripe    spain             takes_cards"
        assert with_centers.succeeds("center", "list", "--account", "italy", "--json") == "[]\n"

    def test_center_show_lists_all_settings_of_a_center(self, with_centers: CommandLine) -> None:
        show = ("center", "show", a_uuid(1101))
        shown = with_centers.succeeds(*show).splitlines()
        typed = json.loads(with_centers.succeeds(*show, "--json"))

        assert shown[0] == f"id                   {a_uuid(1101)}"
        values = dict(line.split(maxsplit=1) for line in shown)
        for name, value, typed_value in (
            ("name", "Spa 1101", "Spa 1101"),
            ("provider", "stripe", "stripe"),
            ("merchant_account", "spain", "spain"),
            ("state", "takes_cards", "takes_cards"),
            ("contact", "none", None),
            ("color", "none", None),
            ("logo", "none", None),
            ("language", "none", None),
            ("time_zone", "none", None),
            ("accessibility", "none", None),
            ("consents", "en", {}),
            ("reservation_texts", "none", {}),
            ("avs", "no", False),
            ("cards_per_guest", "many", "many"),
            ("redirect_origins", "any", []),
            ("session_minutes", "30", 30),
            ("link_minutes", "none", None),
            ("card_testing_limits", "none", None),
            ("refuse_funding", "none", []),
            ("acquirer_agreed", "no", False),
            ("authentication", "automatic", "automatic"),
            ("keep_after_end_days", "7", 7),
            ("no_show_indicator", "no", False),
            ("portal_minutes", "15", 15),
            ("guest_removal", "none", None),
        ):
            assert (values.pop(name), typed.pop(name)) == (value, typed_value)
        assert values == typed == {"id": a_uuid(1101)}

    def test_center_show_lists_no_payment_settings_of_a_center_that_takes_no_cards(
        self, with_centers: CommandLine
    ) -> None:
        typed = json.loads(with_centers.succeeds("center", "show", a_uuid(1000), "--json"))

        assert (typed["provider"], typed["state"]) == (None, "takes_no_cards")
        assert "session_minutes" not in typed

    def test_center_list_marks_a_center_whose_configuration_is_unreadable(
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

    def test_an_unreadable_configuration_is_replaced_if_all_options_are_given(
        self, with_centers: CommandLine
    ) -> None:
        make_unreadable(with_centers)
        options = [
            *("--provider", "fake", "--account", "spain", "--no-avs", "--cards-per-guest", "one"),
            *("--any-redirect", "--session-minutes", "15", "--no-link-minutes"),
            *("--accept-any-funding", "--authentication", "automatic", "--keep-after-end", "7d"),
            *("--portal-minutes", "15", "--guest-removal", "always"),
            *("--only-unscheduled", "--no-card-testing-limits"),
        ]
        command = ("configure-payments", CENTER_ID)
        refused = with_centers.run(*command, *options[:-1])
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert refused.stderr.splitlines()[-1] == (
            "Error: CENTER_ID must be a center whose configuration this release can read; give every "
            "option to replace this configuration"
        )
        assert with_centers.run(*command, *options).exit_code == 0
        assert configuration(with_centers) == a_configuration(
            provider=ProviderName("fake"),
            merchant_account=MerchantAccount("spain"),
            avs=False,
            cards_per_guest=CardsPerGuest.ONE,
            redirect_origins=(),
            session_minutes=15,
            guest_removal=GuestRemoval.ALWAYS,
        )
        make_unreadable(with_centers)
        assert with_centers.run(*command, "--none").exit_code == 0
        assert configuration(with_centers) is None
        *noted, _ = audit_trail(with_centers.storage, about=CENTER_ID)
        assert [(each.details or {})["configuration"] for each in noted] == ["unreadable"] * 2


class TestCenterSet:
    def test_center_set_keeps_settings_that_are_not_given(
        self, with_center: CommandLine, tmp_path: Path
    ) -> None:
        logo = tmp_path / "logo.png"
        logo.write_bytes(a_png())
        command = ("center", "set", CENTER_ID)
        with_center.succeeds(*command, "--contact", "tel:+49301234567", "--logo", str(logo))
        shown_as = str(Logo(media_type="image/png", content=a_png()))

        printed = with_center.succeeds(*command, "--color", "#1D4F91", "--clear", "contact")

        assert printed.splitlines()[:4] == [
            "Harbor Spa",
            "  contact: tel:+49301234567 → none",
            "  color: none → #1d4f91",
            f"  logo: {shown_as}",
        ]
        shown = json.loads(with_center.succeeds("center", "show", CENTER_ID, "--json"))
        assert (shown["contact"], shown["color"], shown["logo"]) == (None, "#1d4f91", shown_as)
        latest, first = audit_trail(with_center.storage, about=CENTER_ID)
        assert {latest.action, first.action} == {Action.CENTER_SET}
        changes = {"contact": "tel:+49301234567 → none", "color": "none → #1d4f91"}
        assert latest.details == changes
