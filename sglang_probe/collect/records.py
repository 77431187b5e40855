"""One line of a probe file as a record: what orders and groups it is decoded, what is heavy waits as bytes.

Field names and units are those of `sglang_probe.events.envelope`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

T = TypeVar("T")

BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding bytes of unknown origin can raise. A million brackets are a RecursionError."""


Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""The whole numbers of the contract. JSON may hold one of a thousand digits, which no float and no counter takes."""


class Proc(msgspec.Struct, frozen=True, gc=False):
    """`proc` of the envelope."""

    start_ticks: Int64 | None = None
    parent: Int64 | None = None
    role: str = "other"


class Span(msgspec.Struct, frozen=True, gc=False):
    """`span` of the envelope."""

    id: str
    parent: str | None = None


class RankPart(msgspec.Struct, frozen=True, gc=False):
    """Position in one dimension of parallelism."""

    rank: Int64
    size: Int64


class Rank(msgspec.Struct, frozen=True, gc=False):
    """Where a process stands among the ranks; None until known or where the dimension does not exist."""

    dp: RankPart | None = None
    pp: RankPart | None = None
    attn_cp: RankPart | None = None
    moe_dp: RankPart | None = None
    tp: RankPart | None = None
    ep: RankPart | None = None
    world: RankPart | None = None
    node: Int64 | None = None


class NvmlProcess(msgspec.Struct, frozen=True, gc=False):
    """One process that NVML lists on a device, as read."""

    pid: Int64
    bytes: Int64 | None = None
    start_ticks: Int64 | None = None
    name: str | None = None
    user: str | None = None
    parent: Int64 | None = None


class LeftOut(msgspec.Struct, frozen=True, gc=False):
    """What a process list that was too long for a line leaves out."""

    count: Int64
    bytes: Int64


class Reading(msgspec.Struct, frozen=True, gc=False):
    """Memory at one moment."""

    device_total_bytes: Int64 | None = None
    device_free_bytes: Int64 | None = None
    torch_allocated_bytes: Int64 | None = None
    torch_reserved_bytes: Int64 | None = None
    torch_peak_allocated_bytes: Int64 | None = None
    torch_peak_reserved_bytes: Int64 | None = None
    nvml_total_bytes: Int64 | None = None
    nvml_reserved_bytes: Int64 | None = None
    nvml_used_bytes: Int64 | None = None
    nvml_free_bytes: Int64 | None = None
    nvml_processes: tuple[NvmlProcess, ...] | None = None
    host_rss_bytes: Int64 | None = None
    host_available_bytes: Int64 | None = None
    torch_inactive_split_bytes: Int64 | None = None
    torch_pinned_bytes: Int64 | None = None
    host_shm_used_bytes: Int64 | None = None
    nvml_processes_left_out: LeftOut | None = None
    amdsmi_total_bytes: Int64 | None = None
    amdsmi_used_bytes: Int64 | None = None
    amdsmi_processes: tuple[NvmlProcess, ...] | None = None
    amdsmi_processes_left_out: LeftOut | None = None


class Record(msgspec.Struct, gc=False):
    """One event. A `Raw` field is a view into the bytes that were read: a `Part` decodes it.

    Events of an unknown name are kept, keys of a newer minor version ignored; so is `delta`, which is after - before.
    """

    schema: str
    ts: str
    mono_ns: Int64
    event: str
    run_id: str
    seq: Int64
    host: str
    pid: Int64
    proc: Proc | None = None
    role: str | None = None
    kind: str | None = None
    boot_id: str | None = None
    rank: msgspec.Raw = msgspec.Raw()
    worker: str | None = None
    draft_index: Int64 | None = None
    device: msgspec.Raw = msgspec.Raw()
    span: Span | None = None
    before: msgspec.Raw = msgspec.Raw()
    after: msgspec.Raw = msgspec.Raw()
    duration_ns: Int64 | None = None
    exception: msgspec.Raw = msgspec.Raw()
    attributes: msgspec.Raw = msgspec.Raw()
    degraded: msgspec.Raw = msgspec.Raw()
    part: Int64 | None = None
    parts: Int64 | None = None


HEAVY = ("rank", "device", "before", "after", "exception", "attributes", "degraded")
"""The fields of a Record that wait as bytes."""


NULL = msgspec.Raw(b"null")
_NONE = (NULL, msgspec.Raw(b"[]"))  # most events have nothing degraded: not worth a decoder's call


class Part(Generic[T]):
    """Decodes one kind of heavy field."""

    def __init__(self, kind: type[T]) -> None:
        self._decode: Callable[[msgspec.Raw], T] = msgspec.json.Decoder(kind).decode

    def __call__(self, raw: msgspec.Raw) -> T | None:
        """Return the value; None where it is null, absent, an empty list, or not what the contract says."""
        if not raw or raw in _NONE:
            return None
        try:
            return self._decode(raw)
        except BROKEN:
            return None


reading_of = Part(Reading)
rank_of = Part(Rank)


def is_broken(raw: msgspec.Raw, value: object) -> bool:
    """Say whether `value` is None because the bytes could not be decoded."""
    return value is None and bool(raw) and raw not in _NONE


_DIGITS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_LONG_NUMBER: Final = b"0" * 19
"""With every digit as 0: stands in every whole number outside 64 bits, and in little else."""
_KEPT: Final = 1024
"""Attributes that are kept decoded, lest ranks that say the same cost the same again: those of some 40 ranks. They take
1 MB, or 50 where every rank's server arguments, the largest, are its own."""


def attributes_of(record: Record) -> dict[str, Any]:
    """Decode a record's attributes; empty where there are none. A number that 64 bits do not hold is None.

    Records that say the same share one object, which is not to be changed.
    """
    return _decoded(bytes(record.attributes))[0]


def counted_attributes(record: Record) -> tuple[dict[str, Any], int]:
    """Return what `attributes_of` does, and how many numbers in it are None because 64 bits do not hold them."""
    return _decoded(bytes(record.attributes))


@lru_cache(_KEPT)
def _decoded(raw: bytes) -> tuple[dict[str, Any], int]:
    if _LONG_NUMBER not in raw.translate(_DIGITS):
        with suppress(*BROKEN):
            return _decode_object(raw), 0
    return _bounded(raw)


_decode_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


def _bounded(raw: bytes) -> tuple[dict[str, Any], int]:
    """Decode an object with None for every number that 64 bits do not hold, and count those."""
    refused = 0

    def whole(digits: str) -> int | None:
        nonlocal refused
        if len(digits) <= 20 and -(1 << 63) <= int(digits) < 1 << 63:
            return int(digits)
        refused += 1
        return None

    def real(digits: str) -> float | None:
        nonlocal refused
        if math.isfinite(value := float(digits)):
            return value
        refused += 1
        return None

    try:
        said = json.loads(raw, parse_int=whole, parse_float=real)
    except (ValueError, RecursionError):
        return {}, refused
    return (said if isinstance(said, dict) else {}), refused
