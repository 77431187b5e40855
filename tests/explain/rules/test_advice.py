"""SGLang's advice is never repeated unchecked."""

from __future__ import annotations

import pytest

from sglang_probe.timeline.model import Failure
from tests.explain.explaining import failed, findings, of, raising, rank, rules, tenant
from tests.explain.rules.test_memory import CAPTURE

NOT_ENOUGH = Failure(
    id="e1", type="builtins.RuntimeError", message="Not enough memory. Please try to increase --mem-fraction-static."
)
LEAVES_NONE = Failure(id="e1", type="builtins.ValueError",
                      message="Raise --mem-fraction-static above 0.77")  # fmt: skip
CAPTURE_FAILED = "Capture cuda graph failed: {}\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)"


@pytest.mark.parametrize("failure", [NOT_ENOUGH, LEAVES_NONE])
def test_to_raise_is_right_where_nothing_else_is_in_the_way(failure: Failure) -> None:
    printed = {"minimum_viable_fraction_printed": 0.7691} if failure is LEAVES_NONE else {}
    found = of("advice", failed(rank(0, 1, budget=printed), failure=failure))

    assert "Right here" in found.says
    assert ("at least 0.7692" in found.says) == (failure is NOT_ENOUGH)  # the other names it itself


def test_to_raise_is_diagnostically_wrong_where_a_tenant_is_the_cause() -> None:
    run = failed(rank(0, 1, pre_load=84.0, available=11.7, fraction=0.85, tenants=(tenant(10.0),)), failure=NOT_ENOUGH)

    assert "Arithmetically right" in of("advice", run).says
    assert "diagnostically wrong: others hold 10.000 GiB of one device, and 0.850 would do" in of("advice", run).says


def test_to_raise_is_no_help_where_no_fraction_works() -> None:
    run = failed(rank(0, 1, available=5.0, weights=89.0), failure=NOT_ENOUGH)

    assert "no help: no fraction leaves enough" in of("advice", run).says


def test_to_lower_is_right_where_a_capture_ran_out_of_memory() -> None:
    found = [one for one in _advice(CAPTURE_FAILED.format(CAPTURE)) if "lower" in one]

    assert any("Right here: the device was out of memory" in one and "97.69 MiB" in one for one in found)


def test_to_lower_is_no_diagnosis_where_the_capture_failed_of_something_else() -> None:
    (found,) = _advice(CAPTURE_FAILED.format("Connection closed by peer"), "Exception", free=12.0)

    assert "no diagnosis" in found
    assert "12.000 GiB were free" in found


def test_expandable_segments_are_no_cure_where_little_is_unallocated() -> None:
    found = [
        one
        for one in _advice(f"{CAPTURE} try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
        if "PyTorch" in one
    ]

    assert any("Not the cause: only 10.72 MiB" in one for one in found)


def test_a_message_without_advice_is_not_commented() -> None:
    assert "advice" not in rules(raising("weights.load", "size mismatch", "builtins.ValueError"))


def _advice(message: str, kind: str = "torch.OutOfMemoryError", free: float = 0.15) -> list[str]:
    return [one.says for one in findings(raising("graph.capture", message, kind, free=free)) if one.rule == "advice"]
