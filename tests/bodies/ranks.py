"""The rank processes: the lanes' Python with torch, the probe injected, alive for the whole session."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import structlog
import wrapt

from lanes.build import build_lane, lanes_root
from sglang_probe.catalogue.wheels import wheel_of
from sglang_probe.testing import Card, FakeGpus, Scenario

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILDS_THE_BASE = "0.5.14"


@dataclass(frozen=True)
class Ask:
    """One ask for device memory, as the ledger saw it. `live` is False where it was given back in the same case."""

    how: str
    bytes: int
    live: bool = True


@dataclass
class Outcome:
    """What one rank's events say, and what the ledger saw meanwhile."""

    rank: int
    events: list[dict[str, Any]]
    asks: list[Ask]
    device_bytes: int
    replaced: dict[str, str]
    file: str | None
    private_pools: int
    problem: str | None

    def ends(self, role: str, of: str | None = None) -> list[dict[str, Any]]:
        """The events that end (or fail) spans of a role, those of one target's path where given."""
        return [
            event
            for event in self.events
            if event["role"] == role
            and event["kind"] in ("end", "error", "sample")
            and of in (None, event["attributes"]["target"].partition(":")[2])
        ]

    def outside(self) -> list[int]:
        """What was asked outside torch and is still held, smallest first."""
        return sorted(ask.bytes for ask in self.asks if ask.live and ask.how != "torch")

    def inside(self) -> list[int]:
        """What tensors took and still hold."""
        return sorted(ask.bytes for ask in self.asks if ask.live and ask.how == "torch")


@dataclass
class Ranks:
    """The processes of one world on one platform."""

    directory: Path
    world: int = 2
    platform: str = "cuda"
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    gpus: FakeGpus | None = None
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)

    def start(self) -> None:
        """Start them; a world above two is one process that is rank 0 of torch's fake backend."""
        card = Card(cuda_total_bytes=200 << 30, nvml_total_bytes=201 << 30)
        self.gpus = FakeGpus.create(self.directory / "gpus", Scenario(gpus=2, card=card))
        for rank in range(2 if self.world == 2 else 1):
            with (self.directory / f"rank{rank}.log").open("w") as log:
                self.processes.append(
                    subprocess.Popen(
                        [str(_python()), "-W", "ignore", "-m", "tests.bodies.rank"],
                        env=self._environment(rank),
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                    )
                )

    def _environment(self, rank: int) -> dict[str, str]:
        needed = self.directory / "needed"
        needed.mkdir(exist_ok=True)
        for module in (wrapt, structlog):
            link = needed / module.__name__
            if not link.exists():
                link.symlink_to(Path(str(module.__file__)).parent)
        assert self.gpus is not None
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SGLANG"))}
        return (
            kept
            | self.gpus.environment
            | {
                "PYTHONPATH": f"{ROOT}{os.pathsep}{needed}",
                "PYTHONDONTWRITEBYTECODE": "1",
                "SGLANG_PROBE_DIR": str(self.directory / "runs"),
                "CUDA_VISIBLE_DEVICES": "0,1",
                "RANK": str(rank),
                "WORLD_SIZE": str(self.world),
                "PLATFORM": self.platform,
                "MEET": f"file://{self.directory}/meet",
                "OMP_NUM_THREADS": "1",
            }
        )

    def run(self, case: str, version: str, /, *, mutate: int = 0, **words: Any) -> list[Outcome]:
        """Run one case of one release on every rank, once for all tests that look at it."""
        if not self.processes:
            self.start()
        package = unpacked(version, self.directory.parent)
        line = json.dumps({"case": case, "package": str(package), "words": words, "mutate": mutate})
        if line not in self.outcomes:
            self.outcomes[line] = self._ask(line)
        return self.outcomes[line]

    def _ask(self, line: str) -> list[Outcome]:
        for process in self.processes:
            _pipe(process.stdin).write(line + "\n")
            _pipe(process.stdin).flush()
        return [_outcome(rank, self._answer(rank)) for rank in range(len(self.processes))]

    def _answer(self, rank: int) -> dict[str, Any]:
        line = _pipe(self.processes[rank].stdout).readline()
        if not line:
            raise RuntimeError(f"rank {rank} is gone: {(self.directory / f'rank{rank}.log').read_text()[-3000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """End them."""
        for process in self.processes:
            _pipe(process.stdin).close()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _pipe(process.stdout).close()
        if self.gpus is not None:
            self.gpus.close()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _python() -> Path:
    base = lanes_root() / "base" / "bin" / "python"
    if not base.exists():
        build_lane(BUILDS_THE_BASE)
    return base


def unpacked(version: str, where: Path) -> Path:
    """Return the package `sglang` of a release's wheel, its Python files unpacked once a session."""
    target = where / "wheels" / version
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(wheel_of(version)) as archive, tempfile.TemporaryDirectory(dir=target.parent) as part:
            names = [name for name in archive.namelist() if _needed(name)]
            archive.extractall(part, names)
            Path(part, "sglang").rename(target)
    return target


NOT_UNPACKED = (
    "models/",
    "configs/",
    "multimodal/",
    "managers/",
    "entrypoints/",
    "constrained/",
    "function_call/",
    "lora/",
)
"""Of `sglang/srt/`: nothing of them is imported here."""


def _needed(name: str) -> bool:
    if name.endswith("distributed/custom_all_reduce.cuh"):
        return True
    parts = name.split("/")
    ours = len(parts) == 2 or parts[1] in ("srt", "jit_kernel", "kernels")
    return name.endswith(".py") and ours and not name.startswith(tuple(f"sglang/srt/{one}" for one in NOT_UNPACKED))


def _outcome(rank: int, answer: dict[str, Any]) -> Outcome:
    movements = answer["movements"]
    given_back = [one["label"] for one in movements if one["device_bytes"] < 0 or one["torch_bytes"] < 0]
    asks = []
    for one in movements:
        taken = {"raw": one["device_bytes"], "tensor": one["torch_bytes"]}.get(one["backing"], 0)
        if taken <= 0 or not one["label"].startswith("ask "):
            continue
        _, how, size = one["label"].split()
        live = one["label"] not in given_back
        if not live:
            given_back.remove(one["label"])
        asks.append(Ask(how, int(size), live))
    moved = sum(one["device_bytes"] for one in movements)
    rest = {name: answer[name] for name in ("replaced", "file", "private_pools", "problem")}
    return Outcome(rank, answer["events"], asks, moved, **rest)
