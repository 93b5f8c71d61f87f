from __future__ import annotations

from dataclasses import replace

from adapters.fake_psp.plugin import NAME as FAKE
from domain.centers.changes import changes
from domain.centers.payment_configuration import PaymentConfiguration
from domain.identifiers import MerchantAccount
from domain.psps.card import Funding


def test_changes_to_a_payment_configuration_are_described_in_words() -> None:
    old = PaymentConfiguration(provider=FAKE, merchant_account=MerchantAccount("default"))
    new = replace(old, avs=True, redirect_origins=("https://a.example", "b://"), link_minutes=60)
    new = replace(new, refuse_funding=frozenset({Funding.PREPAID, Funding.DEBIT}))
    changed = {
        "avs": "no → yes",
        "redirect_origins": "any → https://a.example,b://",
        "link_minutes": "none → 60",
        "refuse_funding": "none → debit,prepaid",
    }
    assert changes(PaymentConfiguration, old, new) == changed
    assert changes(PaymentConfiguration, new, new) == {}
    assert changes(PaymentConfiguration, None, old) == {
        "provider": "none → fake",
        "merchant_account": "none → default",
        "avs": "none → no",
        "cards_per_guest": "none → many",
        "redirect_origins": "none → any",
        "session_minutes": "none → 30",
        "acquirer_agreed": "none → no",
        "keep_after_end_days": "none → 7",
        "no_show_indicator": "none → no",
        "portal_minutes": "none → 15",
        "authentication": "none → automatic",
    }
