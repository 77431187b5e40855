from sglang.srt.model_executor.runner.base_cuda_graph_runner import BaseCudaGraphRunner, get_batch_sizes_to_capture
from sglang.srt.model_executor.runner.base_runner import BaseRunner
from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner
from sglang.srt.model_executor.runner.eager_runner import EagerRunner
from sglang.srt.model_executor.runner.prefill_cuda_graph_runner import PrefillCudaGraphRunner

__all__ = [
    "BaseCudaGraphRunner",
    "BaseRunner",
    "DecodeCudaGraphRunner",
    "EagerRunner",
    "PrefillCudaGraphRunner",
    "get_batch_sizes_to_capture",
]
