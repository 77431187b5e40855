"""The model that is never run: its shape, its configuration, its weights."""

from __future__ import annotations

from typing import Any

import torch
from fakegpu.scenario import Model

from sglang._fake import phases


class HfConfig:
    """The part of a Hugging Face configuration that memory hangs on."""

    def __init__(self, model: Model, draft: bool) -> None:
        self.architectures = [architecture(model, draft)]
        self.index_head_dim = 128 if model.sparse_attention else None
        self.quantization_config: dict[str, Any] | None = None


def architecture(model: Model, draft: bool) -> str:
    """Return the class name of the model, or of its draft."""
    return f"{model.architecture}{'NextN' if draft else ''}"


class MambaConfig:
    """What SGLang derives for a hybrid model: which layers attend, and the state of one request."""

    def __init__(self, model: Model) -> None:
        attending = model.layers - model.mamba_layers
        self.full_attention_layer_ids = list(range(attending))
        states = list(range(attending, model.layers))
        self.mamba2_cache_params = MambaCacheParams(states, model.mamba_cache_per_req_bytes)


class MambaCacheParams:
    """`mamba_cache_per_req` is bytes per request over all layers."""

    def __init__(self, layers: list[int], mamba_cache_per_req: int) -> None:
        self.layers, self.mamba_cache_per_req = layers, mamba_cache_per_req


class _Layers:
    """Where SGLang looks for the attention layers of a language model."""

    def __init__(self, number: int) -> None:
        self.layers = [None] * number


def load(draft: bool) -> Any:
    """Return a model whose class has the architecture's name, with the weights that the scenario gives it."""
    model, costs = phases.scenario().model, phases.costs()
    layers = model.draft_layers if draft else model.layers
    label = "weights_draft" if draft else "weights_target"
    size = costs.draft_weights_torch_bytes if draft else costs.weights_torch_bytes
    kind = type(architecture(model, draft), (_Model,), {})
    loaded = kind(layers, phases.hold(size, label, pieces=layers))
    phases.charge(costs.draft_weights_bytes if draft else costs.weights_bytes, label)
    return loaded


class _Model(torch.nn.Module):
    """A model: layers and weights."""

    def __init__(self, layers: int, weights: list[torch.Tensor]) -> None:
        self.model, self.weights = _Layers(layers), weights

    def forward(self, input_ids: Any, positions: Any, forward_batch: Any) -> None:
        """Compute nothing."""

    def get_embed_and_head(self) -> tuple[None, None]:
        return None, None

    def set_embed_and_head(self, embed: Any, head: Any) -> None:
        """Share the target's embedding and head, which costs nothing."""
