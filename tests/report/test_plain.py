"""Values as text."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.report import plain

BIDI_CONTROLS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@given(st.text(st.characters()))
def test_any_text_becomes_one_printable_line(text: str) -> None:
    shown = plain.printable(text)

    assert shown.isprintable()
    assert text.isprintable() == (shown == text)


@pytest.mark.parametrize("value", [{"a": "\x1b"}, ["\n"], None, 3.5, "\ud800"])
def test_any_value_of_json_becomes_printable(value: object) -> None:
    assert plain.printable(value).isprintable()


@given(st.one_of(st.text(), st.text(st.characters(max_codepoint=0x7F))))
def test_a_json_document_is_the_same_one_without_a_character_that_a_terminal_obeys(text: str) -> None:
    shown = plain.printable_json(json.dumps({"a": text}, ensure_ascii=False))

    assert {"a": text} == json.loads(shown)
    assert not [one for one in shown if "\x7f" <= one <= "\x9f" or unicodedata.bidirectional(one) in BIDI_CONTROLS]
