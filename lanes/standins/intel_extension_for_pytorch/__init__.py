"""Stand-in for Intel's extension, through which SGLang 0.4 reduces on a CPU at TP 2: here torch's collective does it.

The one stand-in that runs. The same release registers its all-gather for CUDA alone, so that is registered here too.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
from sgl_kernel import refusing
from sglang.srt.distributed import parallel_state
from sglang.srt.utils import sglang_lib

distributed = SimpleNamespace(all_reduce=torch.distributed.all_reduce)
sglang_lib.impl("reg_all_gather_into_tensor", parallel_state.reg_all_gather_into_tensor, "CPU")
__getattr__ = refusing(__name__)
