"""Out of memory inside the real graph runners of every era: the size, the function and the runner's sizes are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sglang_probe.agent.readers.graph_failure import SIZE_NAMES, Died, died
from sglang_probe.catalogue.bodies import releases
from tests.bodies.runners import OUT_OF_MEMORY, SIZES, Anything, Short, runner_of, sized

pytestmark = pytest.mark.lane

_EXECUTOR = "sglang.srt.model_executor"
DECODE = f"{_EXECUTOR}.cuda_graph_runner", "CudaGraphRunner", "capture_one_batch_size"
DECODE_NOW = f"{_EXECUTOR}.runner.decode_cuda_graph_runner", "DecodeCudaGraphRunner", "capture_one_shape"
MODULES = (
    DECODE[0],
    DECODE_NOW[0],
    f"{_EXECUTOR}.piecewise_cuda_graph_runner",
    f"{_EXECUTOR}.breakable_cuda_graph_runner",
    f"{_EXECUTOR}.runner.prefill_cuda_graph_runner",
    *(
        f"sglang.srt.speculative.{name}_cuda_graph_runner"
        for name in ("eagle_draft", "eagle_draft_extend", "multi_layer_eagle_draft_extend", "frozen_kv_mtp", "uno")
    ),
)
ERAS = ("0.4.3", "0.4.6.post5", "0.5.2", "0.5.5.post3", "0.5.7", "0.5.9", "0.5.10", "0.5.12", "0.5.13", "0.5.14",
        "0.5.16", "0.5.18", "0.5.20", "0.5.23")  # fmt: skip
WHOLE = [
    *((*DECODE, release) for release in ("0.4.3", "0.5.2", "0.5.5.post3", "0.5.9", "0.5.10", "0.5.13")),
    *((*DECODE_NOW, release) for release in ("0.5.14", "0.5.16", "0.5.20", "0.5.23")),
]
SIZED = [
    (module, cls, function, release)
    for release in ERAS
    for module in MODULES
    for cls, functions in sized(release, module).items()
    for function, arguments in functions.items()
    if len(arguments) > 1
]


@pytest.fixture(autouse=True)
def _enough() -> Iterator[None]:
    yield
    Short.function = Short.size = None


def _error_of(function: Callable[..., object], *arguments: object, what: str = OUT_OF_MEMORY) -> BaseException:
    with pytest.raises(Exception, match=what) as caught:
        function(*arguments)
    return caught.value


@pytest.mark.parametrize(("module", "cls", "function", "release"), WHOLE)
def test_a_runner_that_runs_short_at_a_size_tells_it_from_below_what_sglang_raises_instead(
    module: str, cls: str, function: str, release: str
) -> None:
    Short.function, Short.size = function, 4
    error = _error_of(runner_of(release, module, cls), Anything())
    assert str(error).startswith("Capture cuda graph failed")
    assert Died(4, f"{cls}.{function}", SIZES, cls) == died(error)


@pytest.mark.parametrize(("module", "cls", "function", "release"), WHOLE)
def test_a_runner_that_runs_short_before_any_size_tells_the_function_alone(
    module: str, cls: str, function: str, release: str
) -> None:
    Short.function = "capture"
    told = died(_error_of(runner_of(release, module, cls), Anything()))
    assert (told.size, told.sizes, told.runner_class) == (None, SIZES, cls)
    assert str(told.function).startswith(f"{cls}.")


@pytest.mark.parametrize(("module", "cls", "function", "release"), SIZED)
def test_each_function_of_one_size_is_known_with_its_size(module: str, cls: str, function: str, release: str) -> None:
    Short.function, Short.size = function, 4
    built = object.__new__(runner_of(release, module, cls))
    others = [Anything()] * (len(sized(release, module)[cls][function]) - 2)
    told = died(_error_of(getattr(built, function), 4, *others, what="."))  # or what a stand-in does not bear there
    assert (4, f"{cls}.{function}") == (told.size, told.function)


@pytest.mark.parametrize("module", MODULES)
def test_in_every_release_what_captures_one_size_takes_it_first_and_calls_it_so(module: str) -> None:
    known = {release: sized(release, module) for release in releases()}
    names = {arguments[1] for found in known.values() for each in found.values() for arguments in each.values()
             if len(arguments) > 1}  # fmt: skip
    assert names and names <= SIZE_NAMES


def test_every_release_has_a_decode_runner_whose_sizes_are_known() -> None:
    def told(release: str) -> bool:
        return any(name in sized(release, module).get(cls, {}) for module, cls, name in (DECODE, DECODE_NOW))

    assert [] == [release for release in releases() if not told(release)]
