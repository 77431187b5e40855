"""Arguments of a log against those of the events."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_probe.timeline.logs.arguments import comparable, differing


@pytest.mark.parametrize("hidden", ["[redacted]", "<redacted>", "key=<redacted>"])
@pytest.mark.parametrize("known", [None, "a word", 3])
def test_an_argument_that_either_side_hides_is_not_compared(hidden: str, known: Any) -> None:
    assert comparable({"watermark_config": hidden}, {"watermark_config": known}) == []
    assert comparable({"watermark_config": known}, {"watermark_config": hidden}) == []


def test_arguments_that_both_have_and_not_alike_are_named() -> None:
    said, known = {"tp_size": 2, "sizes": (1, 2), "port": 1}, {"tp_size": 4, "sizes": [1, 2], "host": "h"}
    assert differing(said, known) == ["tp_size"]
