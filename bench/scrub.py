"""Make recordings that can be published: hosts, boot ids, UUIDs and places are replaced, and no number is.

    python bench/scrub.py SOURCE TARGET [--place /its/site=/opt/sglang ...]

SOURCE is what failures.py left, or one of its scenarios. TARGET gets `RUN/*.jsonl`, `RUN.log` and `SCENARIO.json`, as
tests/data has them. The same thing gets the same stand-in in every file of one call. Exit code 2 where a place is left
that no --place replaces and that names a person or a machine.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

HOSTS = ("gpu-host", "gpu-host-2", "gpu-host-3")
BOOTS = (
    "3f0d2c1e-5b6a-4c7d-8e9f-0a1b2c3d4e5f",
    "4f0d2c1e-5b6a-4c7d-8e9f-0a1b2c3d4e5f",
    "5f0d2c1e-5b6a-4c7d-8e9f-0a1b2c3d4e5f",
)
PLACES = {"/tmp/": "/run/", "/root/": "/home/sglang/"}
"""What every machine has: the last to be replaced."""
LEFT = re.compile(r"/(?:work|root|tmp|workspace|Users)/[\w.-]+|/home/(?!sglang/)[\w.-]+")

_BOOT = re.compile(r'"boot_id": ?"([0-9a-f-]{36})"')
_HOST = re.compile(r'"host": ?"([^"]+)"(?=, ?"boot_id")')
"""An event's own: the server's arguments have a `host` too, the address that it listens on."""
_UUID = re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_DEVICE = re.compile(r'"device": ?\{"index": ?(\d+), ?"uuid": ?"([^"]+)"')
_ADDRESS = re.compile(r"(tcp://|@)(?!127\.)(\d{1,3}(?:\.\d{1,3}){3})\b")


class LeftOver(Exception):
    """Something is left that names a person or a machine; the text is for a person."""


class Scrubber:
    """Replaces, in one text after the other, what it has seen in all of them: give it every text first."""

    def __init__(self, texts: Sequence[str], places: Mapping[str, str]) -> None:
        whole = "\n".join(texts)
        self._hosts = _named(_HOST.findall(whole), HOSTS)
        boots = _named(_BOOT.findall(whole), BOOTS)
        self._exact = boots | _uuids(whole)
        self._places = dict(sorted(places.items(), key=lambda pair: -len(pair[0])))  # the longest first
        self._addresses: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Return the text with stand-ins; a progress bar's carriage returns become lines."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        for found, stand_in in (self._exact | self._places).items():
            text = text.replace(found, stand_in)
        for host, stand_in in self._hosts.items():
            text = re.sub(rf'("host": ?)"{re.escape(host)}"(?=, ?"boot_id")', rf'\1"{stand_in}"', text)
            text = re.sub(rf"(?<=[/\"\s]){re.escape(host)}(?=\.\d+\.\d+\.jsonl)", stand_in, text)
        return _ADDRESS.sub(self._address, text)

    def file_name(self, name: str) -> str:
        """Return the name of an event file with the host's stand-in."""
        return self.text(f"/{name}")[1:]

    def _address(self, match: re.Match[str]) -> str:
        stand_in = self._addresses.setdefault(match[2], f"192.0.2.{len(self._addresses) + 1}")  # RFC 5737
        return match[1] + stand_in


def check(name: str, text: str) -> None:
    """Raise LeftOver where the text still holds a place of somebody's machine."""
    if found := LEFT.search(text):
        raise LeftOver(f"{name}: {found[0]!r} is left; say --place {found[0]}=SOMEWHERE")


def scrub(source: Path, target: Path, places: Mapping[str, str]) -> list[Path]:
    """Write the recordings of `source` to `target`; return the files. Raises LeftOver, and then writes nothing."""
    files = _recorded(source)
    if not files:
        raise LeftOver(f"{source} holds no scenario.json: it is not what failures.py leaves")
    texts = {file: file.read_text(encoding="utf-8", errors="replace") for file in files}
    scrubber = Scrubber(list(texts.values()), places)
    made = {}
    for file, name in files.items():
        parts = Path(name)
        made[target / parts.parent / scrubber.file_name(parts.name)] = scrubber.text(texts[file])
    for path, text in made.items():
        check(str(path), text)
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(made)


def _recorded(source: Path) -> dict[Path, str]:
    """Return what is kept of every scenario below, and its place in the target."""
    kept = {}
    for told in sorted(source.glob("**/scenario.json")):
        scenario = told.parent
        kept[told] = f"{scenario.name}.json"
        kept |= {log: log.name for log in sorted(scenario.glob("*.log"))}
        kept |= {one: f"{one.parent.name}/{one.name}" for one in sorted(scenario.glob("events/*/*.jsonl"))}
    return kept


def _named(found: Sequence[str], stand_ins: Sequence[str]) -> dict[str, str]:
    distinct = list(dict.fromkeys(found))
    if len(distinct) > len(stand_ins):
        raise LeftOver(f"{len(distinct)} hosts or boots in one recording; there are stand-ins for {len(stand_ins)}")
    return dict(zip(distinct, stand_ins, strict=False))


def _uuids(text: str) -> dict[str, str]:
    """Return a stand-in for every UUID: by the device's index where an event tells it, else the next that is free."""
    indexes = {uuid: int(index) for index, uuid in _DEVICE.findall(text)}
    for uuid in _UUID.findall(text):
        indexes.setdefault(uuid, max(indexes.values(), default=-1) + 1)
    return {uuid: _uuid(uuid[:3], index) for uuid, index in indexes.items()}


def _uuid(kind: str, index: int) -> str:
    digit = f"{index % 16:x}"
    return f"{kind}-{digit * 8}-{digit * 4}-4{digit * 3}-8{digit * 3}-{digit * 12}"


def main(argv: Sequence[str] | None = None) -> int:
    """Scrub; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="scrub.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, metavar="SOURCE")
    parser.add_argument("target", type=Path, metavar="TARGET")
    parser.add_argument("--place", action="append", default=[], type=_place, metavar="FROM=TO", help="may be repeated")
    arguments = parser.parse_args(argv)
    try:
        made = scrub(arguments.source, arguments.target, PLACES | dict(arguments.place))
    except LeftOver as problem:
        print(f"scrub.py: {problem}", file=sys.stderr)
        return 2
    size = sum(path.stat().st_size for path in made)
    print(f"{len(made)} files, {size / 1024:.0f} KiB, in {arguments.target}")
    return 0


def _place(text: str) -> tuple[str, str]:
    found, _, stand_in = text.partition("=")
    if not found.startswith("/") or not stand_in:
        raise argparse.ArgumentTypeError(f"{text!r}: say /its/place=/the/stand-in")
    return found, stand_in


if __name__ == "__main__":
    sys.exit(main())
