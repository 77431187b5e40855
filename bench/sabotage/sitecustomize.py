"""A user's own sitecustomize that spoils SGLang in one way, named by SGLANG_SABOTAGE; it stands behind the doorbell.

poison   rank 0 indexes out of range on its device while the attention backend is made: the CUDA context is lost
orphan   schedulers do not ask the kernel to end them with their launcher, as on a system that cannot
squeeze  once two sizes of the decode graphs are captured, the device's memory is taken and the next size asks for more
stray    rank 1 touches GPU 0 before it sets its own device, as a library does that was not told which one is meant
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

MIB: Final = 1 << 20
SQUEEZED: Final = 3
"""Which of the sizes, in the order in which they are captured."""
LEFT_BYTES: Final = 16 * MIB
ASKED_BYTES: Final = 128 * MIB
"""More than torch holds unused in its own segments (77 MiB on an H200)."""


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


def squeeze(module: ModuleType) -> None:
    """Take what the device has before the third size is captured, and let its forward pass ask for a workspace."""
    original = module.FullCudaGraphBackend.capture_one
    seen, held = [], []

    def capture_one(self: Any, shape_key: Any, forward_fn: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        seen.append(shape_key)
        if len(seen) != SQUEEZED:
            return original(self, shape_key, forward_fn, *args, **kwargs)
        torch = sys.modules["torch"]
        torch.cuda.empty_cache()
        held.append(_taken(torch, torch.cuda.mem_get_info()[0] - LEFT_BYTES))

        def forward() -> Any:
            _taken(torch, ASKED_BYTES)
            return forward_fn()

        return original(self, shape_key, forward, *args, **kwargs)

    module.FullCudaGraphBackend.capture_one = capture_one


def _taken(torch: Any, size: int) -> Any:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def stray(module: ModuleType) -> None:
    """Let rank 1 make a context on GPU 0 before the distributed environment is made."""
    original = module.ModelRunner.init_torch_distributed

    def init_torch_distributed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.tp_rank == 1:
            torch = sys.modules["torch"]
            torch.zeros(1, device="cuda:0")
            torch.cuda.synchronize(0)
        return original(self, *args, **kwargs)

    module.ModelRunner.init_torch_distributed = init_torch_distributed


WAYS: dict[str, tuple[str, Callable[[ModuleType], None]]] = {
    "poison": ("sglang.srt.model_executor.model_runner", poison),
    "orphan": ("sglang.srt.managers.scheduler", orphan),
    "squeeze": ("sglang.srt.model_executor.runner_backend.full_cuda_graph_backend", squeeze),
    "stray": ("sglang.srt.model_executor.model_runner", stray),
}


if os.environ.get("SGLANG_SABOTAGE") in WAYS:
    after_import = runpy.run_path(str(Path(__file__).parents[1] / "after_import.py"))["after_import"]
    after_import(*WAYS[os.environ["SGLANG_SABOTAGE"]])
