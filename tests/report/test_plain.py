"""Values as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.report import plain


@given(st.text(st.characters()))
def test_any_text_becomes_one_printable_line(text: str) -> None:
    shown = plain.printable(text)

    assert shown.isprintable()
    assert text.isprintable() == (shown == text)


@pytest.mark.parametrize("value", [{"a": "\x1b"}, ["\n"], None, 3.5, "\ud800"])
def test_any_value_of_json_becomes_printable(value: object) -> None:
    assert plain.printable(value).isprintable()
