"""What hypothesis makes up for tests."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

anything: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
"""Any value that JSON can hold."""
