"""A stand-in for torch: what SGLang's start-up and a memory probe ask of it, on fake GPUs."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from torch import _C, _utils, cuda, distributed, nn, version
from torch._guards import inference_mode, no_grad
from torch._tensor import Tensor, cat, empty, ones, tensor, zeros
from torch._types import (
    OutOfMemoryError,
    Size,
    bfloat16,
    device,
    dtype,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    int8,
    int32,
    int64,
    uint8,
    uint64,
)

__version__ = version.__version__

__all__ = [
    "_C",
    "OutOfMemoryError",
    "Size",
    "Tensor",
    "_utils",
    "bfloat16",
    "cat",
    "cuda",
    "device",
    "distributed",
    "dtype",
    "empty",
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "float32",
    "get_device_module",
    "inference_mode",
    "int8",
    "int32",
    "int64",
    "nn",
    "no_grad",
    "ones",
    "set_num_threads",
    "tensor",
    "uint8",
    "uint64",
    "version",
    "zeros",
]


def get_device_module(device: Any = None) -> ModuleType:
    """Return `torch.cuda` for any CUDA device, the only kind there is here."""
    return cuda


def set_num_threads(number: int) -> None:
    """Accept what torch accepts."""
