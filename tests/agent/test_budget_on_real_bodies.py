"""`kv.profile` on SGLang's own bodies, cut from the wheels: in every release the terms reproduce the result exactly.

Only the function itself runs, hooked, in a module of the name and class that it has in its release. What it calls is
made up here and measures nothing; a name that nobody has thought of fails the test.
"""

from __future__ import annotations

import ast
import builtins
import dis
import gc
import json
import math
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_probe.catalogue.bodies import known_in
from sglang_probe.catalogue.formulas import FORMULAS, OF_RELEASES
from sglang_probe.catalogue.sources import from_wheel
from sglang_probe.catalogue.targets import TARGETS, Target
from sglang_probe.catalogue.wheels import wheel_of

GIB = 1 << 30
ELEMENT = {"bfloat16": 2, "fp8": 1, "fp4": 1, "uint8": 1}
INDEX_WIDTH, QUANT_BLOCK = 128, 128
PROFILES = [target for target in TARGETS if target.role == "kv.profile"]
BODIES = [
    pytest.param(target, fingerprint, known_in(target, fingerprint)[0], id=known_in(target, fingerprint)[0])
    for target in PROFILES
    for fingerprint in FORMULAS
    if known_in(target, fingerprint)
]
FLOORED = [one for one in BODIES if "floor" in FORMULAS[str(one.values[1])]]
MANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)


class World:
    """What a body may see: its runner's attributes, and the values its calls return."""

    def __init__(self, **values: Any) -> None:
        self.available = 80.0
        self.fraction = 0.9
        self.pre_load = 90.0
        self.mla = self.fp4 = self.sparse = self.mamba = self.post_capture = self.draft = False
        self.taken_by_mamba = 3.25
        self.given_slots: int | None = None
        self.multimodal = 0.0
        self.reserve_mb = 0.0
        self.hidden = 0.0
        vars(self).update(values)


@cache
def cut(target: Target, release: str) -> tuple[str, frozenset[str]]:
    """Return the class with this one method, as it stands in the release, and every word of its module."""
    module = from_wheel(wheel_of(release)).module(target.module)
    assert module is not None
    owner, _, name = target.path.partition(".")
    lines = module.text.splitlines()
    found = next(node for node in ast.parse(module.text).body if isinstance(node, ast.ClassDef) and node.name == owner)
    method = [node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == name][-1]
    body = lines[method.lineno - 1 : method.end_lineno]
    text = "\n".join(["from __future__ import annotations", f"class {owner}:", *body, ""])
    return text, frozenset(re.findall(r"\w+", module.text))


def config_of(world: World) -> SimpleNamespace:
    """A model's configuration, in every release's spelling."""
    mamba = SimpleNamespace(
        full_attention_layer_ids=[3, 7, 11, 15],
        mamba_cache_per_req=11 << 20,
        mamba2_cache_params=SimpleNamespace(mamba_cache_per_req=11 << 20),
    )
    hf = SimpleNamespace(num_nextn_predict_layers=1, **(vars(mamba) if world.mamba else {}))
    return SimpleNamespace(
        attention_arch="MLA" if world.mla else "MHA",
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        num_hidden_layers=16,
        head_dim=128,
        hf_config=hf,
        mamba=mamba,
        is_multimodal=bool(world.multimodal),
        full_attention_layer_ids=None,
        get_num_kv_heads=lambda size: 8 // size,
    )


def module_of(target: Target, release: str, world: World, folder: Path) -> ModuleType:
    """The module of the release's name, with the real body and everything made up that it calls."""
    text, words = cut(target, release)
    (folder / "body.py").write_text(text)
    module = ModuleType(target.module)
    bag = SimpleNamespace(
        mem_fraction_static=world.fraction, max_mamba_cache_size=world.given_slots, prefill_max_requests=None
    )
    group = SimpleNamespace(world_size=2, cpu_group=None)
    torch = SimpleNamespace(_utils=SimpleNamespace(_element_size=lambda dtype: ELEMENT[dtype]))
    pool = SimpleNamespace(quant_block_size=QUANT_BLOCK, index_k_with_scale_buffer_dtype="uint8")
    graph = SimpleNamespace(prefill=SimpleNamespace(full_prefill_max_req=None, backend="eager"))
    made_up: dict[str, Any] = dict(  # noqa: C408
        AttentionArch=SimpleNamespace(MLA="MLA"),
        Backend=SimpleNamespace(FULL="full"),
        NSATokenToKVPool=pool,
        gc=gc,
        get_attention_tp_size=lambda: 2,
        get_available_gpu_memory=lambda *args, **kwargs: world.available,
        get_device_memory_capacity=lambda device: 96.0,
        get_disagg=lambda: SimpleNamespace(disaggregation_mode="null"),
        get_exec=lambda: SimpleNamespace(graph=SimpleNamespace(cuda_graph_config=graph)),
        get_mm=lambda: SimpleNamespace(mm_feature_transport=None),
        get_nsa_index_head_dim=lambda config: INDEX_WIDTH,
        get_schedule=lambda: bag,
        get_parallel=lambda: SimpleNamespace(launch_world_size=2, world_group=group),
        get_world_group=lambda: group,
        is_deepseek_nsa=lambda config: world.sparse,
        is_float4_e2m1fn_x2=lambda dtype: dtype == "fp4",
        math=math,
        mm_runtime_reservation_gb=lambda **kwargs: world.multimodal,
        pre_capture_activation_reserve_mb=lambda memory: world.reserve_mb,
        torch=torch,
    )
    vars(module).update({name: value for name, value in made_up.items() if name in words})
    exec(compile(text, str(folder / "body.py"), "exec"), vars(module))
    owner = vars(module)[target.path.partition(".")[0]]
    instructions = dis.get_instructions(vars(owner)[target.path.partition(".")[2]])
    looked_up = {one.argval for one in instructions if "GLOBAL" in one.opname}
    assert looked_up <= {*vars(module), *dir(builtins)}
    finish(owner, target, text, world)
    context = ModuleType("sglang.srt.runtime_context")
    vars(context)["get_schedule"] = lambda: bag
    vars(module)["_made_up"] = {"sglang.srt.runtime_context": context, target.module: module}
    return module


def finish(owner: Any, target: Target, text: str, world: World) -> None:
    """Give the class what its body reads of `self`."""
    arguments = SimpleNamespace(
        disable_mla=False,
        mem_fraction_static=world.fraction,
        max_mamba_cache_size=world.given_slots,
        mm_feature_transport=None,
        mamba_pre_capture_reserve_mb=lambda memory: world.reserve_mb,
        pre_capture_activation_reserve_mb=lambda memory: world.reserve_mb,
    )
    config = config_of(world)
    owner.__module__ = target.module
    owner.server_args, owner.model_config = arguments, config
    owner.device, owner.gpu_id, owner.tp_size, owner.pp_size = "cuda", 0, 2, 1
    owner.start_layer, owner.end_layer = 0, 16
    owner.kv_cache_dtype = "fp4" if world.fp4 else "bfloat16"
    owner.is_draft_worker, owner.use_mla_backend = world.draft, world.mla
    owner.get_cell_size_per_token = lambda self, num_layers: num_layers * 4096
    if "num_effective_layers" in text:
        owner.num_effective_layers = 16
    if "is_hybrid_gdn" in text:
        owner.is_hybrid_gdn = world.mamba
    elif "mambaish_config" in text:
        owner.mambaish_config = config.mamba if world.mamba else None
    if "post_capture_kv_active" in text:
        owner.post_capture_kv_active = world.post_capture
    if "configurator" not in target.module:
        owner.mem_fraction_static = world.fraction
    for handler in ("handle_max_mamba_cache", "_handle_max_mamba_cache"):
        if handler in text:
            setattr(owner, handler, lambda self, total_rest_memory: total_rest_memory - world.taken_by_mamba)


@pytest.fixture
def budget(probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run a release's real body, hooked, and return what its event says, with what SGLang returned or raised."""

    def run(target: Target, release: str, **values: Any) -> dict[str, Any]:
        world = World(**values)
        module = module_of(target, release, world, tmp_path)
        with monkeypatch.context() as patch:
            for name, stand_in in vars(module)["_made_up"].items():
                patch.setitem(sys.modules, name, stand_in)
            probe.agent.hook(module)
            if world.hidden:
                measured = vars(module)["get_available_gpu_memory"]
                vars(module)["get_available_gpu_memory"] = lambda *args, **kw: measured(*args, **kw) - world.hidden
            runner = vars(module)[target.path.partition(".")[0]]()
            try:
                returned, raised = getattr(runner, target.path.partition(".")[2])(world.pre_load), None
            except ValueError as error:
                returned, raised = None, error
        last = Path(probe.agent.writer.path()).read_text().splitlines()[-1]
        terms: dict[str, Any] = json.loads(last)["attributes"]
        assert (terms["target"], terms["result"]) == (target.name, returned)
        return terms | {"raised": raised}

    return run


def test_every_body_that_was_read_is_one_of_a_release() -> None:
    assert {param.values[1] for param in BODIES} == OF_RELEASES.keys()


@pytest.mark.parametrize(("target", "body", "release"), BODIES)
@MANY
@given(
    available=st.floats(0.01, 300),
    pre_load=st.floats(0.01, 300),
    fraction=st.floats(0.01, 0.99),
    mla=st.booleans(),
    fp4=st.booleans(),
    sparse=st.booleans(),
    mamba=st.booleans(),
    draft=st.booleans(),
)
def test_the_terms_reproduce_the_result_of_every_body(
    budget: Callable[..., dict[str, Any]],
    target: Target,
    body: str,
    release: str,
    **values: Any,
) -> None:
    terms = budget(target, release, given_slots=40, **values)
    assert terms["body"] == body
    assert terms["verified"] is True, terms["verified_reason"]
    assert terms["available_gib"] == values["available"] and terms["mem_fraction_static"] == values["fraction"]
    assert terms["raised"] is None or terms["rest_bytes"] <= 0


@pytest.mark.parametrize(("target", "body", "release"), FLOORED)
@MANY
@given(reserve=st.integers(0, 40_000), active=st.booleans(), mamba=st.booleans())
def test_the_floor_on_the_slack_is_told_from_the_fractions_own(
    budget: Callable[..., dict[str, Any]],
    target: Target,
    body: str,
    release: str,
    reserve: int,
    active: bool,
    mamba: bool,
) -> None:
    terms = budget(target, release, reserve_mb=float(reserve), post_capture=active, mamba=mamba)
    own = 90.0 * (1 - 0.9)
    binds = active and mamba and reserve / 1024 > own
    observable = FORMULAS[body].endswith("multimodal")  # before, a method of the server's arguments gave it
    assert terms["verified"] is (True if observable or not binds else None), terms["verified_reason"]
    assert terms["slack_is_floor"] is binds
    assert terms["slack_bytes"] == pytest.approx((reserve / 1024 if binds else own) * GIB, abs=1024)
    assert (terms["minimum_viable_fraction"] is None) == (binds or mamba)


@pytest.mark.parametrize(
    ("target", "body", "release"), [one for one in BODIES if FORMULAS[str(one.values[1])].endswith("multimodal")]
)
def test_what_is_kept_for_multimodal_features_is_a_deduction(
    budget: Callable[..., dict[str, Any]], target: Target, body: str, release: str
) -> None:
    terms = budget(target, release, multimodal=1.5)
    assert terms["deductions"] == {"multimodal": int(1.5 * GIB)}
    assert terms["verified"] is True
    assert terms["minimum_viable_fraction"] == pytest.approx(1 - (80.0 - 1.5) / 90.0)


@pytest.mark.parametrize(("target", "body", "release"), BODIES)
def test_a_body_that_nobody_has_read_is_captured_and_not_vouched_for(
    budget: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    target: Target,
    body: str,
    release: str,
) -> None:
    monkeypatch.delitem(FORMULAS, body)
    terms = budget(target, release)
    assert terms["verified"] is None
    assert body in terms["verified_reason"] and "not a known one" in terms["verified_reason"]
    assert terms["rest_bytes"] == int((80.0 - 90.0 * (1 - 0.9)) * GIB)


@pytest.mark.parametrize(("target", "body", "release"), FLOORED)
def test_a_floor_does_not_hide_that_the_terms_do_not_add_up(
    budget: Callable[..., dict[str, Any]], target: Target, body: str, release: str
) -> None:
    """Somebody takes 10 GiB off what SGLang gets, where the probe cannot see it."""
    terms = budget(target, release, reserve_mb=20 * 1024.0, post_capture=True, mamba=True, hidden=10.0)
    assert terms["verified"] is not True
