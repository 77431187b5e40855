"""Text -> Amount, exactly: a figure is read as the decimal that it is, and is good to half of its last unit.

`21.73 GB` is 23332409836 bytes, good to 5368710: 21.73 x 2^30 rounded, and 0.005 x 2^30 rounded up.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Final

from sglang_probe.collect.logs.model import Amount

GIB: Final = 1 << 30
MIB: Final = 1 << 20
GB_DECIMAL: Final = 10**9
"""What SGLang calls GB where it speaks of the host's memory."""
NUMBER: Final = r"-?\d{1,15}(?:\.\d{1,40})?(?:[eE][-+]?\d{1,2})?"
"""As Python prints an int or a float of a size that memory has; no `inf`, no `nan`."""
UNITS: Final = {
    "B": 1, "bytes": 1, "KB": 1 << 10, "KiB": 1 << 10, "MB": MIB, "MiB": MIB, "GB": GIB, "GiB": GIB, "TiB": 1 << 40,
}  # fmt: skip
"""SGLang divides by 2^10, 2^20 and 2^30 whatever it prints behind."""
_NUMBER: Final = re.compile(NUMBER)


def amount(printed: str, unit: int = GIB, *, exact: bool = False) -> Amount | None:
    """Return the figure in bytes, None where it is no number; `exact` where the program did not round it."""
    if not _NUMBER.fullmatch(printed):
        return None
    figure = Decimal(printed)
    value = Fraction(figure) * unit
    exponent = figure.as_tuple().exponent
    last = Fraction(10) ** exponent if isinstance(exponent, int) else Fraction(1)
    half = last * unit / 2
    return Amount(
        bytes=(value + Fraction(1, 2)).__floor__(),
        precision_bytes=0 if exact else half.__ceil__(),
        printed=printed,
    )
