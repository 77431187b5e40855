"""Out-of-memory errors in all their wordings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.explain.oom_message import OutOfMemory, figures_of, is_host_memory, parse, shown

MIB, GIB = 1 << 20, 1 << 30
OLD = (
    "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.15 GiB total capacity; 77.50 GiB already"
    " allocated; 5.06 MiB"
    " free; 78.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting"
    " max_split_size_mb"
)
NEW = (
    "CUDA out of memory. Tried to allocate 112.00 MiB. GPU 1 has a total capacity of 139.80 GiB of which 106.69"
    " MiB is free."
    " Process 5952 has 135.79 GiB memory in use. Including non-PyTorch memory, this process has 3.89 GiB memory"
    " in use. Of"
    " the allocated memory 2.36 GiB is allocated by PyTorch, with 1.50 GiB allocated in private pools (e.g., CUDA"
    " Graphs),"
    " and 17.86 MiB is reserved by PyTorch but unallocated."
)
IN_A_CONTAINER = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 672.00 MiB. GPU 0 has a total capacity of"
    " 140.06 GiB of"
    " which 200.75 MiB is free. Process 1000 has 139.86 GiB memory in use. Of the allocated memory 128.50 GiB is"
    " allocated by"
    " PyTorch, and 1.01 GiB is reserved by PyTorch but unallocated."
)


def gib(amount: float) -> int:
    return round(amount * GIB)


def read(message: str) -> OutOfMemory:
    said = parse(message)
    assert said is not None
    return said


def test_the_wording_of_torch_2_is_read_whole() -> None:
    said = read(NEW)

    assert (112 * MIB, gib(139.8), round(106.69 * MIB)) == (said.wanted, said.total, said.free)
    assert (gib(3.89), gib(2.36), gib(1.5), round(17.86 * MIB)) == (
        said.process,
        said.allocated,
        said.private,
        said.unallocated,
    )
    assert ((5952, gib(135.79)),) == said.others


def test_the_wording_of_torch_1_gives_the_unallocated_as_a_difference() -> None:
    said = read(OLD)

    assert (20 * MIB, gib(79.15), round(5.06 * MIB), gib(77.5)) == (said.wanted, said.total, said.free, said.allocated)
    assert gib(78.0) - gib(77.5) == said.unallocated
    assert said.process is None


def test_in_a_container_this_process_is_the_one_that_makes_up_the_device() -> None:
    said = read(IN_A_CONTAINER)

    assert 672 * MIB - round(200.75 * MIB) == said.short
    assert gib(139.86) == said.process
    assert () == said.others
    assert said.outside is not None
    assert 139.86 - 128.50 - 1.01 == pytest.approx(said.outside / GIB, abs=1e-6)


def test_another_process_that_does_not_make_up_the_device_is_not_taken_for_this_one() -> None:
    said = read(IN_A_CONTAINER.replace("139.86 GiB memory", "130.00 GiB memory"))

    assert said.process is None
    assert ((1000, gib(130.0)),) == said.others


@pytest.mark.parametrize("message", [
    "HIP out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 191.98 GiB of which 0 bytes is free.",
    "CUDA error: out of memory",
    "NCCL error: Cuda failure 'out of memory'",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY",
    "NPU out of memory. Tried to allocate 20.00 MiB",
    "NCCL error: Failed to CUDA calloc async 4864 bytes",
])  # fmt: skip
def test_other_libraries_wordings_are_out_of_memory_too(message: str) -> None:
    assert parse(message) is not None


def test_nothing_free_is_zero_and_not_unknown() -> None:
    message = "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has 79.10 GiB of which 0 bytes is free."

    assert read(message).free == 0


@pytest.mark.parametrize("message", [
    "out of resource: shared memory, Required: 131072",
    "DefaultCPUAllocator: can't allocate memory",
    "builtins.MemoryError: ",
    "Host memory out of memory: cudaHostAlloc failed",
    "Not enough host memory available. Requesting 8.00 GB but only have 2.00 GB free.",
    "unable to mmap 1024 bytes from file </torch_1>: Cannot allocate memory (12)",
])  # fmt: skip
def test_the_host_s_memory_is_not_the_device_s(message: str) -> None:
    assert parse(message) is None
    assert is_host_memory(message)


@pytest.mark.parametrize(
    "message", ["Not enough memory. Please try to increase --mem-fraction-static.", "", "size mismatch"]
)
def test_what_is_no_allocation_that_failed_is_neither(message: str) -> None:
    assert parse(message) is None
    assert not is_host_memory(message)


@given(st.text() | st.text().map(lambda text: f"CUDA out of memory. Tried to allocate {text}. of which {text} is free"))
def test_any_text_is_read_without_an_error(message: str) -> None:
    said = parse(message)

    assert said is None or said.short is None or isinstance(said.short, int)


def test_a_size_that_no_process_can_have_is_unknown() -> None:
    said = read(NEW.replace("this process has 3.89 GiB", "this process has 17179869184.00 GiB"))

    assert said.process is None
    assert said.outside is None


NPU = (
    "NPU out of memory. Tried to allocate 20.00 MiB (NPU 3; 60.97 GiB total capacity; 58.54 GiB already allocated;"
    " 58.54 GiB current active; 3.02 MiB free; 59.10 GiB reserved in total by PyTorch) If reserved memory is >>"
)
XPU = (
    "XPU out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 63.98 GiB. Of the allocated memory"
    " 1.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated."
)
ASYNC = (
    "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 6.06 GiB\n"
    "Requested               : 8.00 KiB\nDevice limit            : 8.00 GiB\nFree (according to CUDA): 0 bytes\n"
    "PyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB"
)
CAPACTY = NEW.replace("total capacity", "total capacty")
ALLOWED = NEW.replace("memory in use. Of the", "memory in use. 100.00 GiB allowed; Of the")


@pytest.mark.parametrize(("message", "expected"), [
    (NPU, {"wanted": 20 * MIB, "free": round(3.02 * MIB), "allocated": gib(58.54), "device": 3}),
    (XPU, {"wanted": 20 * GIB, "free": None, "allocated": GIB, "unallocated": 0, "device": 0, "total": gib(63.98)}),
    (ASYNC, {"wanted": 8 << 10, "free": 0, "allocated": gib(6.06), "total": 8 * GIB, "device": 0}),
    (CAPACTY, {"wanted": 112 * MIB, "total": gib(139.8), "free": round(106.69 * MIB), "device": 1}),
    (ALLOWED, {"allowed": 100 * GIB, "allocated": gib(2.36)}),
    (OLD.replace("reserved in total by PyTorch", "cached"), {"allocated": gib(77.5), "device": 0}),
])  # fmt: skip
def test_each_library_s_and_each_era_s_wording_is_read(message: str, expected: dict[str, int | None]) -> None:
    said = read(message)

    assert expected == {name: getattr(said, name) for name in expected}


@pytest.mark.parametrize("message", [NEW, OLD, IN_A_CONTAINER, NPU, XPU])
def test_a_message_that_is_cut_says_less_and_nothing_else(message: str) -> None:
    whole = read(message)
    for end in range(len(message)):
        said = parse(message[:end])
        for name in ("wanted", "total", "free", "allocated", "private", "unallocated", "outside"):
            assert said is None or getattr(said, name) in {None, getattr(whole, name)}, (message[:end], name)


def test_figures_are_good_to_half_of_their_last_decimal_and_sums_add_that_up() -> None:
    said = read(IN_A_CONTAINER)

    assert round(0.005 * MIB + 0.5) == said.precision("free")
    assert 2 * round(0.005 * MIB + 0.5) == said.precision("wanted", "free")
    assert 3 * round(0.005 * GIB + 0.5) == said.precision("process", "allocated", "unallocated")
    assert read(ASYNC).precision("free") == 0


@pytest.mark.parametrize(("count", "expected"), [
    (round(471.25 * MIB), "471.25 MiB"), (gib(10.35), "10.35 GiB"), (8 << 10, "8.00 KiB"), (0, "0 bytes"),
    (-gib(1.5), "-1.50 GiB"),
])  # fmt: skip
def test_a_figure_is_shown_in_torch_s_own_unit_and_decimals(count: int, expected: str) -> None:
    assert expected == shown(count)


def test_what_is_neither_free_nor_this_process_s_nor_a_named_one_s_is_held_by_others() -> None:
    message = (
        "CUDA out of memory. Tried to allocate 252.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which"
        " 154.31 MiB is free. Including non-PyTorch memory, this process has {} memory in use. Of the allocated"
        " memory 29.06 GiB is allocated by PyTorch, and 10.72 MiB is reserved by PyTorch but unallocated."
    )
    said, whole = parse(message.format("30.00 GiB")), parse(message.format("139.64 GiB"))
    assert said is not None and whole is not None
    assert said.total is not None and said.free is not None and said.process is not None
    assert said.unnamed == said.total - said.free - said.process
    assert "held by processes that the message does not name" in figures_of(said)
    assert whole.unnamed is None
