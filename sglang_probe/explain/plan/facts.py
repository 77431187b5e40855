"""What a run says that a plan leans on: the terms of its tightest rank, what came after the budget, its settings."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final, NamedTuple

from sglang_probe.explain.feasible import Bound, highest_of
from sglang_probe.explain.formula import Terms, deducted, terms_of
from sglang_probe.explain.log_tokens import TokenSize, seat_token
from sglang_probe.explain.plan.after import After, after_of
from sglang_probe.explain.plan.model import CannotPlan, NoBudget, Source
from sglang_probe.explain.plan.ran_out import RanOut, ran_out_of
from sglang_probe.explain.plan.server import Server, is_latent, server_of
from sglang_probe.explain.plan.tenants import Own, Tenants, locals_of, tenants_of
from sglang_probe.explain.reserve import Knobs, Variant, variant_of
from sglang_probe.explain.scaling import EXTRA_WIDTH, MOST_SIZES, list_bytes, pool_bytes, request_slots
from sglang_probe.explain.set_aside import RuleOfThumb, rule_of_thumb
from sglang_probe.explain.subject import Seat, Subject
from sglang_probe.explain.told import MOST_RANKS, Told, decode_sizes, knobs_of, largest_of, positive, text
from sglang_probe.timeline.arithmetic import token_bytes
from sglang_probe.timeline.model import Process, Run, Worker
from sglang_probe.timeline.processes import is_cpu, world_size

LATENT: Final = ("MLA", "DSA", "NSA")
"""Kinds of pools that hold a latent cache, the same on every rank."""


class Facts(NamedTuple):
    """One run, as plans look at it. All bytes are of the tightest rank, but the terms, which are SGLang's minima."""

    source: Source
    server: Server
    world: int
    """How many ranks the run has, seen or not."""
    formula: str | None
    """In the words of its release."""
    terms: Terms
    """Without what scales with the rest (mamba of no given size)."""
    deductions: dict[str, int]
    """Those that stay, in SGLang's order."""
    mamba: int | None
    """What scales with the rest."""
    fraction_given: bool
    knobs: Knobs | None
    variant: Variant | None
    """The form of SGLang's default that gives the fraction in force."""
    tp: int
    dp: int
    speculative: bool
    aside: Bound | None
    """The highest fraction that leaves room for what comes after the pools, as `explain` has it."""
    thumb: RuleOfThumb | None
    """SGLang's own reserve for a server of these settings."""
    locals: dict[str, Own]
    """What was free on each rank itself."""
    tenants: Tenants
    custom_all_reduce: bool
    custom_all_reduce_bytes: int | None
    communicators_bytes: int | None
    weights: int | None
    weights_torch: int | None
    """What torch holds of them; None where it is not known, or more than their load cost."""
    draft_weights: int | None
    draft_weights_torch: int | None
    draft_first: bool
    """Whether the draft was loaded before the budget was computed."""
    has_draft: bool
    graphs_first: bool
    """Whether graphs were captured before the budget was computed."""
    token: int | None
    mean_token: bool
    """Whether it is only rest / tokens: the pools have no one size of a token."""
    assumed_token: str | None
    """Where it is from, if no pool is printed and it is that of the model that the run seems to serve."""
    own_token: int | None
    """Of the target's pool alone; the budget's own may count a draft's too."""
    tokens: int | None
    cap: int | None
    page: int
    page_known: bool
    """Whether the run says it, not only SGLang's default."""
    kv_dtype: str | None
    model_dtype: str | None
    quantization: str | None
    latent: bool | None
    """MLA: every rank has the whole of it; None: not known."""
    plain_pool: bool
    """Whether bytes of a token follow the element size alone."""
    max_bs: int | None
    sizes: tuple[int, ...]
    """Batch sizes of the decode graphs that SGLang resolved."""
    graphs_off: bool
    slots_replay: bool
    """Whether SGLang's rule gives the run's own number of requests, or there is none to compare it with."""
    chunk: int | None
    requests_given: int | None
    context: int | None
    context_given: int | None
    on_cpu: bool
    verified: bool | None
    """Whether the terms give SGLang's own result, by the probe."""
    after: After
    own: After
    """What this run measured itself: `after` may have parts of another run's."""
    ran_out: RanOut | None = None
    """The out-of-memory error that it failed with."""
    like: Source | None = None
    borrowed: dict[str, str] = {}  # noqa: RUF012 - never changed
    """Which numbers are that run's, and the rule by which each was moved to this run's settings."""

    @property
    def fraction(self) -> float:
        """In force."""
        return self.terms.fraction

    @property
    def own_terms(self) -> Terms:
        """With all that the run deducted."""
        return self.terms if self.mamba is None else with_mamba(self.terms, self.mamba)

    @property
    def halved(self) -> bool:
        """Whether the number of requests is at most half the tokens."""
        return self.terms.formula.startswith("bytes")

    @property
    def is_bound(self) -> bool:
        """Whether some rank's own memory is not known, so that what comes back is known only at the least."""
        return any(not own.is_known for own in self.locals.values())


def facts_of(run: Run) -> Facts:
    """Return what a run says.

    Raises:
        NoBudget: it never came to a budget.
        CannotPlan: it has no budget whose terms are known.
    """
    subject = Subject(run)
    seat = _seat(subject)
    terms = _terms(seat, run)
    target, process, told = seat.worker, seat.process, Told(run)
    draft = next((worker for worker in process.workers if worker.worker == "draft"), None)
    pool = _main_pool(target)
    stays, mamba = _deductions(seat, told)
    graphs_off = _graphs_off(told)
    after = _after(process, target, draft, graphs_off=graphs_off)
    context = told.count("context_length")
    knobs = knobs_of(subject, told, after.sizes)
    token = positive(token_bytes(target))
    tokens = None if target.kv is None else positive(target.kv.tokens)
    mean = _mean_token(terms, tokens) if token is None else None
    model = _model_token(subject, seat) if token is None and mean is None else None
    server = server_of(run, pool and pool.dtype)
    facts = Facts(
        source=_source(subject, seat),
        server=server,
        world=world_size(run),
        formula=seat.budget.formula,
        terms=terms._replace(deductions=tuple(deducted(stays))),
        deductions={name: stays[name] for name in sorted(stays, key=lambda name: name == "mamba")},
        mamba=mamba,
        fraction_given=seat.budget.mem_fraction_static_given is not None,
        knobs=knobs,
        variant=variant_of(knobs, terms.fraction) if knobs is not None else None,
        tp=told.count("tp_size", most=MOST_RANKS) or _tp(process),
        dp=(told.count("dp_size", most=MOST_RANKS) or 1) if told.effective.get("enable_dp_attention") is True else 1,
        speculative=text(told.effective.get("speculative_algorithm")) is not None,
        aside=highest_of(subject, seat),
        thumb=rule_of_thumb(subject),
        locals=locals_of(subject, terms),
        tenants=tenants_of(subject, seat.label),
        custom_all_reduce=told.effective.get("disable_custom_all_reduce") is not True,
        custom_all_reduce_bytes=None if process.pre_load is None else process.pre_load.custom_allreduce_bytes,
        communicators_bytes=None if process.pre_load is None else process.pre_load.communicators_bytes,
        weights=target.weights_bytes,
        weights_torch=_torch(target),
        draft_weights=None if draft is None else draft.weights_bytes,
        draft_weights_torch=None if draft is None else _torch(draft),
        draft_first=_before_budget(process, "weights.load", "draft"),
        has_draft=draft is not None,
        graphs_first=_before_budget(process, "graph.capture", target.worker),
        token=token or mean or (None if model is None else model.bytes),
        mean_token=mean is not None,
        assumed_token=None if model is None else model.says,
        own_token=after.token,
        tokens=tokens,
        cap=told.count("max_total_tokens") or (None if target.kv is None else target.kv.max_total_tokens_given),
        page=after.page or told.count("page_size", most=MOST_SIZES) or 1,
        page_known=bool(after.page or told.count("page_size", most=MOST_SIZES)),
        kv_dtype=(pool and pool.dtype and pool.dtype.removeprefix("torch.")) or _kv_dtype(told, process),
        model_dtype=_model_dtype(process),
        quantization=text(told.effective.get("quantization")),
        latent=is_latent(server.model_class) if pool is None else any(name in (pool.kind or "") for name in LATENT),
        plain_pool=pool is None or pool.pool_class in {None, "MHATokenToKVPool", "MLATokenToKVPool"},
        max_bs=largest_of(told, after.sizes),
        sizes=decode_sizes(told),
        graphs_off=graphs_off,
        slots_replay=True,
        chunk=told.count("chunked_prefill_size"),
        requests_given=told.count("max_running_requests"),
        context=context or _context(after, told) or printed_count(run, "context_len"),
        context_given=context,
        on_cpu=is_cpu(process),
        verified=seat.budget.verified,
        after=after,
        own=after,
        ran_out=ran_out_of(subject),
    )
    return _with_after(facts, run)


def _with_after(facts: Facts, run: Run) -> Facts:
    """Add what came after the budget and is neither pools nor graphs; of a log with the request pool and attention."""
    after = facts.after
    lumped = run.source == "log" and after.requests is None and after.attention is None
    slots = after.slots or printed_count(run, "max_running_requests")
    beside = _lump(facts) if lumped else _beside(facts)
    whole = after._replace(beside=beside, lumped=lumped, slots=slots)
    facts = facts._replace(after=whole, own=whole)
    return facts._replace(slots_replay=_slots_replay(facts))


def _torch(worker: Worker) -> int | None:
    cost, torch = worker.weights_bytes, worker.weights_torch_bytes
    return torch if cost is not None and torch is not None and 0 < torch <= cost else None


def _after(process: Process, target: Worker, draft: Worker | None, *, graphs_off: bool) -> After:
    after = after_of(process, target.kv, draft)
    return after._replace(graphs=()) if graphs_off and after.graphs is None else after


def _graphs_off(told: Told) -> bool:
    return told.effective.get("disable_cuda_graph") is True or "decode=PhaseConfig(backend='disabled'" in told.graphs


def _slots_replay(facts: Facts) -> bool:
    after, given = facts.after, facts.requests_given
    if after.slots is None or after.tokens is None:
        return True
    if facts.context is None and given is None:
        return False
    return after.slots == request_slots(after.tokens, facts.context or 1, given, facts.dp, halved=facts.halved)


def with_mamba(terms: Terms, mamba: int) -> Terms:
    """Return the terms with the recurrent state deducted, which SGLang does last."""
    return terms._replace(deductions=(*terms.deductions, mamba))


def _beside(facts: Facts) -> int | None:
    """What came after the budget and belongs to none of the rest."""
    after = facts.after
    taken = [after.kv, after.requests, after.attention, after.graphs_bytes, after.free]
    if facts.graphs_first:
        taken[3] = 0
    if facts.has_draft and not facts.draft_first:
        taken.append(facts.draft_weights)
    known = [one for one in taken if one is not None]
    return facts.terms.available - sum(known) if len(known) == len(taken) else None


def printed_count(run: Run, name: str) -> int | None:
    """Return what a rank's last line of its start says of the server, of a log: the first rank alone prints it."""
    roots = (step for process in run.processes for step in process.steps if step.parent is None)
    found = (positive(step.attributes.get(name)) for step in roots)
    return next((count for count in found if count is not None), None)


def _lump(facts: Facts) -> int | None:
    """What came after the budget and is neither pools, by their model, nor graphs: of a log, which prints no more."""
    after, token = facts.after, facts.token
    if after.free is None or not after.tokens or token is None or (after.graphs is None and not facts.graphs_first):
        return None
    pools = pool_bytes(after.tokens, facts.page, Fraction(token)) + list_bytes(after.tokens, facts.page)
    graphs = 0 if facts.graphs_first else after.graphs_bytes or 0
    late = facts.draft_weights if facts.has_draft and not facts.draft_first else 0
    return None if late is None else facts.terms.available - pools - graphs - late - after.free


def _seat(subject: Subject) -> Seat:
    if subject.tightest is None:
        raise NoBudget("it never came to a budget")
    return subject.tightest


def _terms(seat: Seat, run: Run) -> Terms:
    terms = terms_of(seat.budget)
    if terms is None or terms.pre_load <= 0 or not (math.isfinite(terms.fraction) and 0 < terms.fraction <= 1):
        budget = seat.budget
        if run.source == "log" and budget.mem_fraction_static is None and budget.pre_load_bytes is not None:
            raise CannotPlan(
                f"{run.run_id} does not name the fraction in force (it has no server_args), so its budget cannot be"
                " replayed; say it with --assume mem_fraction_static=F"
            )
        raise CannotPlan(
            f"the budget of {seat.label} lacks a term (pre-load memory, available memory or fraction), so it cannot be"
            " replayed; plan from a run whose budget `timeline` shows with its values"
        )
    return terms


def _source(subject: Subject, seat: Seat) -> Source:
    run = subject.run
    return Source(
        run_id=run.run_id,
        launch=run.launch,
        outcome=run.outcome,
        failed_phase=run.failed_phase,
        sglang_version=run.provenance.sglang_version,
        source=run.source,
        rank=seat.label,
        ranks=len(subject.seats),
    )


def _tp(process: Process) -> int:
    part = None if process.rank is None else process.rank.tp
    return part.size if part is not None and part.size > 0 else 1


def _before_budget(process: Process, phase: str, worker: str) -> bool:
    order = [(step.phase, step.worker) for step in process.steps]
    first = [index for index, one in enumerate(order) if one == (phase, worker)]
    profile = [index for index, (phase_, worker_) in enumerate(order) if phase_ == "kv.profile" and worker_ != "draft"]
    return bool(first and profile) and first[0] < profile[0]


def _deductions(seat: Seat, told: Told) -> tuple[dict[str, int], int | None]:
    """Split the deductions into those that stay and mamba's, where its size hangs on the rest."""
    stays = dict(seat.budget.deductions)
    given = (told.effective.get("max_mamba_cache_size") is not None) or (
        told.effective.get("disable_radix_cache") is True and told.count("max_running_requests") is not None
    )
    return (stays, None) if given else (stays, stays.pop("mamba", None))


def _mean_token(terms: Terms, tokens: int | None) -> int | None:
    return None if tokens is None else positive(terms.rest_bytes // tokens)


def _model_token(subject: Subject, seat: Seat) -> TokenSize | None:
    """Return what a token takes by the model that a log seems to be of, as `explain` has it."""
    return seat_token(subject, seat) if subject.is_log else None


def _main_pool(worker: Worker) -> Any:
    pools = () if worker.kv is None else worker.kv.pools
    return next((pool for pool in pools if pool.kind not in {"request", "mamba"}), None)


def _kv_dtype(told: Told, process: Process) -> str | None:
    asked = text(told.effective.get("kv_cache_dtype"))
    return _model_dtype(process) if asked in {None, "auto"} else asked


def _model_dtype(process: Process) -> str | None:
    loads = (step for step in process.steps if step.phase == "weights.load" and step.worker != "draft")
    found = (text(step.attributes.get("dtype")) for step in loads)
    return next((dtype.removeprefix("torch.") for dtype in found if dtype), None)


def _context(after: After, told: Told) -> int | None:
    """The model's own context length, from the width of a row of requests."""
    if after.shape is None:
        return None
    return positive(after.shape.width - EXTRA_WIDTH - (told.count("speculative_num_draft_tokens") or 0))
