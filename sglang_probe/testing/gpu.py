"""FakeGpu: cards with a ledger of their own, which answer in place of torch.cuda and NVML.

    with FakeGpus.create(directory, Scenario(gpus=2)) as gpus:
        gpus[0].add_process(pid=114880, size=3 * GIB)   # a foreign process
        assert gpus[0].free == gpus[0].total - 3 * GIB

Every process that is started with `gpus.environment` and has a fake site on its path shares these cards. What each of
them took is in `records`, and what it asked is in `calls`, so that a test can compare the two with what a probe said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from sglang_probe.testing.core.calls import Call, read_calls
from sglang_probe.testing.core.cuda import uuid_of
from sglang_probe.testing.core.ledger import ENVIRONMENT, Ledger, OutOfDeviceMemory, Record
from sglang_probe.testing.core.scenario import Card, Scenario

__all__ = ["FakeGpu", "FakeGpus", "OutOfDeviceMemory", "Taken"]


@dataclass(frozen=True)
class Taken:
    """What one label of one process holds: bytes of the card, and bytes of them in tensors."""

    device_bytes: int
    torch_bytes: int


class FakeGpu:
    """One card."""

    def __init__(self, ledger: Ledger, index: int) -> None:
        self._ledger, self.index = ledger, index

    @property
    def uuid(self) -> str:
        """NVML's spelling, `GPU-...`."""
        return f"GPU-{uuid_of(self.index)}"

    @property
    def card(self) -> Card:
        return self._ledger.card

    @property
    def total(self) -> int:
        """Bytes of the card as CUDA counts them."""
        return self.card.cuda_total_bytes

    @property
    def free(self) -> int:
        """Bytes that CUDA calls free now; a process that has died holds none."""
        return self._ledger.free(self.index)

    @property
    def processes(self) -> dict[int, int]:
        """Bytes by pid, of living and of foreign processes."""
        return self._ledger.held(self.index)

    def add_process(self, pid: int, size: int, name: str = "python") -> None:
        """Let a foreign process hold `size` more bytes. Raises OutOfDeviceMemory where the card has less."""
        self._ledger.take(self.index, size, "foreign", name, foreign_pid=pid)

    def remove_process(self, pid: int) -> None:
        """Let a foreign process end. Raises KeyError where it holds nothing."""
        self._ledger.take(self.index, -self.processes[pid], "foreign", "end", foreign_pid=pid)


class FakeGpus:
    """The cards of one machine, kept in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ledger = Ledger(directory)

    @classmethod
    def create(cls, directory: Path | str, scenario: Scenario | None = None) -> FakeGpus:
        """Make the cards of `scenario` (one idle card where none is given) in `directory`.

        Raises FileExistsError where there are some already: `FakeGpus(directory)` opens those.
        """
        path = Path(directory).absolute()
        Ledger.create(path, scenario or Scenario()).close()
        return cls(path)

    @property
    def scenario(self) -> Scenario:
        return self._ledger.scenario

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to have these cards."""
        return {ENVIRONMENT: str(self.directory)}

    def __len__(self) -> int:
        return self.scenario.gpus

    def __getitem__(self, index: int) -> FakeGpu:
        if not 0 <= index < len(self):
            raise IndexError(f"there are {len(self)} fake GPUs, numbered from 0; {index} is none of them")
        return FakeGpu(self._ledger, index)

    def __iter__(self) -> Iterator[FakeGpu]:
        return (self[index] for index in range(len(self)))

    def records(self, *, gpu: int | None = None, pid: int | None = None) -> list[Record]:
        """Return every movement so far, oldest first, of one card or one process where given."""
        return [
            record for record in self._ledger.records() if gpu in (None, record.gpu) and pid in (None, record.pid)
        ]

    def taken(self, *, gpu: int, pid: int) -> dict[str, Taken]:
        """Return what each label of a process took of a card, net, whether the process lives or not."""
        return sums(self.records(gpu=gpu, pid=pid))

    def calls(self, *, name: str | None = None, caller: str | None = None) -> list[Call]:
        """Return what all processes asked, oldest first: those of `name`, by modules named `caller`...."""
        return [
            call
            for call in read_calls(self.directory)
            if name in (None, call.name) and (caller is None or call.caller.startswith(caller))
        ]

    def close(self) -> None:
        self._ledger.close()

    def __enter__(self) -> FakeGpus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def sums(records: Iterable[Record]) -> dict[str, Taken]:
    """Return the net bytes of each label."""
    by_label: dict[str, Taken] = {}
    for record in records:
        before = by_label.get(record.label, Taken(0, 0))
        by_label[record.label] = Taken(
            before.device_bytes + record.device_bytes, before.torch_bytes + record.torch_bytes
        )
    return by_label
