"""What the all-reduce's classes are said to take: by SGLang's own source, by a recording, and by the fakes."""

from __future__ import annotations

import ast
import os
import re
import zipfile
from pathlib import Path

import pytest

from bench import predicted
from bench.by_ranks import timeline_of
from bench.predicted import CLASSES, first_family, second_family, torch_symm_mem
from bench.rank_costs import Paid, paid_by
from bench.sizes import SIZES
from sglang_probe.testing.core import allreduce

SEVERAL = [size for size in SIZES if size > 1]
# Read when pytest collects: the session's own fixture takes every SGLANG_PROBE_* away before the first test.
WHEELS = Path(
    os.environ.get("SGLANG_PROBE_WHEELS")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sglang-probe" / "wheels"
)
RELEASES = ("0.5.11", "0.5.12", "0.5.12.post1", "0.5.13", "0.5.13.post1", "0.5.14", "0.5.15", "0.5.15.post1")
COMMUNICATORS = "srt/distributed/device_communicators"


@pytest.fixture(params=RELEASES)
def wheel(request: pytest.FixtureRequest) -> zipfile.ZipFile:
    """The wheel of a release for which the constants hold, where it is at hand."""
    found = list(WHEELS.glob(f"sglang-{request.param}-*.whl"))
    if not found:
        pytest.skip(f"no wheel of {request.param} in {WHEELS}: SGLANG_PROBE_WHEELS names another directory")
    return zipfile.ZipFile(found[0])


def source(wheel: zipfile.ZipFile, name: str) -> str:
    return wheel.read(f"sglang/{name}").decode()


def bytes_of(text: str) -> int:
    """Return what a product of numbers and units comes to: `384 * KB`."""
    units = {"KB": predicted.KIB, "MB": predicted.MIB, "MiB": predicted.MIB}
    total = 1
    for word in text.split("*"):
        total *= units[word.strip()] if word.strip() in units else int(ast.literal_eval(word.strip()))
    return total


def test_the_second_family_s_constants_are_those_of_the_source(wheel: zipfile.ZipFile) -> None:
    text = source(wheel, f"{COMMUNICATORS}/custom_all_reduce_v2.py")
    tables = re.findall(r"THRESHOLD_2_SHOT_MAP = \{\n(.*?)\n +\}", text, re.DOTALL)
    rows = re.findall(r"(\d): ModeConfig\(([^,]+),", tables[1])  # the first is Blackwell's
    assert {int(ranks): bytes_of(push) for ranks, push in rows} == predicted.SECOND_PUSH
    (pull,) = re.findall(r"max_pull_size = (\d+ \* \d+ \* \d+)", text)
    assert bytes_of(pull) == predicted.SECOND_PULL
    assert f"graph_input_count={predicted.SECOND_INPUTS}," in text


def test_the_second_family_s_parts_are_those_of_its_header(wheel: zipfile.ZipFile) -> None:
    headers = "jit_kernel/include/sgl_kernel/distributed"
    storage, common = (source(wheel, f"{headers}/{name}") for name in ("custom_all_reduce.cuh", "common.cuh"))
    for words in (
        "_align_bytes(sizeof(PullController::SignalType) * m_max_num_cta_pull)",
        "_align_bytes(sizeof(PushController::SignalType) * m_max_num_cta_push)",
        "_align_bytes(sizeof(AllReduceData) * (1 + m_graph_buffer_count))",
        "_align_bytes(PushController::kNumStages * m_num_gpu * m_push_buffer_bytes)",
        f"div_ceil(size, {predicted.SECOND_LINE}) * {predicted.SECOND_LINE}",
        "input[device::distributed::kMaxNumGPU]",
        "cudaMalloc(&m_storage, storage_bytes())",
    ):
        assert words in storage
    assert f"kMaxNumGPU = {predicted.SECOND_ENTRY // 8};" in common
    assert f"struct alignas({predicted.SECOND_LINE}) Semaphore" in common
    assert f"kNumStages = {predicted.SECOND_STAGES};" in common
    assert len(re.findall(r"^ +/\*\[\d\]=\*/", storage, re.MULTILINE)) == 5


def test_the_first_family_and_symmetric_memory_take_what_the_source_says(wheel: zipfile.ZipFile) -> None:
    first = source(wheel, f"{COMMUNICATORS}/custom_all_reduce.py")
    (size, *_others) = re.findall(r"_MAX_CAR_SIZE = ([\d *]+)", first)
    assert bytes_of(size) == predicted.FIRST_DATA
    cuda = first[first.index("if not _is_hip:") : first.index("self._ptr = ops.init_custom_ar(")]
    words = " ".join(cuda.split())
    assert "create_shared_buffer( ops.meta_size() + max_size, group=group )" in words
    assert "create_shared_buffer(max_size, group=group)" in words
    assert "torch.empty( max_size, dtype=torch.uint8, device=self.device )" in words
    assert (2, 1) == (cuda.count("self.create_shared_buffer("), cuda.count("torch.empty("))
    (hopper,) = re.findall(r" 9: \{(.*?)\}", source(wheel, f"{COMMUNICATORS}/all_reduce_utils.py"), re.DOTALL)
    rows = re.findall(r"(\d): (\d+ \* MiB)", hopper)
    assert {int(ranks): bytes_of(text) for ranks, text in rows} == predicted.SYMMETRIC_DATA


@pytest.mark.parametrize("name", ["car", "requests"])
def test_two_h200s_asked_for_and_took_what_is_predicted(root: Path, name: str) -> None:
    (run,) = timeline_of(root / "tests" / "data" / "h200-x2-sglang-0.5.14-experiments" / name)
    paid: list[Paid] = [one for process in run["processes"] if (one := paid_by(process)) is not None]
    foretold = second_family(2)
    assert foretold is not None
    assert [(1, foretold.asked), (1, foretold.asked)] == [(len(one.asked), one.asked[0].size) for one in paid]
    assert [foretold.taken] * 2 == [one.taken["CustomAllReduceV2"] for one in paid]


@pytest.mark.parametrize("ranks", SEVERAL)
def test_the_fakes_take_what_is_predicted(ranks: int) -> None:
    first, second = first_family(ranks), second_family(ranks)
    assert first is not None
    assert second is not None
    assert (second.asked, second.taken) == (allreduce.v2_bytes(ranks), allreduce.device_cost(2, ranks))
    assert first.taken == allreduce.device_cost(1, ranks)


@pytest.mark.parametrize("name", CLASSES)
def test_nothing_is_built_for_one_rank_or_for_more_than_a_host_has(name: str) -> None:
    assert [None, None] == [CLASSES[name](ranks) for ranks in (1, 16)]


def test_what_a_card_loses_is_whole_pages_and_no_less_than_was_asked_for() -> None:
    for foretold in (family(ranks) for family in (first_family, second_family) for ranks in SEVERAL):
        assert foretold is not None
        assert foretold.taken is not None
        assert (0, True) == (foretold.taken % predicted.PAGE, foretold.taken >= foretold.asked)


def test_how_symmetric_memory_is_rounded_is_not_known() -> None:
    assert all(foretold is not None and foretold.taken is None for foretold in map(torch_symm_mem, SEVERAL))
