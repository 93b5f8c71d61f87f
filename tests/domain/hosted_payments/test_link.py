from __future__ import annotations

from adapters.psp_suite.samples import TOKEN_ID
from domain.hosted_payments.link import HostedLinks
from tests.builders import a_session


def test_the_redirect_uri_is_percent_encoded_in_the_link() -> None:
    session = a_session(redirect_uri="https://shop.example/cards?a=b&c=X d~_.-")

    assert HostedLinks(base_url="https://cards.example").hosted_payment_uri(session) == (
        f"https://cards.example/hosted-payments?token_id={TOKEN_ID}&key={session.link_key}"
        "&redirect_uri=https%3A%2F%2Fshop.example%2Fcards%3Fa%3Db%26c%3DX%20d~_.-"
    )


def test_a_link_from_an_earlier_release_has_neither_a_key_nor_a_short_form() -> None:
    session, links = a_session(link_key=None), HostedLinks(base_url="https://cards.example")

    assert links.hosted_payment_uri(session) == (
        f"https://cards.example/hosted-payments?token_id={TOKEN_ID}"
        "&redirect_uri=https%3A%2F%2Fshop.example%2Fcards%3Fdone%3D1"
    )
    assert links.short_uri(session) is None
    # The link omits the redirect_uri, so that it fits into a QR code and a text message.
    assert links.link_to_send(session) == (
        f"https://cards.example/hosted-payments?token_id={TOKEN_ID}"
    )
