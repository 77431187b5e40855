"""Which processes initialised `torch.distributed` together: a world."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec

from sglang_probe.collect.processes import ProcessEvents
from sglang_probe.collect.records import NULL, Rank, Record, attributes_of, rank_of

T = TypeVar("T", int, str)

_TELLS = ("dist.init", "dist.communicator")
_LOOPBACK = ("127.", "localhost", "[::1]", "0.0.0.0")  # addresses where only processes of one machine can meet


class WorldKey(NamedTuple):
    """What the members of a world share."""

    method: str
    """`distributed_init_method`, e.g. tcp://10.0.0.1:5000."""
    size: int

    @property
    def is_local(self) -> bool:
        """True where only processes of one machine can meet: a loopback address, a file, an environment."""
        return not self.method.startswith("tcp://") or self.method[len("tcp://") :].startswith(_LOOPBACK)


class Membership(msgspec.Struct, frozen=True):
    """A process's place in a world, and when its `dist.init` began and ended (mono_ns of its boot)."""

    key: WorldKey
    rank: int | None
    began: int | None = None
    ended: int | None = None


def membership(process: ProcessEvents, rank: Rank | None) -> Membership | None:
    """Return the world that a process says it belongs to; None when it never said. `rank` is its rank, as known."""
    method: str | None = None
    size = number = began = ended = None
    for record in process.records:
        if record.role not in _TELLS:
            continue
        if record.role == "dist.init":
            began = record.mono_ns if began is None and record.kind == "begin" else began
            ended = record.mono_ns if ended is None and record.kind == "end" else ended
        if method is None or size is None or number is None:
            said = attributes_of(record)
            method = _typed(said, "distributed_init_method", str) if method is None else method
            size = _typed(said, "world_size", int) if size is None else size
            number = _typed(said, "world_rank", int) if number is None else number
    if rank is not None and rank.world is not None:
        size = rank.world.size if size is None else size
        number = rank.world.rank if number is None else number
    return None if method is None or size is None else Membership(WorldKey(method, size), number, began, ended)


def last_rank(records: list[Record]) -> Rank | None:
    """Return a process's rank: what it said last, completed by what it said before."""
    known: Rank | None = None
    last = NULL
    for record in reversed(records):
        raw = record.rank
        if raw != last and raw and raw != NULL:  # the same in nearly every event
            known = _completed(known, rank_of(raw))
            last = raw
    return known


def _completed(known: Rank | None, earlier: Rank | None) -> Rank | None:
    if known is None or earlier is None:
        return known or earlier
    missing = {
        name: value
        for name in Rank.__struct_fields__
        if getattr(known, name) is None and (value := getattr(earlier, name)) is not None
    }
    return msgspec.structs.replace(known, **missing) if missing else known


def _typed(said: dict[str, Any], key: str, kind: type[T]) -> T | None:
    value = said.get(key)
    return value if type(value) is kind else None
