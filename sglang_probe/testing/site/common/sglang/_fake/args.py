"""A command line out of the fields of ServerArgs, as SGLang names its flags."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import torch

_ALIASES = {
    "model_path": ["--model"],
    "tp_size": ["--tp", "--tensor-parallel-size"],
    "pp_size": ["--pp", "--pipeline-parallel-size"],
    "dp_size": ["--dp", "--data-parallel-size"],
    "ep_size": ["--ep", "--expert-parallel-size"],
}
_KINDS = {"int": int, "float": float, "str": str}


def add_arguments(parser: argparse.ArgumentParser, server_args_class: Any) -> None:
    """Give the parser a flag for every field."""
    for item in dataclasses.fields(server_args_class):
        flags = [f"--{item.name.replace('_', '-')}", *_ALIASES.get(item.name, [])]
        kind = "str" if str(item.type).startswith("Literal[") else str(item.type).partition(" ")[0]
        if kind == "bool":
            parser.add_argument(*flags, dest=item.name, action="store_true")
        elif kind == "list[int]":
            parser.add_argument(*flags, dest=item.name, type=int, nargs="+", default=None)
        elif kind in _KINDS:
            needed = item.default is dataclasses.MISSING
            default = None if needed else item.default
            parser.add_argument(*flags, dest=item.name, type=_KINDS[kind], default=default, required=needed)


def values_of(args: argparse.Namespace, server_args_class: Any) -> dict[str, Any]:
    """Return the parsed values of the fields that the command line can set."""
    names = [item.name for item in dataclasses.fields(server_args_class) if hasattr(args, item.name)]
    return {name: getattr(args, name) for name in names}


def resolve(server_args: Any) -> None:
    """Fill in what SGLang fills in where nothing was given and memory hangs on it.

    Like SGLang it looks at the first device, which leaves the launcher with CUDA initialised and without a context.
    """
    if torch.cuda.is_available():
        torch.cuda.get_device_properties(0)
    defaults: dict[str, Any] = {
        "tokenizer_path": server_args.model_path,
        "served_model_name": server_args.model_path,
        "device": "cuda",
        "mem_fraction_static": 0.85,
        "chunked_prefill_size": 8192,
        "page_size": 1,
        "random_seed": 42,
        "attention_backend": "triton",
        "sampling_backend": "pytorch",
    }
    for name, value in defaults.items():
        if getattr(server_args, name) is None:
            setattr(server_args, name, value)
    if server_args.speculative_algorithm is not None:
        for name, value in (("num_steps", 3), ("eagle_topk", 1), ("num_draft_tokens", 4)):
            if getattr(server_args, f"speculative_{name}") is None:
                setattr(server_args, f"speculative_{name}", value)
        if server_args.max_running_requests is None:
            server_args.max_running_requests = 48
