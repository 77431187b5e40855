"""What the user says of a log against what the log says: both values in one finding, and the log's counts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.explain.logs.test_rules import ARGUMENTS, HALF, POOL, said

START = (
    ARGUMENTS.replace("tp_size=4", "tp_size=2"),
    "sglang version: 0.5.9",
    "TP1: Load weight begin. avail mem=78.20 GB",
    f"TP1: {POOL}",
)
TOKEN = round(2 * HALF * (1 << 30) / 131072)


@pytest.mark.parametrize(("assumed", "values"), [
    ({"mem_fraction_static": 0.9}, ("0.85", "0.9")),
    ({"tp_size": 8}, ("2", "8")),
    ({"bytes_per_token": 2 * TOKEN}, (f"{TOKEN // 1000:,}", str(2 * TOKEN))),
    ({"mem_fraction_static": 0.85, "tp_size": 2, "bytes_per_token": TOKEN}, ()),
    ({"kv_cache_dtype": "fp8_e4m3"}, ()),  # these arguments do not hold it
])  # fmt: skip
def test_a_value_that_the_log_contradicts_is_one_warning_with_both(
    assumed: dict[str, Any], values: tuple[str, ...]
) -> None:
    found = [one for one in said(*START, **assumed) if one.rule == "assumed" and one.severity == "warning"]

    assert len(found) == bool(values)
    assert all(value in one.says for one in found for value in values)


def test_ranks_beyond_the_assumed_number_contradict_it() -> None:
    (one,) = [one for one in said("TP5: Load weight begin. avail mem=78.20 GB", tp_size=4) if one.rule == "assumed"]

    assert "at least 6" in one.says and "you say 4" in one.says


@pytest.mark.parametrize(("name", "meant"), [("mem_fraction_statik", "mem_fraction_static"), ("nonsense", "")])
def test_a_name_that_nothing_has_is_said_to_have_no_effect(name: str, meant: str) -> None:
    (one,) = [one for one in said(*START, **{name: 1}) if one.rule == "assumed"]

    assert (one.severity, name in one.says, "no effect" in one.says) == ("info", True, True)
    assert meant in one.says
