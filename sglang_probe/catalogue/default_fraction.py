"""The `mem_fraction_static` that old releases took where none was given: a table by tensor parallelism.

Source: SGLang's `ServerArgs.__post_init__`, read in the wheel of every release of 0.2.0 to 0.4.10.post2. From
0.4.5.post3 on the table holds for cards of up to 80 GiB only, from 0.4.6.post2 on by tp x pp; from 0.4.7.post1 on the
fraction hangs on the card (`explain.reserve`): a log that does not print it does not tell it. A model of images took
less than the table: from 0.2.14.post2 on x 0.95, from 0.4.4.post4 x 0.90, in 0.4.7 x 0.85.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Era(NamedTuple):
    """Some releases in a row, and what each took."""

    first: str
    last: str
    by_tp: tuple[tuple[int, float], ...]
    """(from this tp on, fraction), the largest first."""

    def fraction(self, tp: int) -> float:
        """Return the fraction for a tensor parallelism."""
        return next(value for least, value in self.by_tp if tp >= least)


ERAS: Final = (
    Era("0.2.0", "0.2.6", ((16, 0.80), (8, 0.84), (4, 0.86), (2, 0.88), (0, 0.89))),
    Era("0.2.7", "0.3.5.post2", ((16, 0.79), (8, 0.83), (4, 0.85), (2, 0.87), (0, 0.88))),
    Era("0.3.6", "0.3.6.post3", ((16, 0.79), (8, 0.82), (4, 0.85), (2, 0.87), (0, 0.88))),
    Era("0.4.0", "0.4.7", ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87), (0, 0.88))),
)


def defaults(tp: int) -> tuple[float, ...]:
    """Return every default that a release up to 0.4.7 had for a tensor parallelism, the oldest first."""
    return tuple(dict.fromkeys(era.fraction(tp) for era in ERAS))


def releases_with(tp: int, fraction: float) -> str | None:
    """Return the releases that took a fraction, `0.2.7 to 0.3.5.post2`; None where none did."""
    eras = [era for era in ERAS if era.fraction(tp) == fraction]
    return f"{eras[0].first} to {eras[-1].last}" if eras else None
