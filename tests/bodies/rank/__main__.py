"""One rank: real torch, a gloo world of two, the probe injected by PYTHONPATH. It takes cases from stdin."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import sys
import traceback
import types
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from sglang_probe.testing import core
from sglang_probe.testing.core.cuda import cuda


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    rank, world, platform = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["PLATFORM"]
    _fake_nvml()
    from tests.bodies.rank import device, symmetric

    device.install(platform)
    symmetric.install()
    cuda().use(rank)
    cuda().current = rank
    if world > 2:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    else:
        dist.init_process_group("gloo", init_method=os.environ["MEET"], rank=rank, world_size=world)
    for line in sys.stdin:
        out.write(json.dumps(_case(**json.loads(line)), default=str) + "\n")
        out.flush()


def _fake_nvml() -> None:
    sys.modules["fakegpu"] = core
    sys.modules["fakegpu.cuda"] = sys.modules["sglang_probe.testing.core.cuda"]
    where = Path(core.__file__).parents[1] / "site" / "common" / "pynvml.py"
    spec = importlib.util.spec_from_file_location("pynvml", where)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module).update(NVML_P2P_CAPS_INDEX_NVLINK=4, NVML_P2P_STATUS_OK=0, nvmlDeviceGetP2PStatus=lambda *_: 0)
    sys.modules["pynvml"] = module


def _case(case: str, package: str, words: dict[str, Any], mutate: int = 0) -> dict[str, Any]:
    from tests.bodies.rank import cases, device, loading, symmetric

    gc.collect()
    gc.freeze()  # the modules of every release so far need not be looked at again
    torch.cuda.empty_cache()
    loading.begin_release(Path(package))
    symmetric.multicast = True
    began = len(cuda().ledger.records())
    lines = len(_lines())
    problem, built = None, None
    try:
        _tell_agent()
        device.skew = mutate
        built = getattr(cases, case)(Path(package), **words)
    except Exception:  # noqa: BLE001  # the test is told, and decides
        problem = traceback.format_exc()
    finally:
        device.skew = 0
        loading.unpatch()
    answer = {
        "events": [json.loads(line) for line in _lines()[lines:]],
        "movements": [one._asdict() for one in cuda().ledger.records()[began:] if one.pid == os.getpid()],
        "replaced": loading.replaced(),
        "private_pools": sum(one["total_size"] for one in cuda().segments() if one["segment_pool_id"] != (0, 0)),  # type: ignore[misc]
        "file": getattr(sys.modules.get(type(built).__module__), "__file__", None),
        "problem": problem,
    }
    _let_go(built)
    return answer


def _tell_agent() -> None:
    """In a server the scheduler's hook says which device this rank uses; here there is none.

    A busy machine that runs these tests must not make the agent give up a source of readings for being slow.
    """
    from sglang_probe.agent import sources
    from sglang_probe.agent.core import agent

    sources.SLOW_SOURCE_NS = 1 << 62
    agent().identity.use_device("cuda", cuda().current)


def _lines() -> list[str]:
    from sglang_probe.agent import core as agent_core

    path = agent_core._agent.writer.path() if agent_core._agent is not None else None
    return Path(path).read_text().splitlines() if path and Path(path).exists() else []


def _let_go(built: Any) -> None:
    close = getattr(built, "close", None) or getattr(built, "cleanup", None)
    try:
        close() if callable(close) and not isinstance(built, types.ModuleType) else None
    except Exception:  # noqa: BLE001  # some releases cannot close what they built; the next case does not care
        traceback.print_exc()


main()
