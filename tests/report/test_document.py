"""A document in pieces is the JSON of the whole."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from sglang_probe.report.document import json_pieces
from sglang_probe.timeline import Timeline, shown, to_json
from tests.collect.starting import Shape, launch
from tests.timeline.making import timeline_of

WHOLE = timeline_of(launch([Shape(), Shape(fail_in="weights.load")]))
EMPTY = replace(WHOLE, runs=(replace(WHOLE.runs[0], processes=()),) * 2)


@pytest.mark.parametrize("timeline", [WHOLE, EMPTY], ids=["whole", "without a process"])
@pytest.mark.parametrize("deep", [False, True])
def test_the_pieces_of_a_timeline_are_its_json(timeline: Timeline, deep: bool) -> None:
    whole, in_pieces = (
        {"a": {"timeline": one}, "b": "\n[]"} if deep else one for one in (to_json(timeline), shown(timeline))
    )

    assert msgspec.json.format(msgspec.json.encode(whole)) + b"\n" == b"".join(json_pieces(in_pieces))


def test_a_character_that_a_terminal_obeys_is_escaped_in_every_piece() -> None:
    acting = "a\x7f\x9b\u202e\u2028b"

    text = b"".join(json_pieces({"first": acting, "many": map(str, [acting, "plain"]), "last": acting})).decode()

    assert {"first": acting, "many": [acting, "plain"], "last": acting} == msgspec.json.decode(text)
    assert text.isascii()
