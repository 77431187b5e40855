"""The fakes in this very process, for unit tests of code that imports torch, pynvml or sglang.

    with installed(FakeGpus.create(tmp_path / "gpus"), release="0.5.14"):
        import torch
        torch.cuda.mem_get_info(0)     # answers from the fake card, and makes a context there

Whatever of these modules was imported before is put aside and comes back unharmed.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from sglang_probe.testing.core.ledger import ENVIRONMENT
from sglang_probe.testing.fakesite import make_site
from sglang_probe.testing.gpu import FakeGpus

STANDING_IN_FOR = ("torch", "pynvml", "sglang", "fakegpu")


@contextmanager
def installed(gpus: FakeGpus, release: str = "0.5.14", site: Path | None = None) -> Iterator[FakeGpus]:
    """Let `torch`, `pynvml` and `sglang` be the fakes of a release, on `gpus`, for as long as the block runs.

    `site` is an own (perhaps edited) fake site; without one a fresh site is made beside the cards.
    """
    where = site or make_site(gpus.directory / f"site-{release}", release)
    aside = _take_out()
    before = os.environ.get(ENVIRONMENT)
    os.environ[ENVIRONMENT] = str(gpus.directory)
    sys.path.insert(0, str(where))
    importlib.invalidate_caches()
    try:
        yield gpus
    finally:
        sys.path.remove(str(where))
        cuda = sys.modules.get("fakegpu.cuda")
        if cuda is not None:
            cuda.forget()
        _take_out()
        sys.modules.update(aside)
        os.environ.pop(ENVIRONMENT, None)
        if before is not None:
            os.environ[ENVIRONMENT] = before
        if site is None:
            shutil.rmtree(where, ignore_errors=True)


def _take_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] in STANDING_IN_FOR]
    return {name: sys.modules.pop(name) for name in names}
