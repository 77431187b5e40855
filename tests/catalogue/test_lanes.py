"""On a real SGLang the files give the same answer as the modules that its own Python imports."""

from __future__ import annotations

import os

import pytest

from lanes.build import build_lane
from lanes.rows import ROWS
from sglang_probe.catalogue.releases import order
from sglang_probe.catalogue.resolve import resolve
from sglang_probe.catalogue.sources import from_tree
from sglang_probe.catalogue.targets import TARGETS
from tests.catalogue.live import answers, as_the_agent_says

OLDEST_AND_NEWEST = [min(ROWS, key=order), max(ROWS, key=order)]


@pytest.mark.lane
@pytest.mark.parametrize("version", OLDEST_AND_NEWEST)
def test_files_and_live_modules_agree_on_every_target_whose_module_can_be_imported(version: str) -> None:
    if version not in os.environ.get("LANES", version).split():
        pytest.skip("the variable LANES does not name it")
    lane = build_lane(version)
    (package,) = lane.python.parents[1].glob("lib/*/site-packages/sglang")
    found = {row.target.name: [as_the_agent_says(row), row.fingerprint] for row in resolve(from_tree(package))}
    live = answers([lane.python], TARGETS)
    assert len(live) > len(TARGETS) // 3
    assert {name: found[name] for name in live} == live
