"""What a plan leans on: what is not measured, what was borrowed, then each rule that was used, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sglang_probe.explain.plan.facts import Facts
from sglang_probe.explain.plan.frame import turned_off
from sglang_probe.explain.plan.inputs import FLAGS, Inputs
from sglang_probe.explain.plan.model import Number
from sglang_probe.explain.plan.names import name_of
from sglang_probe.explain.plan.numbers import ROWS
from sglang_probe.explain.plan.wishes import Resolved
from sglang_probe.explain.scaling import RULES
from sglang_probe.figures import gib, listed

NOT_SAID: Final = frozenset({"formula", "sum", "solved", "at_once"})
"""Rules that the formula and the table show by themselves."""
NAMED: Final = frozenset({"as_measured", "like", "share", "activations"})
"""Rules whose sentence names the numbers that it is of."""
SERVING: Final = (
    "what serving takes was not measured at start-up: what is free after the start has to hold it, and is no measure of"
    " it"
)


def assumptions(facts: Facts, resolved: Resolved, numbers: Sequence[Number]) -> Iterator[str]:
    """Return what the plan leans on."""
    inputs = resolved.frame.inputs
    yield SERVING
    yield from _of_run(facts)
    yield from _of_inputs(facts, resolved)
    used = dict.fromkeys(one.rule for one in numbers if one.rule is not None and one.rule not in NOT_SAID)
    if inputs.tp is not None and inputs.quantization is not None:
        used["weights_tp"] = None
    for rule in used:
        if rule is not None:
            whose = ", ".join(name_of(one.name) for one in numbers if one.rule == rule)
            yield f"{RULES[rule].title}: {RULES[rule].says}{f' ({whose})' if rule in NAMED else ''}"


def _of_run(facts: Facts) -> Iterator[str]:
    if facts.on_cpu:
        yield "the device is a CPU: its memory is the host's, and what its phases cost is noise of the host's"
    if facts.source.source == "log":
        yield (
            f"{facts.source.run_id} is a log: what communication took, who else was on the cards, and what the request"
            " pool and attention took by themselves are not in it"
        )
    if facts.tenants.gone:
        yield (
            "another process that was on a card is gone since: what it held while the budget was made is in this run's"
            " numbers still (--without-tenants gives it back)"
        )
    if facts.source.ranks < facts.world:
        seen = f"{facts.source.ranks} of {facts.world:,} ranks"
        yield f"the budget of {seen} was seen; SGLang's minimum counts them all"
    if facts.verified is False:
        yield "the probe could not reproduce SGLang's own result from this run's terms: the plan may be off as much"
    if facts.like is not None and facts.borrowed:
        yield from _borrowed(facts, facts.like.run_id)
    if facts.terms.floor is not None:
        yield "SGLang's floor on the slack is taken as in this run"


def _borrowed(facts: Facts, run_id: str) -> Iterator[str]:
    """Say what another run lent, and that it was moved to this run's own settings."""
    names = {row.field: name_of(row.name) for row in ROWS}
    parts = []
    for field, rule in facts.borrowed.items():
        what = names.get(field, field)
        if field == "graphs" and rule == "graphs" and facts.after.sizes:
            sizes, took = facts.after.sizes, gib(facts.after.graphs_bytes)
            what = f"graphs, scaled to the {len(sizes)} batch sizes up to {max(sizes)} ({took} GiB)"
        parts.append(what)
    yield (
        f"what this run never came to is taken from {run_id} (--like), scaled to this run's own settings where there is"
        f" a rule: {', '.join(parts)}"
    )


def _of_inputs(facts: Facts, resolved: Resolved) -> Iterator[str]:
    inputs = resolved.frame.inputs
    if facts.assumed_token is not None and inputs.token_bytes is None:
        yield f"a token takes {facts.assumed_token}; --token-bytes N says it, if it is another"
    if inputs.tenants is not None:
        yield "others' memory is NVML's figure for them, which is some MiB a process less than what the device lost"
        if facts.is_bound:
            unknown = listed(sorted(rank for rank, own in facts.locals.items() if not own.is_known), 4)
            yield (
                f"what was free on {unknown} itself is not recorded, so SGLang's minimum stands for it: what comes back"
                " of others' memory is a bound, the least that it can be"
            )
    beside = (facts.weights or 0) - (facts.weights_torch or facts.weights or 0)
    if inputs.quantization is not None and beside > 0:
        yield f"--quantization: of what torch holds of the weights; {gib(beside)} GiB that their load took beside stay"
    if inputs.custom_all_reduce is True and facts.custom_all_reduce_bytes is None:
        yield "the custom all-reduce's cost was not measured in this run: the plan is without it, so a little high"
    lost = turned_off(facts, inputs) and (facts.custom_all_reduce_bytes is None or facts.communicators_bytes is None)
    if lost and facts.source.source == "log":
        yield "what communication would give back is not known: the plan is without it, so low"
    if facts.tp == 1 and inputs.tp is not None:
        yield "one rank has no communicator and no custom all-reduce to measure: the plan is without them, so high"
    if inputs.draft is True:
        yield "a draft model was not measured in this run: the plan is without it, so high"
    if _fraction_kept(facts, resolved, inputs):
        yield (
            "no fraction was given, and SGLang's default hangs on what was changed; no form of its rule that is known"
            " gives this run's own fraction, so the run's is kept"
        )
    if inputs.context_length is not None and facts.context is None:
        yield "the run's own context length was not recorded: the request pool is taken as it was"


def _fraction_kept(facts: Facts, resolved: Resolved, inputs: Inputs) -> bool:
    moves = (inputs.tp, inputs.cuda_graph_max_bs, inputs.chunked_prefill_size)
    unknown = not facts.fraction_given and facts.variant is None
    return unknown and resolved.rule is None and inputs.mem_fraction_static is None and any(moves)


def repeated(facts: Facts, asked: Inputs, kept: Inputs) -> Iterator[str]:
    """Name the flags that change nothing."""
    for name, flag in FLAGS.items():
        if getattr(asked, name) is not None and getattr(kept, name) is None:
            if name == "tenants":
                gone = " any more" if facts.tenants.gone else ""
                yield f"{flag} changes nothing: nobody else is seen on this run's cards{gone}"
            else:
                yield f"{flag} changes nothing: the run has it so"
