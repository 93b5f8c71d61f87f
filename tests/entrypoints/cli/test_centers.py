"""`cardonfile configure-payments`."""

from __future__ import annotations

import pytest

from adapters.psp.contract.samples import GUEST_ID
from domain.centers.payment_configuration import CardsPerGuest, PaymentConfiguration
from domain.identifiers import MerchantAccount, ProviderName
from tests.builders import CENTER_ID, a_center
from tests.entrypoints.conftest import CommandLine


def configuration(command_line: CommandLine) -> PaymentConfiguration | None:
    with command_line.storage.read() as unit:
        return unit.configurations.get(CENTER_ID)


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
