"""Logs as no one wrote them: real ones with lines cut, glued, turned, wrapped, repeated, and bytes in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

DATA: Final = Path(__file__).parents[2] / "data"
SEEDS: Final = tuple(sorted([*DATA.glob("h200-*/*.log"), *DATA.glob("cases/*.log")]))
"""Recorded logs, and those of real reports."""
Change = Callable[[random.Random, list[bytes]], list[bytes]]
"""Takes lines with their ends, and gives others."""
NOISE: Final = (
    b"\x00\x01\xff\xfe", b"\x1b[31m", b"\x1b[2K\r", b"\r", b"\r\n", b"\xef\xbb\xbf", b"{", b"}}", b"]", b"'", b'"',
    b"| ", b"GB", b" avail mem=", b"-", b"9" * 400, b".", b"inf", b"nan", b"1e999", b"0x",
    b"[2030-01-01 00:00:00 TP9] ",
    b"Traceback (most recent call last):\n", b"server_args=ServerArgs(", b"(" * 300, b"\xc3", b"\xed\xa0\x80",
    b'{"log":"', b'","stream":"stderr","time":"2030-01-01T00:00:00Z"}', b"2030-01-01T00:00:00.1Z stdout P ",
)  # fmt: skip


def _drop(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if rng.random() > 0.2]


def _repeat(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    return [line for line in lines for _ in range(rng.choice((1, 1, 1, 2, 3)))]


def _shuffle(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    return rng.sample(lines, len(lines))


def _reverse(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    return lines[::-1]


def _cut(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    text = b"".join(lines)
    start, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    return text[start:end].splitlines(keepends=True)


def _glue(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    return [line.rstrip(b"\r\n") if rng.random() < 0.3 else line for line in lines]


def _wrap(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    width = rng.choice((20, 40, 80, 120))
    return [line[at : at + width].rstrip(b"\n") + b"\n" for line in lines for at in range(0, len(line), width)]


def _noise(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    found = []
    for line in lines:
        at = rng.randrange(len(line) + 1)
        found.append(line[:at] + rng.choice(NOISE) + line[at:] if rng.random() < 0.2 else line)
    return found


def _flip(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    text = bytearray(b"".join(lines))
    for _ in range(min(len(text), 40)):
        text[rng.randrange(len(text))] = rng.randrange(256)
    return bytes(text).splitlines(keepends=True)


def _digits(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    def other(byte: int) -> int:
        return rng.choice(b"0123456789.-") if byte in b"0123456789." and rng.random() < 0.1 else byte

    return [bytes(map(other, line)) for line in lines]


def _interleave(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    other = list(rng.choice(SEEDS).read_bytes().splitlines(keepends=True))
    return [pair for both in zip(lines, other, strict=False) for pair in both]


CHANGES: Final[tuple[Change, ...]] = (
    _drop, _repeat, _shuffle, _reverse, _cut, _glue, _wrap, _noise, _flip, _digits, _interleave
)  # fmt: skip


def mutated(seed: int, most: int = 4) -> bytes:
    """Return a recorded log after some of the changes; the same `seed` gives the same bytes."""
    rng = random.Random(seed)
    lines = rng.choice(SEEDS).read_bytes().splitlines(keepends=True)
    for change in rng.choices(CHANGES, k=rng.randint(1, most)):
        lines = change(rng, lines) or [b""]
    return b"".join(lines)
