"""A user's own sitecustomize that spoils SGLang in one way, named by SGLANG_SABOTAGE; it stands behind the doorbell.

poison   rank 0 indexes out of range on its device while the attention backend is made: the CUDA context is lost
orphan   schedulers do not ask the kernel to end them with their launcher, as on a system that cannot
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def poison(module: ModuleType) -> None:
    """Make rank 0's attention backend fail on the device, and wait until it has."""
    original = module.ModelRunner.init_attention_backend

    def init_attention_backend(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        torch = sys.modules["torch"]
        if self.tp_rank == 0:
            torch.zeros(4, device=self.device)[torch.tensor([1 << 20], device=self.device)]
            torch.cuda.synchronize()  # on a CPU the line above has raised already
        return result

    module.ModelRunner.init_attention_backend = init_attention_backend


def orphan(module: ModuleType) -> None:
    """Leave the scheduler without the kernel's promise to end it with its parent."""
    module.__dict__["kill_itself_when_parent_died"] = lambda: None


WAYS: dict[str, tuple[str, Callable[[ModuleType], None]]] = {
    "poison": ("sglang.srt.model_executor.model_runner", poison),
    "orphan": ("sglang.srt.managers.scheduler", orphan),
}


if os.environ.get("SGLANG_SABOTAGE") in WAYS:
    after_import = runpy.run_path(str(Path(__file__).parents[1] / "after_import.py"))["after_import"]
    after_import(*WAYS[os.environ["SGLANG_SABOTAGE"]])
