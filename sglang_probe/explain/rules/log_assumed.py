"""The rule about what the user says of a log: a value that contradicts the log's own, a name that nothing has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from sglang_probe.explain.model import Finding
from sglang_probe.explain.poorer import tensor_of
from sglang_probe.explain.subject import Subject
from sglang_probe.figures import listed, number
from sglang_probe.timeline.model import Kv

UNDERSTOOD: Final = frozenset(
    {
        "attn_cp_size", "bytes_per_token", "chunked_prefill_size", "context_length", "cuda_graph_bs",
        "cuda_graph_config", "cuda_graph_max_bs", "cuda_graph_max_bs_decode", "device", "disable_cuda_graph",
        "disable_mla", "disable_radix_cache", "dp_size", "dtype", "enable_dp_attention", "enable_mla",
        "enable_piecewise_cuda_graph", "ep_size", "kv_cache_dtype", "max_prefill_tokens", "max_running_requests",
        "max_total_tokens", "mem_fraction_static", "model_path", "moe_dp_size", "nnodes", "node_rank", "page_size",
        "piecewise_cuda_graph_tokens", "pp_size", "quantization", "sglang_version", "speculative_algorithm",
        "swa_full_tokens_ratio", "tp_size",
    }
)  # fmt: skip
"""Names that are known without a log's own arguments: those that decide memory."""
SAME: Final = 1e-9


class Contradiction(NamedTuple):
    """A value that the user gives, and what the log says instead."""

    name: str
    assumed: Any
    said: Any
    where: str


def assumed(subject: Subject) -> Iterator[Finding]:
    """What the user says that a log does not hold, where the log holds another, or nothing has that name."""
    given = subject.run.provenance.given if subject.is_log else None
    if not given:
        return
    found = list(_contradictions(subject, given))
    if found:
        shown = "; ".join(f"{one.name} is {one.said}, {one.where}, and you say {one.assumed}" for one in found)
        yield Finding(
            rule="assumed",
            severity="warning",
            says=f"The log contradicts what you assume: {shown}. The log's own word counts.",
            numbers={one.name: {"assumed": one.assumed, "log": one.said} for one in found},
            confidence="certain",
        )
    known = UNDERSTOOD | (subject.run.provenance.effective or {}).keys()
    strange = [name for name in given if name not in known]
    if strange:
        sure = subject.run.provenance.effective is not None
        yield Finding(
            rule="assumed",
            severity="info",
            says=f"{listed(strange, 4)} {'has' if len(strange) == 1 else 'have'} no effect:"
            f" {'the arguments of this SGLang have no such name' if sure else 'no command here knows such a name'}."
            f"{_meant(strange, known)}",
            numbers={"names": strange},
            confidence="certain",
        )


def _meant(strange: list[str], known: frozenset[str]) -> str:
    close = [match for name in strange for match in get_close_matches(name, known, 1, 0.7)]
    return f" Did you mean {listed(close, 4)}?" if close else ""


def _contradictions(subject: Subject, given: Mapping[str, Any]) -> Iterator[Contradiction]:
    effective, version = subject.run.provenance.effective or {}, subject.run.provenance.versions.get("sglang")
    for name, value in given.items():
        said = effective.get(name)
        if name == "sglang_version" and isinstance(version, str) and version != value:
            yield Contradiction(name, value, version, "as the log prints it")
        elif said is not None and not _same(said, value):
            yield Contradiction(name, value, said, "by the log's server_args")
        elif said is None and name in effective and name == "max_total_tokens" and value is not None:
            yield Contradiction(name, value, "not given", "by the log's server_args")
    yield from _ranks(subject, given, effective)
    yield from _token(subject, given.get("bytes_per_token"))


def _same(said: Any, value: Any) -> bool:
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (said, value))
    if numbers:
        return abs(float(said) - float(value)) <= SAME
    return str(said).casefold() == str(value).casefold() or isinstance(said, list | dict)


def _ranks(subject: Subject, given: Mapping[str, Any], effective: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Ranks beyond the size that is assumed; fewer prove nothing, for a text may lack some."""
    size, most = given.get("tp_size"), max(map(tensor_of, subject.ranks), default=0)
    if isinstance(size, int) and "tp_size" not in effective and most >= size:
        yield Contradiction("tp_size", size, f"at least {most + 1}", f"for the log has lines of TP{most}")


def _token(subject: Subject, size: Any) -> Iterator[Contradiction]:
    printed: list[Kv] = [worker.kv for process in subject.ranks for worker in process.workers
                         if worker.worker == "target" and worker.kv and worker.kv.bytes_per_token]  # fmt: skip
    if not printed or not isinstance(size, int):
        return
    kv = printed[0]
    own, off = kv.bytes_per_token or 0, kv.bytes_per_token_precision or 0
    if abs(own - size) > off:
        yield Contradiction(
            "bytes_per_token", size, f"{number(own)} +- {number(off)}", "by the printed pool and its tokens"
        )
