"""Fake graph runners that allocate as a capture does, and the model runner that they belong to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sglang_probe.testing.core.cuda import cuda
from tests.bodies.rank import device as gpu
from tests.bodies.rank.loading import Thing

GIB = 1 << 30
TORCH_BYTES = 192 << 20
"""What a capture takes through torch's private pool."""
RAW_BYTES = 64 << 20
"""What it takes outside: the driver's own memory for graphs."""
SIZES = [1, 2, 4, 8]


class Runner:
    """A graph runner: building it captures."""

    def __init__(self, model_runner: Any, *_: Any, **__: Any) -> None:
        self.capture_bs = list(SIZES)
        self.capture_num_tokens = list(SIZES)
        cuda().capturing = True
        try:
            with gpu.asking("torch", TORCH_BYTES):
                self.pool = cuda().allocate(cuda().current, TORCH_BYTES)
        finally:
            cuda().capturing = False
        self.driver = gpu.raw("driver", RAW_BYTES)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "capture" in name or name == "runner":
            raise AttributeError(name)
        return Thing(name)


class CudaGraphRunner(Runner):
    """The decode graphs' runner."""


class DecodeCudaGraphRunner(Runner):
    """The same, called so since 0.5.14."""


class PiecewiseCudaGraphRunner(Runner):
    """The prefill graphs' runner."""


class PrefillCudaGraphRunner(Runner):
    """The same, called so since 0.5.14."""


RUNNERS = {
    "cuda_graph_runner": CudaGraphRunner,
    "piecewise_cuda_graph_runner": PiecewiseCudaGraphRunner,
    "runner.decode_cuda_graph_runner": DecodeCudaGraphRunner,
    "runner.prefill_cuda_graph_runner": PrefillCudaGraphRunner,
}
"""Where functions import them from when they are called."""


class EagerRunner:
    """What stands where graphs are off."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


class Open(SimpleNamespace):
    """A namespace in which everything else is there too."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Thing(name)


class Given:
    """The base of the class under test. It has whatever a function asks for, except what the probe asks for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "graph" in name or name in ("draft_model_idx", "ps"):
            raise AttributeError(name)
        return Thing(name)


def model_runner_of(cls: Any, off: bool, draft: bool) -> Any:
    """Return a model runner of that class, with what the graph entries look at."""
    runner = object.__new__(cls)
    layers = [SimpleNamespace(self_attn=SimpleNamespace(attn=object())) for _ in range(2)]
    model = SimpleNamespace(layers=layers)
    arguments = Open(
        disable_cuda_graph=off,
        model_impl="auto",
        enable_torch_compile=False,
        enable_piecewise_cuda_graph=not off,
        disable_piecewise_cuda_graph=off,
        enable_return_hidden_states=False,
        enable_pdmux=False,
        disaggregation_mode="null",
        piecewise_cuda_graph_tokens=SIZES,
        enable_lora=False,
        cuda_graph_bs=SIZES,
        cuda_graph_config=_config(off),
        enable_prefill_cp=False,
        chunked_prefill_size=8192,
    )
    vars(runner).update(
        is_generation=True,
        device="cuda",
        gpu_id=cuda().current,
        server_args=arguments,
        is_draft_worker=draft,
        tp_rank=0,
        model=SimpleNamespace(model=model, layers=layers),
        model_config=SimpleNamespace(num_hidden_layers=2, context_len=8192),
        lora_manager=None,
        eager_runner=EagerRunner(),
        req_to_token_pool=SimpleNamespace(size=64),
        start_layer=0,
        end_layer=2,
        num_effective_layers=2,
        layer_info=SimpleNamespace(start_layer=0, end_layer=2),
        pp_size=1,
        graph_memory_usage={},
        graph_time_usage={},
        _decode_cuda_graph_runner_cls=lambda: DecodeCudaGraphRunner,
        can_run_piecewise_cuda_graph=lambda: True,
        get_cuda_graph_layers=lambda model: ([1, 2], [1, 2], [1, 2], [1, 2], [1, 2]),
    )
    return runner


def _config(off: bool) -> Any:
    phase = {"bs": list(SIZES), "backend": "full", "max_bs": SIZES[-1], "full_prefill_max_req": 8}
    return SimpleNamespace(decode=SimpleNamespace(**phase), prefill=SimpleNamespace(**phase), off=off)


def answers(off: bool) -> dict[str, Any]:
    """What the functions hear from the rest of SGLang."""
    platform = Open(
        device_name="cuda",
        get_graph_runner_cls=lambda: None,
        is_out_of_tree=lambda: False,
        is_cuda=lambda: True,
        capabilities=SimpleNamespace(graph_capture=True),
    )
    execution = Open(graph=Open(cuda_graph_config=_config(off)), cuda_graph_config=_config(off))
    return {
        "get_available_gpu_memory": lambda *_, **__: cuda().ledger.free(cuda().physical(cuda().current)) / GIB,
        "check_cuda_graph_backend": lambda phase, backend: (
            off and "DISABLED" in str(getattr(backend, "_name", backend))
        ),
        "has_standard_gqa_for_all_local_layers": lambda **_: True,
        "index_attention_layers_by_global_id": lambda attention, companion, _: (attention, companion),
        "compute_attention_and_moe_layers": lambda _: ([1, 2], [1, 2], [1, 2], [1, 2], [1, 2]),
        "resolve_language_model": lambda model: model.model,
        "current_platform": platform,
        "get_exec": lambda: execution,
        "get_model": lambda: Open(model_impl="auto"),
        "get_batch_sizes_to_capture": lambda *_: (list(SIZES), list(SIZES)),
        "get_parallel": lambda: Open(enable_prefill_cp=False, pp_size=1, pp_rank=0),
        "get_schedule": lambda: Open(chunked_prefill_size=8192),
        "get_global_server_args": lambda: Thing("args"),
        **{cls.__name__: cls for cls in (CudaGraphRunner, DecodeCudaGraphRunner, PiecewiseCudaGraphRunner)},
        "PrefillCudaGraphRunner": PrefillCudaGraphRunner,
        "EagerRunner": EagerRunner,
    }
