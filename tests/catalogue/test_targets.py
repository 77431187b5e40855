"""The table of homes: each row can be looked up, read and told from the others."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from sglang_probe.agent.readers import reader_of
from sglang_probe.catalogue.targets import MODULES, TARGETS, Target, targets_of
from sglang_probe.events.names import ROLES

rows = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


@rows
def test_the_reader_that_a_row_names_is_there(target: Target) -> None:
    reader = reader_of(target)
    assert callable(reader.begin) and callable(reader.end)


@rows
def test_a_row_says_why_and_is_a_path_that_can_be_looked_up(target: Target) -> None:
    assert target.why.endswith(".")
    assert re.fullmatch(r"sglang\.srt(\.\w+)+:(\w+\.)?\w+", target.name)
    assert target in targets_of(target.module) and target.module in MODULES


@rows
def test_a_home_is_hooked_by_one_row_alone(target: Target) -> None:
    assert Counter(other.name for other in TARGETS)[target.name] == 1


@rows
def test_what_a_row_gives_way_to_is_a_home_too(target: Target) -> None:
    if target.unless:
        other = target.unless if ":" in target.unless else f"{target.module}:{target.unless}"
        assert other in {row.name for row in TARGETS}


def test_every_role_of_a_start_has_a_home() -> None:
    assert {target.role for target in TARGETS} - {None} == {role for role in ROLES if not role.startswith("serve.")}


def test_no_entry_point_of_a_process_is_hooked() -> None:
    assert [] == [target.name for target in TARGETS if re.search(r":run_\w+_process$", target.name)]
