"""An operator trusts new keys of a merchant account in place of the first keys."""

from __future__ import annotations

import pytest

from domain.audit.entry import Action
from domain.errors import InvalidField
from domain.identifiers import MerchantAccount
from tests.builders import a_discard, an_account
from tests.contracts.storage.records import store
from tests.databases import audit_trail, committed
from tests.installation import Installation

ACCOUNT = an_account().psp_account


@pytest.fixture(autouse=True)
def the_wrong_account_is_known(installation: Installation) -> None:
    with committed(installation.storage) as unit:
        unit.merchant_identities.claim(*ACCOUNT, "the wrong one")


def kept(installation: Installation) -> str | None:
    with installation.storage.read() as unit:
        return unit.merchant_identities.get(*ACCOUNT)


def test_trusting_new_psp_keys_deletes_the_stored_identity(installation: Installation) -> None:
    installation.container.trust_keys()(ACCOUNT)

    recognize = installation.container.recognize_merchant()
    recognize(*ACCOUNT, "the right one")
    assert kept(installation) == "the right one"
    (entry,) = audit_trail(installation.storage, since=installation.clock.now())
    assert (entry.action, entry.about) == (Action.KEYS_TRUSTED, "/".join(ACCOUNT))
    assert entry.details == {"before": "the wrong one"}


@pytest.mark.parametrize("left", [an_account(), a_discard()], ids=["a card", "a discard"])
def test_new_psp_keys_are_not_trusted_while_cards_or_discards_need_the_first_keys(
    installation: Installation, left: object
) -> None:
    store(installation.storage, left)

    with pytest.raises(InvalidField, match="without cards on file"):
        installation.container.trust_keys()(ACCOUNT)
    assert kept(installation) == "the wrong one"


def test_trusting_psp_keys_requires_a_stored_identity(installation: Installation) -> None:
    with pytest.raises(InvalidField, match="was stored by this installation"):
        installation.container.trust_keys()(
            ACCOUNT._replace(merchant_account=MerchantAccount("another"))
        )


def test_psp_keys_cannot_be_trusted_in_a_copy_of_the_installation(
    installation: Installation,
) -> None:
    with committed(installation.storage) as unit:
        unit.installations.detach_from_original(installation.clock.now())

    with pytest.raises(InvalidField, match="was stored by this installation"):
        installation.container.trust_keys()(ACCOUNT)
    assert kept(installation) == "the wrong one"
