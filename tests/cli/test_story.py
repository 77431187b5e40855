"""The whole way: a fake 8-GPU server started by `run`, and what `timeline` then says about it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sglang_probe.testing import RELEASES, FakeServer, story
from sglang_probe.testing.story import RANKS, arguments

Probe = Callable[..., "subprocess.CompletedProcess[str]"]
FORMULA = "= 21.697 - 93.999 x (1 - 0.550) - 0.000 = -20.603 GiB"
Words = Callable[..., list[str]]


@pytest.mark.parametrize("release", RELEASES)
def test_the_story_is_told_by_run_and_timeline_alone(
    probe: Probe, words_of: Words, tmp_path: Path, release: str
) -> None:
    prefix = words_of("run", "--dir", tmp_path / "runs", "--run-id", "today", "--")
    server = FakeServer(tmp_path, story(release), release=release, arguments=arguments(), prefix=prefix)

    ended = server.run()
    told = probe("timeline", "--all", tmp_path / "runs" / "today").stdout

    assert ended.returncode != 0
    said = re.sub(r"\n {10}", " ", told)  # lines of the head that went on below themselves
    ranks = rf"(?:(?:all|\d of) {RANKS} ranks|TP\d)"
    outcome = re.search(rf"^outcome +FAILED in kv\.profile on {ranks}: the budget is negative", said, re.MULTILINE)
    who = r"TP\d|\d ranks alike"  # the tightest may have been ended before it said what it computed
    why = re.search(rf"^why +rest (= .* GiB) on ({who}).*; minimum viable fraction 0\.7692$", said, re.MULTILINE)
    error = re.search(r"^error +(\w+: .*)$", told, re.MULTILINE)
    assert outcome
    assert why
    assert why[1] == FORMULA
    assert error
    assert error[1] in ended.log  # SGLang's own words
    assert re.search(rf"^ranks +{RANKS} of {RANKS} seen", told, re.MULTILINE)
    blocks = {text[:3]: text for text in re.split("^== ", told, flags=re.MULTILINE)[1:]}
    assert sorted(blocks) == [f"TP{rank}" for rank in range(RANKS)]
    for block in blocks.values():
        assert re.search(r"^ +weights\.load .* 72\.302$", block, re.MULTILINE)
        assert re.search(r"^ +allreduce\.buffers Custom\S+ +ok .* 0\.0\d\d$", block, re.MULTILINE)
        # SGLang kills the peers of the rank that fails, and some of them before they have said what they computed.
        assert FORMULA in block or re.search("^interrupted in kv", block, re.MULTILINE)
    blamed = [blocks[why[2]]] if why[2] in blocks else [text for text in blocks.values() if FORMULA in text]
    assert blamed
    assert all("minimum viable fraction = 1 - 21.697 / 93.999 = 0.7692" in text for text in blamed)
