"""Lets ranks start, fail or be killed: whole launches made of built processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sglang_probe.events import names
from sglang_probe.events.envelope import RANK_KEYS
from tests.collect.building import GIB, Host, Raised, Writer


def rank_of(world: int, size: int, **parts: tuple[int, int]) -> dict[str, Any]:
    """Return the envelope's rank; tp fills the world unless other parts are given."""
    parts = parts or {"tp": (world, size)}
    known = {key: {"rank": parts[key][0], "size": parts[key][1]} if key in parts else None for key in RANK_KEYS}
    return {**known, "world": {"rank": world, "size": size}, "node": 0}


@dataclass
class Shape:
    """What a rank goes through. All bytes."""

    fraction: float = 0.8
    context: int = GIB // 2
    communicator: int = GIB // 2
    allreduce: int = GIB // 32
    weights: int = 20 * GIB
    bytes_per_token: int = 1 << 17
    max_total_tokens: int | None = None
    unit: str = "bytes"
    fail_in: str | None = None
    """Role in which an exception is raised."""
    stop_in: str | None = None
    """Role that begins and never ends: the process is killed there."""
    catches: bool = False
    """Whether its custom all-reduce raises inside SGLang's own `try`, and the start goes on."""


class _Killed(Exception):
    """The process ends here without another word."""


def rank(writer: Writer, shape: Shape, method: str = "tcp://127.0.0.1:29500") -> Writer:
    """Let a rank start as far as its shape lets it."""
    writer.role = "scheduler"
    try:
        with writer.step("scheduler.init", gpu_id=0) as said:
            writer.worker = "target"
            if shape.catches:
                _caught_error(writer)
            pre_load = _distributed(writer, shape, method)
            with _step(writer, shape, "weights.load", shape.weights, shape.weights, model_class="Llama"):
                pass
            said["max_total_num_tokens"] = _pools(writer, shape, pre_load)
            with _step(writer, shape, "attention.init", backend="Triton", workspace_bytes=None):
                pass
            with _step(writer, shape, "graph.capture", cost=GIB // 16, graph="decode", captured=True, sizes=[1, 2]):
                pass
            writer.worker = None
    except (_Killed, Raised):
        pass
    return writer


def _caught_error(writer: Writer) -> None:
    with suppress(Raised), writer.step("allreduce.buffers"):
        raise Raised("builtins.OSError", "no peer access")


@contextmanager
def _step(
    writer: Writer, shape: Shape, role: str, cost: int = 0, torch: int = 0, **attributes: Any
) -> Iterator[dict[str, Any]]:
    if shape.stop_in == role:
        writer.begin(role)
        raise _Killed
    with writer.step(role, cost, torch=torch, **attributes) as said:
        yield said
        if shape.fail_in == role:
            raise Raised("builtins.RuntimeError", f"no luck in {role}")


def _distributed(writer: Writer, shape: Shape, method: str) -> int:
    world = (writer.rank or {}).get("world") or {"rank": 0, "size": 1}
    said: dict[str, Any] = {"distributed_init_method": method, "world_size": world["size"]}
    with _step(writer, shape, "dist.init", **said) as end:
        with writer.step(
            "dist.communicator", cost=shape.communicator, communicator="ProcessGroup", world_rank=world["rank"], **said
        ):
            pass
        buffers: dict[str, Any] = {"class": "CustomAllreduce"}
        with _step(writer, shape, "allreduce.buffers", cost=shape.allreduce, **buffers):
            pass
        end["pre_load_bytes"] = writer.free
    return int(end["pre_load_bytes"] or 0)


def _pools(writer: Writer, shape: Shape, pre_load: int) -> int:
    with _step(writer, shape, "kv.pool", pool="all") as end:
        with _step(writer, shape, "kv.profile") as said:
            said.update(budget(pre_load, writer.free or 0, shape))
        allowed = said["rest_bytes"] // shape.bytes_per_token
        tokens = allowed if shape.max_total_tokens is None else min(allowed, shape.max_total_tokens)
        request: dict[str, Any] = {"pool": "request", "pool_class": "ReqToTokenPool", "bytes": GIB // 64}
        with writer.step("kv.pool", cost=GIB // 64, **request):
            pass
        size = max(tokens, 0) * shape.bytes_per_token
        writer.free = None if writer.free is None else writer.free - size
        writer.sample("kv.pool", pool="MHA", pool_class="MHATokenToKVPool", tokens=tokens, bytes=size)
        end.update(
            max_total_num_tokens=tokens,
            profiled_tokens=allowed,
            max_total_tokens_given=shape.max_total_tokens,
            bytes_per_token=shape.bytes_per_token,
            page_size=1,
        )
        if tokens <= 0:
            raise Raised("builtins.RuntimeError", "Not enough memory. Please try to increase --mem-fraction-static.")
    return int(tokens)


def budget(pre_load: int, available: int, shape: Shape) -> dict[str, Any]:
    """Return the terms of `kv.profile`."""
    slack = round(pre_load * (1 - shape.fraction))
    rest = available - slack
    return {
        "available_bytes": available,
        "available_local_bytes": available,
        "pre_load_bytes": pre_load,
        "mem_fraction_static": shape.fraction,
        "static_budget_bytes": round(pre_load * shape.fraction),
        "slack_bytes": slack,
        "deductions": {},
        "rest_bytes": rest,
        "bytes_per_token": shape.bytes_per_token,
        "result": rest if shape.unit == "bytes" else rest // shape.bytes_per_token,
        "result_unit": shape.unit,
        "minimum_viable_fraction": 1 - available / pre_load,
        "minimum_viable_fraction_reason": None,
        "verified": True,
        "verified_reason": None,
    }


def launch(
    shapes: Sequence[Shape],
    host: Host | None = None,
    *,
    run_id: str = "20261129T184500Z-3fa9c1",
    first_pid: int = 4200,
    method: str = "tcp://127.0.0.1:29500",
) -> list[Writer]:
    """Return a launcher and one rank per shape, as one server on one host."""
    host = host or Host()
    launcher = Writer(host, first_pid, run_id, start_ticks=host.ticks, role="launcher")
    launcher.start()
    given = {"--tp": str(len(shapes)), "--mem-fraction-static": str(shapes[0].fraction)}
    launcher.emit(names.SERVER_ARGS, attributes={"given": given, "effective": None})
    launcher.target("scheduler.init")
    ranks = [
        Writer(replace(host), first_pid + 10 + index, run_id, start_ticks=host.ticks + 1 + index, parent=first_pid)
        for index in range(len(shapes))
    ]  # each with a clock of its own: they run at the same time
    for index, (writer, shape) in enumerate(zip(ranks, shapes, strict=True)):
        writer.start()
        for role in names.ROLES:
            writer.target(role)
        writer.rank = rank_of(index, len(shapes))
        writer.device = {"index": index, "uuid": f"GPU-{index}", "name": "Fake", "kind": "cuda"}
        writer.free = None if writer.free is None else writer.free - shape.context
        rank(writer, shape, method)
    host.now = max(writer.host.now for writer in ranks)
    return [launcher, *ranks]


def write(directory: Path, writers: Sequence[Writer]) -> Path:
    """Write a run directory (inside the directory of runs) and return it."""
    run = directory / writers[0].run_id
    run.mkdir(parents=True, exist_ok=True)
    for writer in writers:
        (run / writer.file_name).write_bytes(b"".join(writer.lines()))
    return run
