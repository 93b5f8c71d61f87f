from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adapters.fake_psp.signatures import is_signed, sign
from adapters.psp.contract.clock import START
from tests.strategies import altered

SECRET = "whsec_fake"


@given(st.data())
def test_whatever_is_altered_is_not_signed(data: st.DataObject) -> None:
    body = data.draw(st.binary())
    signature = sign(body, secret=SECRET, now=START)
    other_body = data.draw(altered(body))
    other_signature = data.draw(altered(signature.encode()) | st.binary()).decode("latin-1")

    assert is_signed(other_body, signature, secrets=[SECRET], now=START) is (other_body == body)
    as_before = other_signature == signature
    assert is_signed(body, other_signature, secrets=[SECRET], now=START) is as_before
    assert not is_signed(body, signature, secrets=[SECRET + "x"], now=START)
