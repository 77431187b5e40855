"""Every term of the KV budget is captured, and `verified` says whether they reproduce SGLang's own result."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_probe.catalogue.formulas import FORMULAS
from sglang_probe.catalogue.targets import targets_of
from sglang_probe.events.fingerprint import fingerprint

MIXIN = "sglang.srt.model_executor.model_runner_kv_cache_mixin"
GIB = 1 << 30
FRACTION, PRE_LOAD, AVAILABLE, CELL = 0.55, 93.999, 21.697, 40960
"""The story: 8 ranks, weights that leave 21.697 GiB, a budget of -20.603."""


@pytest.fixture(autouse=True)
def _read_by_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    """These bodies are made up here, so they are known: what is not is tested on the bodies of releases."""
    for unit, function in (("tokens", "profile_max_num_token"), ("bytes", "_profile_available_bytes")):
        body = fingerprint(getattr(mixin(1.0, unit=unit).ModelRunnerKVCacheMixin, function))
        monkeypatch.setitem(FORMULAS, str(body), unit)


def mixin(available: float, *, unit: str, hidden: float = 0.0, mamba: float | None = None) -> ModuleType:
    """A module with the two homes' formulas, in SGLang's order of operations; `hidden` is a term nobody told us of."""
    module = ModuleType(MIXIN)

    def get_available_gpu_memory(device: str, gpu_id: int, distributed: bool = False, cpu_group: Any = None) -> float:
        return available

    class ModelRunnerKVCacheMixin:
        is_draft_worker = False
        mem_fraction_static = FRACTION

        def get_cell_size_per_token(self, num_layers: int) -> int:
            return CELL

        def handle_max_mamba_cache(self, total_rest_memory: float) -> float:
            return total_rest_memory - float(mamba or 0.0)

        def rest(self, pre_load: float) -> float:
            rest = vars(module)["get_available_gpu_memory"]("cuda", 0) - pre_load * (1 - self.mem_fraction_static)
            return (self.handle_max_mamba_cache(rest) if mamba is not None else rest) - hidden

        def profile_max_num_token(self, total_gpu_memory: float) -> int:
            cell = self.get_cell_size_per_token(1)
            return int(self.rest(total_gpu_memory) * GIB) // cell

        def _profile_available_bytes(self, pre_model_load_memory: float) -> int:
            rest = self.rest(pre_model_load_memory)
            if rest <= 0:
                minimum = 1 - available / pre_model_load_memory
                raise ValueError(f"nothing left (minimum viable = 1 - available/pre = {minimum:.4f}). More words.")
            return int(rest * GIB)

    absent = "_profile_available_bytes" if unit == "tokens" else "profile_max_num_token"
    delattr(ModelRunnerKVCacheMixin, absent)
    module.get_available_gpu_memory = get_available_gpu_memory  # type: ignore[attr-defined]
    module.ModelRunnerKVCacheMixin = ModelRunnerKVCacheMixin  # type: ignore[attr-defined]
    return module


def profile(probe: Any, module: ModuleType, pre_load: float) -> dict[str, Any]:
    """Run the module's budget function, hooked, and return the attributes of its last event."""
    probe.agent.hook(module)
    runner = module.ModelRunnerKVCacheMixin()
    function = getattr(runner, "profile_max_num_token", None) or runner._profile_available_bytes
    try:
        returned = function(pre_load)
    except ValueError:
        returned = None
    attributes: dict[str, Any] = probe.memory()[-1]["attributes"]
    assert attributes["result"] == returned
    return attributes


def test_the_rows_of_the_mixin_are_found() -> None:
    assert {target.path for target in targets_of(MIXIN)} >= {"get_available_gpu_memory"}


def test_the_storys_numbers_come_out(probe: Any) -> None:
    terms = profile(probe, mixin(AVAILABLE, unit="tokens"), PRE_LOAD)
    assert terms["rest_bytes"] == int((AVAILABLE - PRE_LOAD * (1 - FRACTION)) * GIB)
    assert round(terms["rest_bytes"] / GIB, 3) == -20.603
    assert round(terms["slack_bytes"] / GIB, 3) == 42.300
    assert round(terms["minimum_viable_fraction"], 4) == 0.7692
    assert terms["result"] < 0
    assert (terms["verified"], terms["verified_reason"]) == (True, None)


def test_the_raise_of_later_releases_carries_the_terms_and_is_verified_by_its_message(probe: Any) -> None:
    terms = profile(probe, mixin(AVAILABLE, unit="bytes"), PRE_LOAD)
    assert terms["result"] is None
    assert round(terms["rest_bytes"] / GIB, 3) == -20.603
    assert terms["minimum_viable_fraction_printed"] == 0.7692
    assert terms["verified"] is True


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(available=st.floats(0.001, 300), pre_load=st.floats(0.001, 300), unit=st.sampled_from(["tokens", "bytes"]))
def test_the_terms_reproduce_the_result_to_the_last_bit(
    probe: Any, available: float, pre_load: float, unit: str
) -> None:
    terms = profile(probe, mixin(available, unit=unit), pre_load)
    assert terms["verified"] is True, terms["verified_reason"]
    assert terms["available_gib"] == available and terms["pre_load_gib"] == pre_load


@pytest.mark.parametrize("unit", ["tokens", "bytes"])
def test_a_term_that_the_probe_does_not_know_is_noticed(probe: Any, unit: str) -> None:
    terms = profile(probe, mixin(80.0, unit=unit, hidden=1.5), PRE_LOAD)
    assert terms["verified"] is False
    assert "another term" in terms["verified_reason"]


def test_the_mamba_deduction_is_what_went_in_less_what_came_out(probe: Any) -> None:
    terms = profile(probe, mixin(80.0, unit="tokens", mamba=3.0), PRE_LOAD)
    assert terms["deductions"] == {"mamba": 3 * GIB}
    assert terms["verified"] is True
    assert terms["minimum_viable_fraction"] is None and "mamba" in terms["minimum_viable_fraction_reason"]


def test_a_budget_function_that_never_measures_is_not_verified(probe: Any) -> None:
    module = mixin(80.0, unit="bytes")
    module.ModelRunnerKVCacheMixin._profile_available_bytes = lambda self, pre_model_load_memory: 7
    terms = profile(probe, module, PRE_LOAD)
    assert terms["verified"] is None and "available_gib" in terms["verified_reason"]


def test_the_observed_measurement_is_the_identical_object(probe: Any) -> None:
    module = mixin(80.0, unit="bytes")
    measured = object()
    module.get_available_gpu_memory = lambda: measured  # type: ignore[attr-defined]
    probe.agent.hook(module)
    assert module.get_available_gpu_memory() is measured


def test_a_budget_whose_mamba_deduction_raised_states_no_minimum(probe: Any) -> None:
    module = mixin(80.0, unit="bytes", mamba=3.0)

    def raising(self: Any, total_rest_memory: float) -> float:
        raise ValueError("not enough for the state cache")

    module.ModelRunnerKVCacheMixin.handle_max_mamba_cache = raising
    terms = profile(probe, module, PRE_LOAD)
    assert (terms["rest_bytes"], terms["minimum_viable_fraction"], terms["verified"]) == (None, None, None)
    assert "mamba" in terms["minimum_viable_fraction_reason"] and "mamba" in terms["verified_reason"]


def test_a_fraction_that_sglangs_message_contradicts_is_not_verified(probe: Any) -> None:
    module = mixin(AVAILABLE, unit="bytes")

    def raising(self: Any, pre_model_load_memory: float) -> int:
        vars(module)["get_available_gpu_memory"]("cuda", 0)
        minimum = 1 - AVAILABLE / pre_model_load_memory
        raise ValueError(f"under --mem-fraction-static=0.7. (minimum viable = 1 - available/pre = {minimum:.4f})")

    module.ModelRunnerKVCacheMixin._profile_available_bytes = raising
    terms = profile(probe, module, PRE_LOAD)
    assert terms["verified"] is False and "0.7" in terms["verified_reason"]
