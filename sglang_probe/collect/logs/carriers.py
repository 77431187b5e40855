"""What carried a line: docker, compose, kubernetes, journald, Ray, Python's logging and so on, recognised line by line.

Carriers stand before one another (compose before docker's time before Ray), so prefixes are taken off one by one
until none is left or SGLang's own begins. One table says them all; JSON is in carriers_json.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Final

import msgspec

from sglang_probe.collect.logs import prefix

_RFC_3339: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)"
_LEVEL: Final = r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"
_NAME: Final = r"(?![\w.]*(?:Error|Exception)\b)[\w.<>\-/]+(?::[\w<>]+)?(?::\d+)?"
_LOGGER: Final = r"(?![\w.]*(?:Error|Exception)\b)[\w.]+"
_AFTER_LEVEL: Final = rf" *(?:[-|] ?(?:{_NAME} +[-|:] ?)?|:(?:{_LOGGER}:)? ?|{_LOGGER}: ?|(?: |$))"
_UNIT: Final = r"(?P<host>[\w.\-]+) (?P<source>[\w.@\-/]+)"
_CLOCK: Final = r"(?P<stamp>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)"
PREFIXES: Final = tuple(
    re.compile(pattern)
    for pattern in (
        # docker compose and podman-compose: `name-1  | `
        r"(?P<source>[A-Za-z0-9][\w.\-]*) +\|(?: |$)",
        # kubectl logs --prefix
        r"\[(?P<source>pod/[^\]\s]+)\] ?",
        # kubernetes' CRI files: P is a part of a record that goes on in the next line
        rf"(?P<ts>{_RFC_3339}) (?P<stream>stdout|stderr) (?P<part>[FP])(?::\S*)?(?: |$)",
        # journald, short-iso
        rf"(?P<ts>{_RFC_3339}) {_UNIT}\[(?P<pid>\d+)\]: ?",
        # logcli: the stream's labels after the time
        rf"(?P<ts>{_RFC_3339}) \{{(?P<labels>[^{{}}]*=\"[^{{}}]*)\}} ?",
        # docker and podman with --timestamps, kubectl --timestamps, GitHub Actions
        rf"(?P<ts>{_RFC_3339})(?: |$)",
        # gh run view --log
        rf"[^\t\[]+\t[^\t\[]*\t(?P<ts>{_RFC_3339}) ",
        # syslog of RFC 5424
        rf"<\d+>1 (?P<ts>{_RFC_3339}) (?P<host>\S+) (?P<source>\S+) (?P<pid>\d+|-) \S+ (?:-|\[[^\]]*\]) ?",
        # journald, short and short-precise: a local time without a year
        rf"[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? {_UNIT}(?:\[(?P<pid>\d+)\])?: ?",
        # journald, short-unix
        rf"(?P<epoch>\d{{10}}\.\d{{6}}) {_UNIT}\[(?P<pid>\d+)\]: ?",
        # Ray
        r"\((?:(?P<source>[\w.:\-<>]+) )?pid=(?P<pid>\d+)(?:, ip=(?P<host>[\w.:\-]+))?\) ?",
        r"\((?P<source>raylet|gcs_server|autoscaler)(?:, ip=(?P<host>[\w.:\-]+)| \+\w+)?\) ?",
        # torch's excepthook and c10
        r"\[(?P<task>rank\d+)\]: ?",
        # mpirun --tag-output
        r"\[\d+,(?P<task>\d+)\]<(?P<stream>stdout|stderr)>:",
        # srun --label
        r"(?P<task>\d{1,5}): ",
        # vLLM's kind of Python logging: no year
        rf"{_LEVEL} \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[[\w./\-]+:\d+\] ?",
        # Python's logging and loguru: time, level and name in any order
        rf"{_CLOCK}(?: *[-|:] *| +)(?:{_NAME} *[-|:] *)?\[?{_LEVEL}\]?{_AFTER_LEVEL}",
        rf"{_LEVEL}:(?! )(?:{_LOGGER}:)?",
        rf"\[{_LEVEL}\] ?",
        r"WARNING: +",
    )
)
_LONGEST_PREFIX: Final = 512
_FLUENT_BIT: Final = re.compile(r"\[\d+\] (?P<source>[\w.\-/]{1,200}): \[\[?(?P<epoch>\d{1,12}\.\d{1,9})")
"""fluent-bit's stdout, a map in Ruby's writing."""
_FLUENT_KEY: Final = re.compile(r'"(?:log|message)"=>"')
_FLUENT_END: Final = re.compile(r'", "[\w.]{1,64}"=>|"\}')
_INDENTED: Final = re.compile(rf"{_RFC_3339} |\[pod/")
_REPEATED: Final = re.compile(r" ?\[repeated \d+x across (?:cluster|all nodes)\](?: \(Ray deduplicates.*)?$")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:?\d\d)$")
_MOST_PREFIXES: Final = 6


class Carried(msgspec.Struct):
    """A text and what its carriers said of it, as far as they are taken off."""

    text: str
    ts: str | None = None
    stamp: str | None = None
    source: str | None = None
    host: str | None = None
    pid: int | None = None
    stream: str | None = None
    part: bool = False
    """Its record goes on in the next line of the same carrier."""
    repeated: bool = False
    """Ray printed it once for several actors."""
    spread_out: bool = False
    """It stood in an object of JSON that is printed over several lines."""

    @property
    def key(self) -> tuple[str | None, ...]:
        """Return what tells its writer from others: lines of different keys never belong to one record."""
        return (self.source, self.host, None if self.pid is None else str(self.pid), self.stream)


def uncarry(carried: Carried) -> Carried:
    """Take the carriers' prefixes off a line's text, in place, and return it."""
    for _ in range(_MOST_PREFIXES):
        carried.text = prefix.plain(carried.text)
        if prefix.begins(carried.text) or not _one_off(carried):
            break
    if carried.pid is not None and (match := _REPEATED.search(carried.text, max(0, len(carried.text) - 300))):
        carried.text = carried.text[: match.start()]
        carried.repeated = True
    return carried


def _one_off(carried: Carried) -> bool:
    text = carried.text
    if text[:1] in (" ", "\t", ""):
        quoted = text.lstrip()
        if quoted == text or not (quoted.startswith(">") or _INDENTED.match(quoted)):
            return False  # a line of source code may look like any other prefix: `a | b`
        text = quoted
    if text.startswith(">"):
        carried.text = text.lstrip(">").removeprefix(" ")
        return True
    for pattern in PREFIXES:
        match = pattern.match(text, 0, _LONGEST_PREFIX)
        if match is not None:
            carried.text = text[match.end() :]
            _take(carried, match.groupdict())
            return True
    return text.startswith("[") and _off_fluent_bit(carried, text)


def _off_fluent_bit(carried: Carried, text: str) -> bool:
    head = _FLUENT_BIT.match(text)
    key = _FLUENT_KEY.search(text, head.end()) if head else None
    end = _FLUENT_END.search(text, key.end()) if key else None
    if head is None or key is None or end is None:
        return False
    carried.text = text[key.end() : end.start()].replace('\\"', '"').removesuffix("\n").removesuffix("\\n")
    _take(carried, head.groupdict())
    return True


def _take(carried: Carried, said: dict[str, str | None]) -> None:
    """Note what a prefix says; the innermost carrier that says it is right."""
    if said.get("ts"):
        carried.ts = utc(said["ts"] or "")
    if said.get("epoch"):
        carried.ts = from_epoch(said["epoch"] or "")
    if said.get("stamp"):
        carried.stamp = (said["stamp"] or "").replace("T", " ").replace(",", ".")
    if said.get("pid") not in (None, "-"):
        carried.pid = int((said["pid"] or "0")[:18])
    if said.get("labels"):
        labels = dict(_LABEL.findall(said["labels"] or ""))
        carried.source = from_labels(labels) or carried.source
    carried.source = said.get("source") or carried.source
    carried.host = said.get("host") or carried.host
    carried.stream = said.get("task") or said.get("stream") or carried.stream
    carried.part = carried.part or said.get("part") == "P"


def from_labels(labels: dict[str, str]) -> str | None:
    """Return what labels of kubernetes, Loki or a cloud say wrote a line."""
    pod = labels.get("pod_name") or labels.get("pod") or labels.get("k8s_pod_name")
    container = labels.get("container_name") or labels.get("container") or labels.get("k8s_container_name")
    if pod and container:
        return f"{pod}/{container}"
    names = ("job", "app", "service_name", "instance_id", "job_id", "filename")
    return pod or container or next((labels[name] for name in names if labels.get(name)), None)


def utc(text: str) -> str | None:
    """Return an RFC 3339 time in UTC, digits of the second as they were; None where it names no zone or no time."""
    match = _TIME.match(text.strip())
    if match is None:
        return None
    day, clock, digits, zone = match.groups()
    offset = timedelta(0)
    if zone != "Z":
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:])) * (-1 if zone[0] == "-" else 1)
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}") - offset
    except (ValueError, OverflowError):  # month 13; the year 0
        return None
    return f"{moment.isoformat()}{'.' + digits if digits else ''}Z"


def from_epoch(text: str) -> str | None:
    """Return the time of so many seconds since 1970, in UTC: `1750000000.123`."""
    whole, _, digits = text.partition(".")
    try:
        moment = datetime.fromtimestamp(int(whole), timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
    return f"{moment.replace(tzinfo=None).isoformat()}{'.' + digits if digits else ''}Z"
