"""A scenario is data: the cards, what each phase costs a rank, who else is on the cards, and where it goes wrong.

It is stored as `scenario.json` beside the ledger, so that every process of a fake server reads the same one.
Bytes are integers in bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

MIB = 1 << 20
GIB = 1 << 30
FILE_NAME = "scenario.json"

FaultKind = Literal["oom", "hang", "kill", "raise", "exit"]


@dataclass(frozen=True)
class Card:
    """One GPU. CUDA's total is a little less than NVML's: the driver keeps the rest."""

    name: str = "NVIDIA H20"
    nvml_total_bytes: int = 97871 * MIB
    nvml_reserved_bytes: int = 618 * MIB
    cuda_total_bytes: int = 97253 * MIB
    context_bytes: int = 520 * MIB


@dataclass(frozen=True)
class Tenant:
    """A process that is not of the run and holds memory on one card.

    `arrives_at` and `leaves_at` are phases (see `Fault.phase`): the first rank that enters one moves the tenant.
    """

    gpu: int
    pid: int
    bytes: int
    name: str = "python"
    arrives_at: str | None = None
    leaves_at: str | None = None


@dataclass(frozen=True)
class Model:
    """What decides the size of the KV cache. `kv_lora_rank` set means MLA; `mamba_layers` > 0 a hybrid model."""

    architecture: str = "FakeForCausalLM"
    layers: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    kv_lora_rank: int | None = None
    qk_rope_head_dim: int = 64
    sparse_attention: bool = False
    swa_layers: int = 0
    mamba_layers: int = 0
    mamba_cache_per_req_bytes: int = 0
    dtype: str = "bfloat16"
    context_len: int = 8192
    vocab_size: int = 128256
    hidden_size: int = 4096
    draft_layers: int = 1


@dataclass(frozen=True)
class Costs:
    """What a rank pays in each phase beyond what the code itself allocates.

    `*_torch_bytes` go through torch's caching allocator, the others lie outside it (NCCL, cuBLAS, the driver).
    """

    world_group_bytes: int = 90 * MIB
    communicator_bytes: int = 306 * MIB
    weights_torch_bytes: int = 4 * GIB
    weights_bytes: int = 16 * MIB
    draft_weights_torch_bytes: int = 512 * MIB
    draft_weights_bytes: int = 0
    attention_torch_bytes: int = 64 * MIB
    cublas_bytes: int = 32 * MIB
    decode_graph_torch_bytes: int = 192 * MIB
    decode_graph_bytes: int = 64 * MIB
    prefill_graph_torch_bytes: int = 256 * MIB
    prefill_graph_bytes: int = 64 * MIB
    draft_graph_torch_bytes: int = 32 * MIB


@dataclass(frozen=True)
class Fault:
    """What goes wrong, where, on which world ranks (none given: on all).

    Phases: `scheduler.init`, `dist.init`, `dist.communicator`, `allreduce.buffers`, `weights.load`,
    `draft.weights.load`, `kv.profile`, `kv.pool`, `attention.init`, `graph.capture`, `draft.graph.capture`, `ready`,
    and `failed`: a rank has raised and has not yet told the launcher, which then ends the others.
    """

    phase: str
    kind: FaultKind
    ranks: tuple[int, ...] = ()
    exit_code: int = 1

    def hits(self, phase: str, rank: int) -> bool:
        """Return whether this fault strikes `rank` as it enters `phase`."""
        return phase == self.phase and (not self.ranks or rank in self.ranks)


@dataclass(frozen=True)
class Scenario:
    """Everything a fake run needs to know.

    `rank_costs` overrides single costs of a world rank; `phase_seconds` makes a phase take time; `serve` False ends the
    server by itself once it is ready.
    """

    gpus: int = 1
    card: Card = field(default_factory=Card)
    model: Model = field(default_factory=Model)
    costs: Costs = field(default_factory=Costs)
    rank_costs: dict[int, dict[str, int]] = field(default_factory=dict)
    tenants: tuple[Tenant, ...] = ()
    faults: tuple[Fault, ...] = ()
    phase_seconds: dict[str, float] = field(default_factory=dict)
    nvlink: bool = True
    serve: bool = True
    driver_version: str = "570.133.20"

    def costs_of(self, rank: int) -> Costs:
        """Return the costs of world rank `rank`."""
        return replace(self.costs, **self.rank_costs.get(rank, {}))

    def save(self, directory: Path) -> None:
        """Write this scenario into `directory`, for the processes of the run."""
        (directory / FILE_NAME).write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")


def load_scenario(directory: Path) -> Scenario:
    """Read the scenario that `Scenario.save` wrote into `directory`."""
    return from_dict(json.loads((directory / FILE_NAME).read_text(encoding="utf-8")))


def from_dict(raw: dict[str, Any]) -> Scenario:
    """Build a scenario from JSON's types; keys left out keep their defaults.

    Raises ValueError with the name of a key that no scenario has.
    """
    known = dict(raw)
    parts: dict[str, Any] = {
        "card": Card(**_only(Card, known.pop("card", {}))),
        "model": Model(**_only(Model, known.pop("model", {}))),
        "costs": Costs(**_only(Costs, known.pop("costs", {}))),
        "rank_costs": {int(rank): costs for rank, costs in known.pop("rank_costs", {}).items()},
        "tenants": tuple(Tenant(**_only(Tenant, tenant)) for tenant in known.pop("tenants", [])),
        "faults": tuple(_fault(fault) for fault in known.pop("faults", [])),
    }
    return Scenario(**_only(Scenario, known), **parts)


def _fault(raw: dict[str, Any]) -> Fault:
    known = dict(_only(Fault, raw))
    return Fault(**{**known, "ranks": tuple(known.get("ranks", ()))})


def _only(kind: type, raw: dict[str, Any]) -> dict[str, Any]:
    names = {item.name for item in fields(kind)}
    for key in raw:
        if key not in names:
            raise ValueError(f"a scenario's {kind.__name__} has no {key!r}; it has {', '.join(sorted(names))}")
    return raw
