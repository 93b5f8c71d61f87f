from __future__ import annotations

import pytest

from domain.identifiers import MerchantAccount, ProviderName
from domain.installation.installation import Installation as InstalledCopy
from domain.psps.recognize_merchant import AnotherMerchant, MerchantOfOriginal, RecognizeMerchant
from tests.databases import committed
from tests.installation import Installation

PSP, OTHER = ProviderName("psp"), ProviderName("other")
SPA = MerchantAccount("spa")


@pytest.fixture
def recognize(installation: Installation) -> RecognizeMerchant:
    return RecognizeMerchant(storage=installation.storage)


def test_psp_keys_that_belong_to_another_merchant_are_refused(
    installation: Installation, recognize: RecognizeMerchant
) -> None:
    recognize(PSP, SPA, "acct_1 test")
    for _ in range(2):
        with pytest.raises(AnotherMerchant, match=r"^the keys .* than before") as refused:
            recognize(PSP, SPA, "acct_1 live")
        assert (refused.value.kept, refused.value.given) == ("acct_1 test", "acct_1 live")
    recognize(PSP, SPA, "acct_1 test")


def test_recognizing_a_known_merchant_does_not_write_to_the_database(
    installation: Installation, recognize: RecognizeMerchant
) -> None:
    recognize(PSP, SPA, "acct_1 test")
    written: list[str] = []
    installation.before_next_write(lambda: written.append("something"))
    recognize(PSP, SPA, "acct_1 test")
    assert written == []
    with installation.storage.read() as unit:
        assert unit.merchant_identities.get(PSP, SPA) == "acct_1 test"


def test_if_two_processes_see_different_merchants_the_second_process_is_refused(
    installation: Installation, recognize: RecognizeMerchant
) -> None:
    installation.before_next_write(lambda: recognize(PSP, SPA, "acct_1 test"))
    with pytest.raises(AnotherMerchant):
        recognize(PSP, SPA, "acct_2 test")


# Shows F49.
def test_a_copy_of_the_installation_refuses_psp_keys_that_belong_to_the_original_merchant(
    installation: Installation, recognize: RecognizeMerchant
) -> None:
    recognize(PSP, SPA, "acct_1 live")
    with committed(installation.storage) as unit:
        unit.installations.put(InstalledCopy(is_copy=True))
        unit.installations.detach_from_original(installation.clock.now())

    own = MerchantAccount("own")
    for account in (SPA, own):
        for identity in ("acct_1 live", None):
            with pytest.raises(MerchantOfOriginal):
                recognize(PSP, account, identity)
    with pytest.raises(AnotherMerchant):
        recognize(PSP, SPA, "acct_1 test")
    for _ in range(2):
        recognize(PSP, own, "acct_1 test")
    RecognizeMerchant(storage=installation.storage, without_keys={PSP})(PSP, own, "acct_1 test")
    RecognizeMerchant(storage=installation.storage, without_keys={OTHER})(OTHER, own, None)
