"""What keeps a center from taking cards, with the PSPs as an installation loads them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.psp.contract.samples import GUEST_ID
from domain.audit.entry import Action
from domain.centers.center import CenterNotFound
from domain.centers.configure_payments import (
    ConfigurePayments,
    ConsentTooLong,
    Missing,
    PspNotReady,
)
from domain.centers.payment_configuration import PaymentConfiguration, changes
from domain.errors import InvalidField
from domain.identifiers import MerchantAccount, ProviderName
from domain.psps.hosted_page import consent_for
from entrypoints.settings import Settings
from tests.builders import CENTER_ID, a_center, a_configuration
from tests.installation import Installation

KEYS_OF_SPAIN = {
    "CARDONFILE_STRIPE_SPAIN_SECRET_KEY": "sk_test_x",
    "CARDONFILE_STRIPE_SPAIN_WEBHOOK_SECRETS": "whsec_x",
}


def configure_payments(installation: Installation, **environment: str) -> ConfigurePayments:
    return ConfigurePayments(
        storage=installation.storage,
        psps=Settings.read(environment).psps,
        note_act=installation.container.note_act(),
    )


def at(provider: str, account: str = "default") -> PaymentConfiguration:
    return a_configuration(
        provider=ProviderName(provider), merchant_account=MerchantAccount(account)
    )


def configured(installation: Installation) -> PaymentConfiguration | None:
    with installation.storage.read() as unit:
        return unit.configurations.get(CENTER_ID)


def test_a_configuration_replaces_the_one_before(installation: Installation) -> None:
    use_case = configure_payments(installation, **KEYS_OF_SPAIN)

    for configuration in (at("fake"), at("stripe", "spain"), None, None):
        assert use_case(CENTER_ID.upper(), configuration) == a_center()
        assert configured(installation) == configuration
        installation.clock.advance(timedelta(seconds=1))
    # The last changed nothing.
    removed, other, first = installation.container.list_audit_entries()(about=CENTER_ID)
    assert {each.action for each in (removed, other, first)} == {Action.PAYMENTS_CONFIGURED}
    assert other.details == {"provider": "fake → stripe", "merchant_account": "default → spain"}
    assert removed.details == changes(at("stripe", "spain"), None)


def test_changes_are_in_words() -> None:
    old = PaymentConfiguration(provider=FAKE, merchant_account=MerchantAccount("default"))
    new = replace(old, avs=True, redirect_origins=("https://a.example", "b://"), link_minutes=60)
    changed = {
        "avs": "no → yes",
        "redirect_origins": "any → https://a.example,b://",
        "link_minutes": "none → 60",
    }
    assert changes(old, new) == changed
    assert changes(new, new) == {}
    assert changes(None, old) == {
        "provider": "none → fake",
        "merchant_account": "none → default",
        "avs": "none → no",
        "cards_per_guest": "none → many",
        "redirect_origins": "none → any",
        "session_minutes": "none → 30",
    }


@pytest.mark.parametrize(
    ("configuration", "environment", "missing"),
    [
        (at("adyen"), {}, Missing.PSP),
        (at("stripe"), {}, Missing.SETTINGS),
        (at("stripe"), KEYS_OF_SPAIN, Missing.KEYS),
    ],
    ids=str,
)
def test_a_psp_that_is_not_ready_is_refused(
    installation: Installation,
    configuration: PaymentConfiguration,
    environment: dict[str, str],
    missing: Missing,
) -> None:
    before = configured(installation)

    with pytest.raises(PspNotReady) as refused:
        configure_payments(installation, **environment)(CENTER_ID, configuration)

    assert (refused.value.account, refused.value.missing) == (configuration.psp_account, missing)
    assert configured(installation) == before


def test_the_consent_must_fit_on_the_page_of_the_psp(installation: Installation) -> None:
    use_case = configure_payments(installation)
    longest = use_case.psps[ProviderName("fake")].capabilities.max_consent_length
    # The consent names the center twice. No import takes a name as long as this PSP's limit asks.
    room = (longest - len(consent_for("").text)) // 2
    installation.has_center(a_center(name="a" * room))
    use_case(CENTER_ID, at("fake"))
    installation.has_center(a_center(name="a" * (room + 1)))

    with pytest.raises(ConsentTooLong, match=f"fake shows {longest} at most"):
        use_case(CENTER_ID, at("fake", "another"))

    assert configured(installation) == at("fake")
    use_case(CENTER_ID, None)


@pytest.mark.parametrize("configuration", [at("fake"), None], ids=str)
@pytest.mark.parametrize(
    ("center_id", "refusal"), [(f"{{{CENTER_ID}}}", InvalidField), (GUEST_ID, CenterNotFound)]
)
def test_a_center_must_exist(
    installation: Installation,
    configuration: PaymentConfiguration | None,
    center_id: str,
    refusal: type[Exception],
) -> None:
    with pytest.raises(refusal):
        configure_payments(installation)(center_id, configuration)
