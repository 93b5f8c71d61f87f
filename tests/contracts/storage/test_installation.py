from __future__ import annotations

from adapters.psp_suite.samples import MERCHANT_ACCOUNT, NOW
from domain.identifiers import MerchantAccount, ProviderName
from domain.installation.installation import Installation
from domain.storage import Storage
from tests.builders import (
    PROVIDER,
    a_discard,
    a_portal_session,
    an_access_token,
    an_account,
    an_event_delivery,
    an_event_endpoint,
)
from tests.contracts.storage.records import store
from tests.databases import committed


# Shows F49.
def test_a_copy_that_is_separated_from_the_original_has_no_endpoints_tokens_or_due_work(
    storage: Storage,
) -> None:
    account, endpoint = an_account(due_at=NOW), an_event_endpoint()
    token, delivery = an_access_token(revoked_at=None), an_event_delivery(due_at=NOW)
    own_page, discard = a_portal_session(), a_discard(due_at=NOW)
    store(storage, account, endpoint, delivery, delivery.event, discard, token, own_page)
    own = MerchantAccount("own")
    with committed(storage) as unit:
        unit.merchant_identities.claim(PROVIDER, MERCHANT_ACCOUNT, "acct_1")
        assert unit.merchant_identities.of_original(PROVIDER) == frozenset()
        gone = unit.installations.detach_from_original(NOW)
        unit.merchant_identities.claim(PROVIDER, own, "acct_2")

    assert set(gone.values()) == {1}
    with storage.read() as reading:
        assert reading.event_endpoints.all() == ()
        assert reading.events.get(delivery.event.event_id) is None
        assert reading.portal_sessions.get(own_page.portal_id) is None
        assert reading.event_deliveries.get(delivery.event.event_id, delivery.endpoint_id) is None
        assert reading.discards.get(PROVIDER, MERCHANT_ACCOUNT, a_discard().token) is None
        kept, revoked = (
            reading.accounts.get(account.account_id),
            reading.access_tokens.get(token.token_hash),
        )
        assert kept is not None
        assert kept.due_at is None
        assert revoked is not None
        assert revoked.revoked_at == NOW
        assert reading.merchant_identities.of_original(PROVIDER) == {"acct_1"}
        assert reading.merchant_identities.of_original(ProviderName("other")) == frozenset()


def test_storing_the_installation_record_again_replaces_the_first_record(storage: Storage) -> None:
    with committed(storage) as unit:
        assert unit.installations.get() == Installation()
        for each in (
            Installation(origin="https://a.example"),
            Installation(origin=None, is_copy=True),
        ):
            unit.installations.put(each)
            assert unit.installations.get() == each
    with storage.read() as reading:
        assert reading.installations.get() == each
