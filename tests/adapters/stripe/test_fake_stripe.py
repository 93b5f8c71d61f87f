"""That the fake Stripe refuses what Stripe refuses; the official SDK asks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import stripe

from adapters.psp.contract.clock import START, SettableClock
from adapters.stripe.calls import API_VERSION
from tests.fake_stripe.server import FakeStripeServer
from tests.fake_stripe.stripe import TEST_KEY, Object


@pytest.fixture
def sdk(server: FakeStripeServer) -> Iterator[stripe.StripeClient]:
    http_client = stripe.RequestsClient(timeout=20)
    yield sdk_for(server, http_client)
    # The SDK's own client has no way to close what it has opened.
    session = getattr(http_client._thread_local, "session", None)
    if session is not None:
        session.close()


def sdk_for(
    server: FakeStripeServer, http_client: stripe.HTTPClient, **options: Any
) -> stripe.StripeClient:
    return stripe.StripeClient(
        **{"api_key": TEST_KEY, "stripe_version": API_VERSION, **options},
        base_addresses={"api": server.url},
        http_client=http_client,
    )


@pytest.fixture
def customer(sdk: stripe.StripeClient) -> str:
    return sdk.v1.customers.create({"metadata": {"guest_id": "1"}}).id


# Any: what is refused is not of the form that the SDK describes.
def good(customer: str, /, **changes: Any) -> Any:
    parameters = {
        "mode": "setup",
        "allowed_payment_method_types": ["card"],
        "customer": customer,
        "success_url": "https://cards.example/return",
        "expires_at": int((START + timedelta(hours=1)).timestamp()),
        **changes,
    }
    return {name: value for name, value in parameters.items() if value is not None}


def at(after: timedelta) -> int:
    return int((START + after).timestamp())


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"payment_method_types": ["card"]}, "payment_method_types"),
        ({"usage": "off_session"}, "usage"),
        ({"setup_intent_data": {"usage": "off_session"}}, "setup_intent_data[usage]"),
        ({"mode": None}, "mode"),
        ({"success_url": None}, "success_url"),
        ({"success_url": "myspa://back"}, "success_url"),
        ({"allowed_payment_method_types": ["cash"]}, "allowed_payment_method_types[0]"),
        ({"allowed_payment_method_types": None}, "currency"),
        ({"currency": "EUR"}, "currency"),
        ({"locale": "klingon"}, "locale"),
        ({"wallet_options": {"link": {"display": "no"}}}, "wallet_options[link][display]"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"expires_at": at(timedelta(minutes=29, seconds=59))}, "expires_at"),
        ({"expires_at": at(timedelta(hours=24, seconds=1))}, "expires_at"),
        ({"customer": "cus_unknown"}, "customer"),
        ({"metadata": {"x" * 41: "1"}}, "metadata[" + "x" * 41 + "]"),
        ({"metadata": {"x": "1" * 501}}, "metadata[x]"),
        ({"custom_text": {"submit": {"message": "x" * 1201}}}, "custom_text[submit][message]"),
    ],
)
def test_a_page_with_a_parameter_that_is_wrong_is_refused(
    sdk: stripe.StripeClient, customer: str, changes: dict[str, Any], param: str
) -> None:
    sdk.v1.checkout.sessions.create(good(customer))
    with pytest.raises(stripe.InvalidRequestError) as refused:
        sdk.v1.checkout.sessions.create(good(customer, **changes))
    assert refused.value.param == param


def test_a_key_gives_the_same_answer_for_a_day_and_refuses_other_parameters(
    sdk: stripe.StripeClient, customer: str, server: FakeStripeServer, clock: SettableClock
) -> None:
    def created(**changes: Any) -> Object:
        session = sdk.v1.checkout.sessions.create(
            good(customer, **changes), {"idempotency_key": "key"}
        )
        assert session.last_response is not None
        return {
            "id": session.id,
            "replayed": session.last_response.headers.get("Idempotent-Replayed"),
        }

    first = created()
    assert first["replayed"] is None
    assert created() == {"id": first["id"], "replayed": "true"}
    with pytest.raises(stripe.IdempotencyError):
        created(client_reference_id="other")
    clock.advance(timedelta(hours=24))
    late = at(timedelta(hours=25))
    assert created(expires_at=late)["id"] != first["id"]


def test_a_refusal_is_not_kept_under_its_key(sdk: stripe.StripeClient, customer: str) -> None:
    with pytest.raises(stripe.InvalidRequestError):
        sdk.v1.checkout.sessions.create(good(customer, usage="x"), {"idempotency_key": "key"})
    assert sdk.v1.checkout.sessions.create(good(customer), {"idempotency_key": "key"}).id


def test_what_is_done_cannot_be_done_again(sdk: stripe.StripeClient, customer: str) -> None:
    session = sdk.v1.checkout.sessions.create(good(customer))
    sdk.v1.checkout.sessions.expire(session.id)
    with pytest.raises(stripe.InvalidRequestError):
        sdk.v1.checkout.sessions.expire(session.id)
    sdk.v1.customers.delete(customer)
    for act in (
        lambda: sdk.v1.customers.update(customer, {"name": "Zoe"}),
        lambda: sdk.v1.checkout.sessions.create(good(customer)),
    ):
        with pytest.raises(stripe.InvalidRequestError) as refused:
            act()
        assert refused.value.code == "resource_missing"
    assert sdk.v1.customers.retrieve(customer).to_dict()["deleted"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"api_key": "sk_test_revoked"}, stripe.AuthenticationError),
        ({"stripe_version": "2020-08-27"}, stripe.InvalidRequestError),
    ],
)
def test_another_key_or_version_is_refused(
    server: FakeStripeServer,
    sdk: stripe.StripeClient,
    options: dict[str, str],
    error: type[stripe.StripeError],
) -> None:
    client = sdk_for(server, sdk._requestor._get_http_client(), **options)
    with pytest.raises(error):
        client.v1.customers.create({})
