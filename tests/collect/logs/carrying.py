"""Renders a plain log as each carrier would write it, and reads logs with a small set of needles and formats."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

from sglang_probe.collect.logs import Entry
from sglang_probe.collect.logs.entries import entries
from sglang_probe.collect.report import Tally

RECORDED = Path(__file__).parents[2] / "data"
HEALTHY = RECORDED / "h200-x2-sglang-0.5.14" / "car.log"
FAILED = RECORDED / "h200-x2-sglang-0.5.14-experiments" / "oom-capture-later.log"
NEEDLES = (
    b"Init torch", b"Load weight", b"KV Cache", b"Memory pool end", b"Capture ", b"Capturing batches", b"max_total_num",
    b"server_args=", b"fired up", b"Error", b"Exception", b"SIG", b"out of memory",
)  # fmt: skip
_FIGURE = r"-?\d+\.\d\d GB"
_WHOLE = re.compile(
    rf"Init torch distributed (?:begin\.|ends\. (?:elapsed=[\d.]+ s, )?mem usage={_FIGURE})"
    rf"|Load weight (?:begin\.|end\. elapsed=[\d.]+ s, type=\w+,) avail mem={_FIGURE}(?:, mem usage={_FIGURE}\.)?"
    rf"|KV Cache is allocated\. dtype: [\w.]+, #tokens: \d+, K size: {_FIGURE}, V size: {_FIGURE}"
    rf"|Memory pool end\. avail mem={_FIGURE}"
    rf"|Capture [\w ]+ begin\. backend=\w+, num_tokens_per_bs=\d+, bs=\[[\d, ]+\], avail mem={_FIGURE}"
    rf"|Capture [\w ]+ end\. elapsed=[\d.]+ s, mem usage={_FIGURE}, avail mem={_FIGURE}\."
    r"|max_total_num_tokens=\d+, chunked_prefill_size=\d+, max_prefill_tokens=\d+, max_running_requests=\d+,"
    rf" context_len=\d+(?:, available_gpu_mem={_FIGURE})?"
    r"|server_args=ServerArgs\([^\n]*\)"
    r"|The server is fired up and ready to roll!"
)


def is_whole(text: str) -> bool:
    """Say whether a text is a whole record of the formats in the recorded logs."""
    return _WHOLE.fullmatch(text) is not None


def read(text: bytes | str, notes: Tally | None = None) -> list[Entry]:
    """Read a log from memory."""
    data = text.encode() if isinstance(text, str) else text
    return list(entries(io.BytesIO(data), "a.log", needles=NEEDLES, is_whole=is_whole, notes=notes or Tally()))


def said(found: list[Entry]) -> list[tuple[str, tuple[tuple[str, int], ...], str | None]]:
    """Return what of entries no carrier may change."""
    return [(entry.text, entry.ranks, entry.stamp) for entry in found]


def lines_of(file: Path) -> list[str]:
    """Return a recorded log's lines, without their ends."""
    return file.read_text().removesuffix("\n").split("\n")


def _time(number: int) -> str:
    return f"2026-11-29T19:{number // 60 % 60:02}:{number % 60:02}.{number:09}Z"


def _each(render: Callable[[int, str], str]) -> Callable[[list[str]], str]:
    return lambda lines: "".join(render(number, line) + "\n" for number, line in enumerate(lines))


def _docker_json(lines: list[str]) -> str:
    """Write docker's json-file: 16 KiB of a line an object."""
    objects = []
    for number, line in enumerate(lines):
        whole = line + "\n"
        objects += [
            json.dumps({"log": whole[at : at + 16384], "stream": "stderr", "time": _time(number)}, ensure_ascii=False)
            for at in range(0, len(whole), 16384)
        ]
    return "\n".join(objects) + "\n"


def _cri(lines: list[str], size: int = 8192) -> str:
    written = []
    for number, line in enumerate(lines):
        cuts = [line[at : at + size] for at in range(0, len(line), size)] or [""]
        written += [f"{_time(number)} stderr P {cut}" for cut in cuts[:-1]]
        written.append(f"{_time(number)} stderr F {cuts[-1]}")
    return "\n".join(written) + "\n"


def _journald_json(number: int, line: str) -> str:
    message = line if line.isprintable() and line.isascii() else list(line.encode())
    said = {"MESSAGE": message, "_HOSTNAME": "node-1", "_PID": "123", "_SYSTEMD_UNIT": "sglang.service"}
    return json.dumps(said | {"__REALTIME_TIMESTAMP": str(1796000000000000 + number)}, separators=(",", ":"))


def _gcp(number: int, line: str) -> dict[str, object]:
    labels = {"pod_name": "sglang-0", "container_name": "server"}
    return {"resource": {"labels": labels}, "textPayload": line, "timestamp": _time(number)}


CARRIERS: dict[str, Callable[[list[str]], str]] = {
    "plain": _each(lambda _, line: line),
    "crlf": lambda lines: "".join(f"{line}\r\n" for line in lines),
    "bom": lambda lines: "\ufeff" + "\n".join(lines),
    "docker json-file": _docker_json,
    "docker compose": _each(lambda _, line: f"sglang-1  | {line}"),
    "docker compose, coloured": _each(lambda _, line: f"\x1b[36msglang-1  | \x1b[0m{line}"),
    "docker compose with times": _each(lambda number, line: f"sglang-1  | {_time(number)} {line}"),
    "docker logs -t": _each(lambda number, line: f"{_time(number)} {line}"),
    "podman logs -t": _each(lambda number, line: f"{_time(number).replace('Z', '+02:00')} {line}"),
    "kubernetes CRI": _cri,
    "kubectl logs --prefix": _each(lambda _, line: f"[pod/sglang-0/server] {line}"),
    "kubectl logs --prefix --timestamps": _each(lambda number, line: f"[pod/sglang-0/server] {_time(number)} {line}"),
    "journald short": _each(lambda _, line: f"Nov 29 19:50:31 node-1 sglang[123]: {line}"),
    "journald short-precise": _each(lambda _, line: f"Nov  9 19:50:31.123456 node-1 python3[123]: {line}"),
    "journald short-iso": _each(lambda _, line: f"2026-11-29T19:50:31+0000 node-1 sglang[123]: {line}"),
    "journald short-unix": _each(lambda _, line: f"1796000000.123456 node-1 sglang[123]: {line}"),
    "journald json": _each(_journald_json),
    "syslog": _each(lambda number, line: f"<14>1 {_time(number)} node-1 sglang 123 - - {line}"),
    "cloud logging": _each(lambda number, line: json.dumps(_gcp(number, line))),
    "cloud logging, a list": lambda lines: json.dumps([_gcp(*one) for one in enumerate(lines)], indent=2),
    "cloud logging, structured": _each(
        lambda number, line: json.dumps({"jsonPayload": {"message": line, "level": "info"}, "timestamp": _time(number)})
    ),
    "ray": _each(lambda _, line: f"(SchedulerActor pid=123, ip=10.0.0.1) {line}"),
    "ray, coloured": _each(lambda _, line: f"\x1b[36m(SchedulerActor pid=123)\x1b[0m {line}"),
    "ray, only a pid": _each(lambda _, line: f"(pid=123) {line}"),
    "logcli": _each(lambda number, line: f'{_time(number)} {{app="sglang", pod="sglang-0"}} {line}'),
    "logcli jsonl": _each(
        lambda number, line: json.dumps({"labels": {"pod": "sglang-0"}, "line": line, "timestamp": _time(number)})
    ),
    "fluent-bit": _each(
        lambda number, line: f'[{number}] kube.sglang: [[1796000000.{number:09}, {{}}], {{"log"=>"'
        + line.replace('"', '\\"')
        + '", "stream"=>"stderr"}]'
    ),
    "fluent-bit to a file": _each(
        lambda number, line: f"kube.sglang: [1796000000.{number:09}, {json.dumps({'log': line, 'stream': 'stderr'})}]"
    ),
    "structured": _each(lambda number, line: json.dumps({"level": "INFO", "msg": line, "time": _time(number)})),
    "github actions": _each(lambda number, line: f"{_time(number)[:-3]}Z {line}"),
    "gh run view --log": _each(lambda number, line: f"test\tRun the server\t{_time(number)} {line}"),
    "mpirun --tag-output": _each(lambda _, line: f"[1,0]<stderr>:{line}"),
    "srun --label": _each(lambda _, line: f"3: {line}"),
    "torch's excepthook": _each(lambda _, line: f"[rank3]: {line}"),
    "quoted": _each(lambda _, line: f"> {line}"),
    "quoted twice": _each(lambda _, line: f"> > {line}"),
    "a block of markdown": lambda lines: "Here is it:\n```\n" + "\n".join(lines) + "\n```\n",
    "indented": _each(lambda _, line: f"    {line}"),
    "a typescript": lambda lines: (
        "Script started on 2026-11-29\n\x1b]0;title\x07" + "".join(f"{line}\x1b[K\r\n" for line in lines)
    ),
    "behind python's logging": _each(lambda _, line: f"INFO 11-29 19:50:31 [launcher.py:12] {line}"),
    "behind python's logging, with a name": _each(lambda _, line: f"INFO:launcher:{line}"),
    "behind python's logging, with a time": _each(
        lambda _, line: f"2026-11-29 19:50:31,123 - INFO - launcher - {line}"
    ),
}
