"""What the scripts read of the cards from outside: each process by its title, and nobody overlooked in between."""

from __future__ import annotations

import os
import sys
import time
from types import SimpleNamespace

import pytest

from bench.cards import MIB, Cards, Watch, title

GIB = 1 << 30


class FakeNvml:
    """Two cards; `held` is a list of (card, pid, bytes) and may change."""

    nvmlMemory_v2 = object()  # noqa: N815  # NVML's name

    def __init__(self, *held: tuple[int, int, int | None]) -> None:
        self.held = list(held)

    def nvmlInit(self) -> None:  # noqa: N802  # NVML's names
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return "NVIDIA H200"

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.159.04"

    def nvmlDeviceGetMemoryInfo(self, handle: int, *, version: object) -> SimpleNamespace:  # noqa: N802
        assert version is self.nvmlMemory_v2
        used = sum(size or 0 for card, _, size in self.held if card == handle)
        return SimpleNamespace(total=140 * GIB, used=used, free=140 * GIB - used)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for card, pid, size in self.held if card == handle]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_each_process_of_a_group_is_told_by_title_and_card_to_the_mib(nvml: FakeNvml) -> None:
    nvml.held = [(0, os.getpid(), 3 * MIB + 1), (1, os.getpid(), None), (1, 1, MIB)]
    own = title(os.getpid())
    assert Cards().mib_by_title({os.getpid()}) == {f"{own} on GPU 0": 3, f"{own} on GPU 1": None}
    assert Cards().used_mib() == [3, 1]
    assert Cards().free_bytes(1) == 140 * GIB - MIB
    assert Cards().versions() == {"cards": "2 x NVIDIA H200", "driver": "580.159.04"}


def test_a_process_that_is_listed_for_a_moment_is_seen(nvml: FakeNvml) -> None:
    with Watch(Cards()) as seen:
        nvml.held = [(0, os.getpid(), 5 * MIB)]
        deadline = time.monotonic() + 5
        while os.getpid() not in seen.titles and time.monotonic() < deadline:
            time.sleep(0.02)
        nvml.held = []
    assert (seen.titles, seen.most_mib) == ({os.getpid(): title(os.getpid())}, {os.getpid(): 5})


def test_waiting_ends_when_only_the_others_are_left_or_the_time_is_over(nvml: FakeNvml) -> None:
    nvml.held = [(0, 7, MIB), (1, 8, MIB)]
    assert Cards().pids() == {7, 8}
    assert Cards().wait_only({7, 8, 9}) is True
    assert Cards().wait_only({7}, within_s=0.2) is False


def test_without_nvml_the_answers_are_empty_and_it_is_said_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    cards = Cards()
    assert cards.why_not is not None and "ModuleNotFoundError" in cards.why_not
    assert (len(cards), cards.processes(), cards.used_mib(), cards.versions()) == (0, [], [], {})


def test_a_process_that_is_gone_has_no_title() -> None:
    assert title(2**22 + 1) == ""  # above every pid that Linux gives
