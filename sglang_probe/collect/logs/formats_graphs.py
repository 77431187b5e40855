"""Lines of graph capture and of the all-reduce that the graphs use.

Source: `model_runner`, `cuda_graph_setup`, `*_graph_runner`, the draft workers, `custom_all_reduce*`,
`quick_all_reduce`, `cuda_vmm_utils`, `parallel_state` of SGLang 0.2.0 to 0.5.23. A capture is called `cuda graph`,
`CUDA graph`, `cpu graph`, `npu graph` and so on by device; what stands before names whose it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sglang_probe.collect.logs.amount import NUMBER
from sglang_probe.collect.logs.format import AVAIL, READERS, SECONDS, USED, Format, Values, count, gb, line

_LIST: Final = re.compile(r"\b(?:bs|num_tokens)=\[([\d, ]{0,4000})\]")
_STEP_OF: Final = re.compile(r"\bstep=(\d{1,6})\b")
_STEP: Final = r"(?: \(step (?P<step__i>\d{1,6})\))?"


def graph_of(what: str) -> str:
    """Return which graph the words of a capture line name: draft, prefill, or decode (a verify counts as one).

    >>> graph_of("target verify CUDA graph"), graph_of("piecewise CUDA graph"), graph_of("draft prefill CUDA graph")
    ('decode', 'prefill', 'draft')
    """
    words = what.lower()
    if "draft" in words or "mtp" in words:
        return "draft"
    return "prefill" if "prefill" in words or "piecewise" in words or "breakable" in words else "decode"


def _begun(groups: Mapping[str, str | None], values: Values) -> Values:
    sizes = _LIST.search(groups["_rest"] or "")
    if sizes:
        values["sizes"] = [int(part) for part in sizes[1].split(",") if part.strip()]
    step = _STEP_OF.search(groups["_rest"] or "")
    if step:
        values["step"] = int(step[1])
    return values | {"graph": graph_of(values["what"])}


def _shown(groups: Mapping[str, str | None], values: Values) -> Values:
    words = groups["_words"] or ""
    graph = "prefill" if "num tokens" in words or "prefill" in words or "BCG" in words else "decode"
    return values | ({"graph": graph} if words else {})


def _disabled(_groups: Mapping[str, str | None], values: Values) -> Values:
    values["reason"] = str(values["reason"]).strip(" .")
    return values


_BAR: Final = (
    r"(?:[^\n]{0,400}[\r|%\]])?(?P<_words>(?:\[BCG\] )?Capturing(?: batches| num tokens| prefill shape)?)"
    rf" \((?:(?:bs|num_tokens)={count('size')} )?avail_mem={gb('avail')}\)[^\n]*"
)
_DONE: Final = (
    rf"(?:(?:,? ?step=(?P<_step>\d{{1,6}}))?,? ?(?:bs=\[[\d, ]*\],? ?)?(?:Time elapsed: |elapsed=){SECONDS} s)?"
    rf"(?:[.,] {USED})?(?:[.,] {AVAIL})?(?:[.,] mem usage={gb('_used')})?\.?"
)


def _done(groups: Mapping[str, str | None], values: Values) -> Values:
    """Between 0.4.3 and 0.4.7 the two figures stood the other way round."""
    if groups["_used__gib"] is not None:
        values["mem_usage"] = READERS["gib"](groups["_used__gib"])
    if groups["_step"] is not None:
        values["step"] = int(groups["_step"])
    return values | {"graph": graph_of(values["what"])}


GRAPHS: Final[tuple[Format, ...]] = (
    line("graph_begin", "Capture ",
         rf"Capture (?P<what>[^\n.:]{{1,80}}?) begin{_STEP}\."
         rf"(?P<_rest>(?: (?!avail mem=)[^\n]*?)?)(?:,? {AVAIL})?\s*$", _begun),
    line("graph_end", "Capture ", rf"Capture (?P<what>[^\n.:]{{1,80}}?) end{_STEP}\. ?{_DONE}\s*$", _done),
    line("graph_progress", "avail_mem=", _BAR, _shown),
)  # fmt: skip

ALLREDUCE: Final[tuple[Format, ...]] = (
    line("allreduce_registered", "cuda graph addresses",
         rf"Registering {count('addresses')} cuda graph addresses"),
    line("allreduce_registered", "cuda graph addresses",
         rf"Registered {count('addresses')} cuda graph addresses via [^\n]*"),
    line("allreduce_config", "All Reduce config",
         rf"All Reduce config: symmetric_memory = (?P<symmetric__mib>{NUMBER}) MB,"
         rf" local_buffer = (?P<local__mib>{NUMBER}) MB, multicast = (?P<multicast>\w+)(?:, pull = (?P<pull>\w+))?"),
    line("allreduce_disabled", " is disabled ",
         r"(?P<cls>Custom allreduce|Custom quick allreduce|CustomAllreduce|CustomAllReduceV2) is disabled"
         r" (?:because|due to|based on)(?P<reason>[^\n]*)", _disabled),
    line("allreduce_disabled", "Setup Custom",
         r"Setup (?P<cls>Custom(?: quick)? allreduce) failed with (?P<reason>.*?)"
         r"(?:\. To silence this warning[^\n]*|\s*$)", _disabled),
    line("allreduce_disabled", "only supported on ROCm MI300",
         r"(?P<cls>Custom quick allreduce) is (?P<reason>only supported on ROCm MI300 series)\."),
    line("allreduce_disabled", "SymmMemCommunicator",
         r"(?P<cls>(?:Torch)?SymmMemCommunicator): (?P<reason>[^\n]*?),? communicator is not available\.", _disabled),
)  # fmt: skip
