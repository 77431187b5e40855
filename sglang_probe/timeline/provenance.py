"""What a run was made of, and in what its processes differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from sglang_probe.collect.records import Part, Record, attributes_of
from sglang_probe.events import names
from sglang_probe.events.variables import RUN_MAKER
from sglang_probe.timeline.model import Difference, Provenance, Target
from sglang_probe.timeline.values import flag, table, text

_COMPARED: Final = ("sglang_path", "sglang_commit", "sglang_dirty", "allocator_config", "prefix")
_PER_PROCESS: Final = frozenset({RUN_MAKER})
"""Variables that differ by nature."""


_target_of = Part(Target)


@lru_cache(1024)
def _target(said: bytes) -> Target:
    """Return what an event says of a target: every rank says the same of nearly all of them."""
    return _target_of(msgspec.Raw(said)) or Target(target=None)


class Account(msgspec.Struct):
    """What one process says about itself in its `sglang.probe.*` events."""

    name: str
    is_rank: bool
    start: dict[str, Any]
    """Of `sglang.probe.process.start`; empty where that line is lost."""
    given: dict[str, Any] | None
    effective: dict[str, Any] | None
    targets: tuple[Target, ...]


def account_of(records: Iterable[Record], name: str, *, is_rank: bool) -> Account:
    """Gather what a process says about itself; of a target told twice (applied, then displaced) the last counts.

    A displaced one that writes an event afterwards works all the same: another tool only wrapped it. It is applied.
    """
    account = Account(name, is_rank, {}, None, None, ())
    targets: dict[tuple[str | None, str | None], Target] = {}
    displaced: set[str | None] = set()
    for record in records:
        if record.event == names.TARGET:
            target = _target(bytes(record.attributes))
            before = targets.get((target.target, target.role))
            targets[target.target, target.role] = _told_again(before, target)
            if before is not None or target.state == "displaced":
                displaced = {target.role for target in targets.values() if target.state == "displaced"}
        elif displaced and record.role in displaced and record.kind in {"begin", "sample"}:  # called again
            _restore(targets, attributes_of(record).get("target"), record.role)
        elif record.event == names.PROCESS_START and not account.start:
            account.start = attributes_of(record)
        elif record.event == names.SERVER_ARGS:
            said = attributes_of(record)
            account.given = account.given or table(said, "given") or None
            account.effective = account.effective or table(said, "effective") or None
    account.targets = tuple(targets.values())
    return account


def _restore(targets: dict[tuple[str | None, str | None], Target], name: Any, role: str | None) -> None:
    """Take back that a target was displaced."""
    target = targets.get((name, role)) if isinstance(name, str) else None
    if target is not None and target.state == "displaced":
        targets[target.target, target.role] = msgspec.structs.replace(target, state="applied", reason=None)


def _told_again(before: Target | None, now: Target) -> Target:
    if before is None or now.fingerprint is not None:
        return now
    return msgspec.structs.replace(now, fingerprint=before.fingerprint)


def provenance_of(accounts: Sequence[Account]) -> Provenance:
    """Return what a run was made of: as its launcher says, else as the first process that knows."""
    lead = next((account for account in accounts if account.given is not None), None) or next(iter(accounts))
    starts = [lead.start, *(account.start for account in accounts)]
    versions = _first_table(starts, "versions")
    argv = next((value for start in starts if isinstance(value := start.get("argv"), list)), None)
    return Provenance(
        command=None if argv is None else tuple(str(word) for word in argv),
        sglang_version=text(versions, "sglang"),
        sglang_path=_first(starts, "sglang_path"),
        sglang_commit=_first(starts, "sglang_commit"),
        sglang_dirty=next((value for start in starts if (value := flag(start, "sglang_dirty")) is not None), None),
        versions=_known_versions(accounts, versions),
        distributions=_texts(_first_table(starts, "distributions")),
        environment=_texts(_first_table(starts, "environment")),
        allocator_config=_first(starts, "allocator_config"),
        given=lead.given,
        effective=next((account.effective for account in accounts if account.effective is not None), None),
        fingerprints=_fingerprints(accounts),
        differs=tuple(_differences(accounts)),
    )


def _first(starts: Sequence[dict[str, Any]], key: str) -> str | None:
    return next((value for start in starts if (value := text(start, key)) is not None), None)


def _first_table(starts: Sequence[dict[str, Any]], key: str) -> dict[str, Any]:
    return next((value for start in starts if (value := table(start, key))), {})


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: value for key, value in values.items() if isinstance(value, str)}


def _known_versions(accounts: Sequence[Account], versions: dict[str, Any]) -> dict[str, Any]:
    """Complete the launcher's versions: only a rank, which has initialised CUDA, may know the driver's and NCCL's."""
    known = dict(versions)
    for account in accounts:
        for name, value in table(account.start, "versions").items():
            if known.get(name) is None:
                known[name] = value
    return known


def _fingerprints(accounts: Sequence[Account]) -> dict[str, str]:
    found: dict[str, str] = {}
    for account in accounts:
        for target in account.targets:
            if target.target is not None and target.fingerprint is not None:
                found.setdefault(target.target, target.fingerprint)
    return dict(sorted(found.items()))


def _differences(accounts: Sequence[Account]) -> Iterable[Difference]:
    """Yield the facts that are not the same in all processes. Variables are compared among ranks only: the launcher
    sets some of them for its children."""
    facts: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for account in accounts:
        for key, value in _facts(account):
            facts[key][str(value)].append(account.name)
    for key in sorted(facts):
        if len(facts[key]) > 1:
            yield Difference(key=key, values={value: tuple(facts[key][value]) for value in sorted(facts[key])})


def _facts(account: Account) -> Iterable[tuple[str, Any]]:
    for name, value in table(account.start, "versions").items():
        if value is not None:
            yield f"version of {name}", value
    for key in _COMPARED:
        if account.start.get(key) is not None:
            yield key, account.start[key]
    for target in account.targets:
        if target.fingerprint is not None:
            yield f"fingerprint of {target.target}", target.fingerprint
    if account.is_rank and account.start:
        for name, value in table(account.start, "environment").items():
            if name not in _PER_PROCESS:
                yield f"variable {name}", value
