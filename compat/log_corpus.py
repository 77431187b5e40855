"""Is every memory line of every release of SGLang recognised? Renders the texts of each wheel, and asks the reader.

log_corpus.py          check; print the table of releases
log_corpus.py --write  write tests/data/log-formats.json, then check

Exit codes: 0 all are recognised, 1 some are not or the written corpus is another, 2 a wheel cannot be read.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
import zipfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

if not __package__:  # run as a file: its own folder is on the path, the checkout is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from compat.log_families import EXCLUDED, SKIPPED, kind_of
from compat.log_templates import Said, templates_of
from compat.log_values import line_of
from sglang_probe.catalogue.errors import SourceError
from sglang_probe.catalogue.releases import expanded, folded, order, phrase
from sglang_probe.catalogue.wheels import index_versions, wheel_of
from sglang_probe.collect.logs.formats import facts_of
from sglang_probe.collect.logs.model import Amount, Entry, Fact

ROOT: Final = Path(__file__).resolve().parents[1]
CORPUS: Final = ROOT / "tests" / "data" / "log-formats.json"
FIRST: Final = "0.2.0"
LAST: Final = "0.5.23"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A memory line, and what must be read from it."""

    text: str
    kind: str
    raised: bool = False
    figures: tuple[str, ...] = ()
    labelled: tuple[tuple[str, str], ...] = ()
    releases: str = ""
    """As `folded` writes them."""


def versions() -> list[str]:
    """Return the releases of the corpus, oldest first. Raises SourceError."""
    return sorted((one for one in index_versions() if order(FIRST) <= order(one) <= order(LAST)), key=order)


def cases_of(wheel: Path) -> set[Case]:
    """Return the memory lines of one wheel. Raises SourceError."""
    found: set[Case] = set()
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith("sglang/") and name.endswith(".py") and not SKIPPED.search(name):
                    found.update(_cases(archive.read(name).decode("utf-8-sig", "replace")))
    except (OSError, zipfile.BadZipFile, SyntaxError) as error:
        raise SourceError(f"{wheel.name} cannot be read: {error}") from error
    return found


def entry_of(case: Case) -> Entry:
    """Return a case as the log would have it: an exception with a type, anything else after SGLang's prefix."""
    text = f"ValueError: {case.text}" if case.raised else case.text
    return Entry(file="corpus", line=1, text=text, prefixed=not case.raised)


def missed(case: Case) -> str | None:
    """Return what the reader made of a case where that is not what it is; None where all is as it must be."""
    facts = facts_of(entry_of(case))
    fact = next((one for one in facts if one.kind == case.kind), None)
    if case.raised:
        return _missed_raised(case, facts, fact)
    if fact is None:
        return f"read as {[one.kind for one in facts]}"
    if case.kind in {"ended", "not_memory", "no_memory", "server_args"}:
        return None
    printed = sorted(_printed(fact))
    if case.kind != "imbalance" and printed != sorted(case.figures):
        return f"figures {printed}, not {sorted(case.figures)}"
    wrong = {name: value for name, value in case.labelled if not _is(fact, name, value)}
    return f"values {wrong} are not in {fact.values}" if wrong and case.kind not in _WITHOUT_LABELS else None


def _missed_raised(case: Case, facts: Sequence[Fact], fact: Fact | None) -> str | None:
    message = next((one.text("message") for one in facts if one.kind == "exception"), None)
    if message != case.text:
        return f"the exception's message is {message!r}"
    known = fact is not None or case.kind in {"figures", "imbalance"}
    return None if known else f"read as {[one.kind for one in facts]}"


_WITHOUT_LABELS: Final = frozenset({"figures", "host_pool", "adjusted", "batch", "kv_post_capture"})
"""Their words repeat labels of other lines."""


def _printed(fact: Fact) -> Iterable[str]:
    for value in fact.values.values():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Amount):
                yield one.printed


def _is(fact: Fact, name: str, printed: str) -> bool:
    names = (name, "size") if name == "mem_usage" else (name, "tokens") if name == "max_total_num_tokens" else (name,)
    for one in names:
        value: Any = fact.values.get(one)
        if isinstance(value, Amount):
            return value.printed == printed
        if value is not None:
            return float(value) == float(printed)
    return False


@cache
def _cases_of_digest(_digest: bytes, source: str) -> tuple[Case, ...]:
    return tuple(case for said in templates_of(source) if (case := _case(said)) is not None)


def _cases(source: str) -> tuple[Case, ...]:
    return _cases_of_digest(hashlib.sha256(source.encode()).digest(), source)


_SEEN: Final[set[str]] = set()


def seen_words() -> set[str]:
    """Return the texts that were looked at and are no memory lines."""
    return _SEEN


def _case(said: Said) -> Case | None:
    words = "".join(part if isinstance(part, str) else "\x00" for part in said.template).strip()
    kind = kind_of(_without_gpu(words))
    if kind is None:
        _SEEN.add(words)
        return None
    made = line_of(said.template)
    return Case(text=made.text, kind=kind, raised=said.raised, figures=made.figures, labelled=made.labelled)


def _without_gpu(words: str) -> str:
    return re.sub(r"^\[gpu(?:_id)?=\x00\] ", "", words)


def written() -> list[Case]:
    """Return the corpus as it is kept in the repository."""
    return msgspec.json.decode(CORPUS.read_bytes(), type=list[Case])


def gathered(names: Sequence[str], say: Any) -> list[Case]:
    """Return every case with its releases, in the order of their texts. Raises SourceError."""
    where: dict[Case, set[str]] = {}
    for name in names:
        for case in cases_of(wheel_of(name, say)):
            where.setdefault(case, set()).add(name)
        say(f"{name}: {len(where)} cases so far")
    found = [msgspec.structs.replace(case, releases=folded(some, names)) for case, some in where.items()]
    longest: dict[tuple[str, str], Case] = {}
    for case in found:  # a batch's line is put together of optional parts: of each release's the longest is enough
        key = (case.text if case.kind != "batch" else case.text.partition(" ")[0], case.releases)
        if key not in longest or len(case.text) > len(longest[key].text) or case.kind != "batch":
            longest[key if case.kind == "batch" else (f"{case.raised}{case.kind}{case.text}", case.releases)] = case
    return sorted(longest.values(), key=lambda case: (case.kind, case.text, case.raised))


def table(cases: Sequence[Case], names: Sequence[str]) -> str:
    """Return recognised/total memory lines of every release in Markdown; releases that are alike share a row."""
    each = {name: [0, 0, 0] for name in names}
    for case in cases:
        good = missed(case) is None
        for name in expanded(case.releases, names):
            each[name][0] += good
            each[name][1] += 1
            each[name][2] += case.kind == "figures"
    rows = ["| releases | recognised | memory lines | of them without a kind of their own |", "|---|---|---|---|"]
    for counts in dict.fromkeys(tuple(one) for one in each.values()):
        alike = [name for name in names if tuple(each[name]) == counts]
        rows.append(f"| {phrase(alike, names)} | {counts[0]} | {counts[1]} | {counts[2]} |")
    return "\n".join(rows)


def unmatched_exclusions(words: Iterable[str]) -> list[str]:
    """Return the exclusions that match none of the texts: they have no reason any more."""
    some = list(words)
    return [pattern for pattern, _ in EXCLUDED if not any(re.search(pattern, one) for one in some)]


def main(argv: Sequence[str] | None = None) -> int:
    """Check; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="log_corpus.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the corpus as found")
    arguments = parser.parse_args(argv)
    try:
        names = versions()
        cases = gathered(names, lambda line: print(line, file=sys.stderr, flush=True))
    except SourceError as error:
        print(f"log_corpus.py: {error}", file=sys.stderr)
        return 2
    if arguments.write:
        CORPUS.write_bytes(msgspec.json.format(msgspec.json.encode(cases), indent=1) + b"\n")
    wrong = [f"{case.kind} of {case.releases}: {case.text!r}: {said}" for case in cases if (said := missed(case))]
    wrong += [f"an exclusion that matches nothing: {pattern}" for pattern in unmatched_exclusions(seen_words())]
    if cases != written():
        wrong.append(f"{CORPUS.name} is another: {sys.executable} compat/log_corpus.py --write")
    print(table(cases, names), *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
