"""Configuring the payments of a center, with the PSPs as an installation loads them."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import pytest

from adapters.catalogs import shipped_consents
from adapters.fake_psp.plugin import NAME as FAKE
from adapters.psp_suite.samples import GUEST_ID
from domain.audit.entry import Action
from domain.centers.center import CenterNotFound
from domain.centers.configure_payments import ConfigurePayments, Missing, PspNotReady
from domain.centers.payment_configuration import CardsPerGuest, PaymentConfiguration
from domain.consents.choose_consent import ConsentsOf
from domain.errors import InvalidField
from domain.identifiers import MerchantAccount, ProviderName
from domain.psps.capabilities import ConsentTooLong
from domain.psps.card import Funding
from entrypoints.settings import Settings
from tests.builders import CENTER_ID, a_center, a_shipped_consent
from tests.databases import audit_trail
from tests.installation import Installation, psps_that

KEYS_OF_SPAIN = {
    "CARDONFILE_STRIPE_SPAIN_SECRET_KEY": "sk_test_x",
    "CARDONFILE_STRIPE_SPAIN_WEBHOOK_SECRETS": "whsec_x",
}


def configure_payments(installation: Installation, **environment: str) -> ConfigurePayments:
    return ConfigurePayments(
        storage=installation.storage,
        psps=Settings.read(environment).psps,
        consents_of=ConsentsOf(shipped=shipped_consents()),
        note_act=installation.container.note_act(),
    )


def at(provider: str, account: str = "default") -> dict[str, Any]:
    return {"provider": provider, "merchant_account": account}


def configured(installation: Installation) -> PaymentConfiguration | None:
    with installation.storage.read() as unit:
        return unit.configurations.get(CENTER_ID)


FIRST = PaymentConfiguration(provider=FAKE, merchant_account=MerchantAccount("default"))
FULL = replace(
    FIRST,
    avs=True,
    cards_per_guest=CardsPerGuest.ONE,
    redirect_origins=("https://shop.example", "myspa://"),
    session_minutes=60,
    link_minutes=120,
)


def test_omitted_options_of_a_first_configuration_get_defaults(installation: Installation) -> None:
    use_case = configure_payments(installation)
    use_case(CENTER_ID, None)

    done = use_case(CENTER_ID.upper(), at("fake"))

    assert (done.center, done.before, done.now) == (a_center(), None, FIRST)
    assert configured(installation) == FIRST


@pytest.mark.parametrize(
    "named",
    [
        at("stripe", "spain"),
        {"merchant_account": "spa-2", "redirect_origins": ("other://",)},
        {"avs": False, "cards_per_guest": CardsPerGuest.MANY, "redirect_origins": ()},
        {"session_minutes": 120, "link_minutes": None},
        {},
    ],
    ids=str,
)
def test_reconfiguring_a_center_changes_only_the_given_options(
    installation: Installation, named: dict[str, Any]
) -> None:
    installation.configure(**asdict(FULL))

    done = configure_payments(installation, **KEYS_OF_SPAIN)(CENTER_ID, named)

    assert (done.before, done.now) == (FULL, replace(FULL, **named))
    assert configured(installation) == done.now


PREPAID = {"refuse_funding": ("prepaid",)}


def test_refusing_funding_requires_the_consent_of_the_acquirer(installation: Installation) -> None:
    use_case = configure_payments(installation)
    with pytest.raises(
        InvalidField, match="refuse_funding must be confirmed with --acquirer-agreed"
    ):
        use_case(CENTER_ID, PREPAID)

    done = use_case(CENTER_ID, {**PREPAID, "acquirer_agreed": True})
    assert done.now is not None
    assert (done.now.refuse_funding, done.now.acquirer_agreed) == (
        frozenset({Funding.PREPAID}),
        True,
    )
    # Other changes need no agreement, but another funding or merchant account does.
    use_case(CENTER_ID, {"avs": True})
    with pytest.raises(InvalidField, match="--acquirer-agreed"):
        use_case(CENTER_ID, {"refuse_funding": ("prepaid", "debit")})
    use_case(CENTER_ID, at("fake"))
    with pytest.raises(InvalidField, match="--acquirer-agreed"):
        configure_payments(installation, **KEYS_OF_SPAIN)(CENTER_ID, at("stripe", "spain"))
    cleared = use_case(CENTER_ID, {"refuse_funding": ()}).now
    assert cleared is not None
    assert (cleared.refuse_funding, cleared.acquirer_agreed) == (frozenset(), False)


def test_changing_the_merchant_account_resets_the_no_show_indicator(
    installation: Installation,
) -> None:
    use_case = configure_payments(installation)
    no_show = use_case(CENTER_ID, {"no_show_indicator": True}).now
    same = use_case(CENTER_ID, {**at("fake"), "avs": True}).now
    other = configure_payments(installation, **KEYS_OF_SPAIN)(CENTER_ID, at("stripe", "spain")).now

    assert no_show is not None
    assert same is not None
    assert other is not None
    assert no_show.no_show_indicator
    assert same.no_show_indicator
    assert not other.no_show_indicator
    assert same.may_state_no_show(same.psp_account)
    assert not same.may_state_no_show(other.psp_account)


def test_a_center_cannot_refuse_every_kind_of_card_funding(installation: Installation) -> None:
    every = {"refuse_funding": tuple(Funding), "acquirer_agreed": True}

    with pytest.raises(
        InvalidField, match="refuse_funding must be fewer than all kinds of funding"
    ):
        configure_payments(installation)(CENTER_ID, every)


@pytest.mark.parametrize(
    ("named", "complaint"),
    [
        (
            {**PREPAID, "acquirer_agreed": True},
            "refuse_funding must be empty, because fake does not report the funding of cards",
        ),
        (
            {"authentication": "required"},
            "authentication must be automatic, because fake cannot require that the bank",
        ),
        ({"avs": True}, "avs must be off, because fake does not check billing addresses"),
    ],
    ids=["funding", "authentication", "avs"],
)
def test_a_card_policy_that_the_psp_cannot_apply_is_refused(
    installation: Installation, named: dict[str, Any], complaint: str
) -> None:
    before = configured(installation)
    lacks = {"tells_funding": False, "requires_authentication": False, "checks_addresses": False}
    psps = psps_that(Settings.read({}).psps, **lacks)
    use_case = replace(configure_payments(installation), psps=psps)

    with pytest.raises(InvalidField, match=f"^{complaint}"):
        use_case(CENTER_ID, at("fake") | named)

    assert configured(installation) == before
    use_case(CENTER_ID, at("fake"))


def test_configuring_a_center_for_the_first_time_requires_a_psp(installation: Installation) -> None:
    use_case = configure_payments(installation)
    use_case(CENTER_ID, None)

    with pytest.raises(InvalidField, match="provider must be given for a center that does not"):
        use_case(CENTER_ID, {"avs": True})

    assert configured(installation) is None


def test_a_changed_option_must_be_consistent_with_the_other_options(
    installation: Installation,
) -> None:
    installation.configure(**asdict(FULL))

    with pytest.raises(InvalidField, match="link_minutes must be from 180"):
        configure_payments(installation)(CENTER_ID, {"session_minutes": 180})

    assert configured(installation) == FULL


def test_each_change_to_a_configuration_is_recorded_in_the_audit_trail(
    installation: Installation,
) -> None:
    use_case = configure_payments(installation, **KEYS_OF_SPAIN)
    for change in (at("fake"), at("stripe", "spain"), None, None):
        use_case(CENTER_ID, change)
        installation.clock.advance(timedelta(seconds=1))

    # The first and the last changed nothing.
    removed, other = audit_trail(installation.storage, about=CENTER_ID)
    assert {each.action for each in (removed, other)} == {Action.PAYMENTS_CONFIGURED}
    assert other.details == {"provider": "fake → stripe", "merchant_account": "default → spain"}
    assert removed.details is not None
    assert removed.details["provider"] == "stripe → none"


@pytest.mark.parametrize(
    ("change", "environment", "missing"),
    [
        (at("adyen"), {}, Missing.PSP),
        (at("stripe"), {}, Missing.SETTINGS),
        (at("stripe"), KEYS_OF_SPAIN, Missing.KEYS),
    ],
    ids=str,
)
def test_configuring_a_center_for_a_psp_that_is_not_ready_is_refused(
    installation: Installation,
    change: dict[str, Any],
    environment: dict[str, str],
    missing: Missing,
) -> None:
    before = configured(installation)

    with pytest.raises(PspNotReady) as refused:
        configure_payments(installation, **environment)(CENTER_ID, change)

    assert refused.value.account == (change["provider"], "default")
    assert refused.value.missing is missing
    assert configured(installation) == before


def test_the_consent_text_must_fit_on_the_page_of_the_psp(installation: Installation) -> None:
    use_case = configure_payments(installation)
    longest = use_case.psps[ProviderName("fake")].capabilities.max_consent_length
    # The consent names the center twice. An import would refuse a name as long as this test needs.
    room = (longest - len(a_shipped_consent("").text)) // 2
    installation.has_center(a_center(name="a" * room))
    fitting = use_case(CENTER_ID, at("fake"))
    installation.has_center(a_center(name="a" * (room + 1)))

    with pytest.raises(ConsentTooLong, match=f"fake shows at most {longest}"):
        use_case(CENTER_ID, at("fake", "another"))

    assert configured(installation) == fitting.now
    use_case(CENTER_ID, None)


@pytest.mark.parametrize("change", [at("fake"), None], ids=str)
@pytest.mark.parametrize(
    ("center_id", "refusal"), [(f"{{{CENTER_ID}}}", InvalidField), (GUEST_ID, CenterNotFound)]
)
def test_configuring_a_center_that_does_not_exist_is_refused(
    installation: Installation,
    change: dict[str, Any] | None,
    center_id: str,
    refusal: type[Exception],
) -> None:
    with pytest.raises(refusal):
        configure_payments(installation)(center_id, change)
