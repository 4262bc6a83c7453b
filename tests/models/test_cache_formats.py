"""Models over coded caches: logits equal transformers' with keys and values that were encoded and decoded; scales come from checkpoints."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask
from transformers.models.llama.modeling_llama import eager_attention_forward

from octavo.config.cache_formats import FORMATS, CacheFormat
from octavo.config.options import Options
from octavo.config.resolve import resolve
from octavo.errors import CheckpointError
from octavo.kvcache.plan import plan_cache
from octavo.kvcache.specs import LayerState
from octavo.loading.build import build_meta
from octavo.ops.cache_codes import decode, encode
from octavo.worker.cache import formats_told
from tests.models import oracle
from tests.models.driver import Driver, config_for
from tests.models.test_logits import LONG, OTHERS, TOKENS
from tests.quant.checkpoints import write
from tests.quant.test_fp8 import per_tensor
from tests.tolerances import ATOL, RTOL

CODED = [name for name, kept in FORMATS.items() if not kept.is_plain]
SCALES = (0.019, 0.027)

pytestmark = pytest.mark.oracle


def coded_attention(kept: CacheFormat, skipped: tuple[int, ...], scales: tuple[float, float]) -> str:
    """The name of an attention of transformers that sees keys and values as a cache in this format gives them back."""

    def attend(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any, **more: Any) -> Any:
        if module.layer_idx not in skipped:
            key, value = (decode(kept, *encode(kept, x, scale), scale).to(x.dtype) for x, scale in zip((key, value), scales, strict=True))
        return eager_attention_forward(module, query, key, value, *rest, **more)

    name = f"cache_in_{kept.name}"
    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, eager_mask)
    return name


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A model with scales of its cache in the checkpoint."""
    made = oracle.make("llama")
    folder = oracle.save(made, tmp_path_factory.mktemp("model"))
    scales = {
        f"model.layers.{layer}.self_attn.{part}_scale": torch.tensor([SCALES[index]])
        for layer in range(4)
        for index, part in enumerate("kv")
    }
    add_tensors(folder, scales)
    return made, folder


def add_tensors(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    (file,) = folder.glob("*.safetensors")
    save_file(load_file(file) | tensors, file, {"format": "pt"})


@pytest.mark.parametrize("kept", CODED)
def test_logits_equal_those_over_decoded_keys_and_values(kept: str, checkpoint: tuple[Any, Path]) -> None:
    """A number that lies between two codes to the last bit may get either, and later tokens see it: so it is the mean that is held to the
    tolerance, and most tokens.
    """
    made, folder = checkpoint
    skipped = (2,)
    made.set_attn_implementation(coded_attention(FORMATS[kept], skipped, SCALES))
    expected = oracle.logits(made, LONG)
    made.set_attn_implementation("eager")
    plain = oracle.logits(made, LONG)
    for mode in ("fast", "reference"):
        driver = Driver(config_for(folder, mode=mode, cache_dtype=kept, skipped_layers=("2",)))
        assert [spec.bytes_per_token for spec in driver.specs] == [FORMATS[kept].bytes_per_token(2, 16), 2 * 2 * 16 * 4]
        logits = driver.step([(driver.sequence(), LONG)])[0]
        differences = (logits - expected).abs()
        assert differences.mean() < ATOL["float32"]
        assert (differences <= ATOL["float32"] + RTOL["float32"] * expected.abs()).all(1).float().mean() > 0.5
        assert (logits - plain).abs().mean() > 100 * differences.mean(), "nothing was rounded"


@pytest.mark.parametrize(
    ("kept", "model_type"), [*((kept, "llama") for kept in CODED), ("fp8_e4m3", "gemma3_text"), ("int4_per_token_head", "gemma3_text")]
)
def test_a_prompt_may_be_cut_and_shared_over_every_format(kept: str, model_type: str, checkpoint: tuple[Any, Path], tmp_path: Path) -> None:
    """Bit for bit, where windows and skipped layers make several groups too."""
    folder = checkpoint[1] if model_type == "llama" else oracle.save(oracle.make(model_type), tmp_path)
    skipped = ("sliding_window", "3") if model_type != "llama" else ()
    driver = Driver(config_for(folder, dtype="bfloat16", cache_dtype=kept, skipped_layers=skipped))
    assert len(driver.specs) == (1 if model_type == "llama" else 2)
    whole = driver.step([(driver.sequence(), TOKENS)])[0]
    first, second = driver.sequence(), driver.sequence()
    parts = []
    for start, end in ((0, 20), (20, 21), (21, 43), (43, 50)):
        rows = [(first, TOKENS[start:end])]
        if start == 20:
            rows.insert(0, (second, OTHERS))
        parts.append(driver.step(rows)[-1])
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("kept", CODED)
def test_planned_bytes_are_the_pages_bytes(kept: str, checkpoint: tuple[Any, Path]) -> None:
    """What the plan reckons with is what the back ends' pages take, to the byte, skipped layers included."""
    for mode in ("fast", "reference"):
        layers = build_meta(config_for(checkpoint[1], mode=mode, cache_dtype=kept, skipped_layers=("1",))).model.attention_layers()
        plan = plan_cache([LayerState(name, layer.spec()) for name, layer in layers.items()], 16, 1 << 22)
        for group in plan.groups:
            assert {layers[name].backend.layout().page_bytes for name in group.layers} == {group.page_bytes}
            assert len(group.layers) * group.page_bytes <= plan.block_bytes
        assert sorted(name for group in plan.groups for name in group.layers) == sorted(layers)


NAMES = [
    ("self_attn.k_scale", "self_attn.v_scale"),
    ("self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale"),
    ("self_attn.k_proj.output_scale", "self_attn.v_proj.output_scale"),
]


def scaled(folder: Path, names: tuple[str, str], *values: float, shape: tuple[int, ...] = (), more: tuple[str, ...] = ()) -> Path:
    made = oracle.save(oracle.make("llama", {"num_hidden_layers": 1}), folder)
    tensors = {name: torch.full(shape, value) for name, value in zip(names, values, strict=True)} | {name: torch.ones(1) for name in more}
    add_tensors(made, {f"model.layers.0.{name}": tensor.to(torch.bfloat16) for name, tensor in tensors.items()})
    return made


@pytest.mark.parametrize(("names", "shape"), list(zip(NAMES, [(), (1,), (1,)])))
def test_scales_come_from_the_checkpoint(names: tuple[str, str], shape: tuple[int, ...], tmp_path: Path) -> None:
    """Under the names that calibrators give them, as a number or as a tensor of one; also where the cache has no use for them."""
    folder = scaled(tmp_path, names, 0.25, 0.75, shape=shape, more=("self_attn.q_scale",))
    for kept in ("fp8_e4m3", "auto"):
        model = Driver(config_for(folder, cache_dtype=kept)).model
        assert model.attention_layers()["model.layers.0.self_attn"].scales.tolist() == [0.25, 0.75]
    told = formats_told(Driver(config_for(folder, cache_dtype="fp8_e4m3")).model)
    assert told == "fp8_e4m3 in 1 layers; scales 0.25 to 0.75, from the checkpoint"


def test_without_scales_they_are_one(tmp_path: Path) -> None:
    driver = Driver(config_for(oracle.save(oracle.make("llama"), tmp_path), cache_dtype="fp8_e5m2", skipped_layers=("0",)))
    assert formats_told(driver.model) == "fp8_e5m2 in 3 layers, float32 in 1 layers; scales are 1, the checkpoint has no others"


@pytest.mark.parametrize("value", [float("nan"), 0.0, -0.5])
def test_a_scale_that_cannot_be_is_refused(value: float, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"model\.layers\.0\.self_attn: k_scale .* is not a positive number"):
        Driver(config_for(scaled(tmp_path, NAMES[0], value, 1.0), cache_dtype="fp8_e4m3"))


def test_a_scale_for_each_head_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"self_attn\.k_scale has shape \[2\] in the checkpoint, \[1\] in the model"):
        Driver(config_for(scaled(tmp_path, NAMES[0], 0.5, 0.5, shape=(2,)), cache_dtype="fp8_e4m3"))


CALIBRATED = {
    "beside plain layers": {"config_groups": {"group_0": {"targets": ["Linear"], "weights": None}}},
    "no groups": {"config_groups": {}},
    "nothing else": {},
}


@pytest.mark.parametrize("groups", CALIBRATED.values(), ids=CALIBRATED)
def test_a_checkpoint_with_a_scheme_of_the_cache_is_served_in_it(groups: dict[str, Any], tmp_path: Path) -> None:
    """compressed-tensors puts it beside its weights' scheme, or has only this one; nothing has to be typed."""
    folder = scaled(tmp_path, NAMES[0], 0.25, 0.75)
    stored = json.loads((folder / "config.json").read_text())
    settings = {
        "quant_method": "compressed-tensors",
        "format": "dense",
        **groups,
        "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False},
    }
    (folder / "config.json").write_text(json.dumps(stored | {"quantization_config": settings}))
    config = resolve(Options(model=str(folder), dtype="float32", skip_tokenizer_init=True))
    assert config.cache.dtype == "fp8_e4m3"
    driver = Driver(config)
    assert [spec.bytes_per_token for spec in driver.specs] == [2 * 2 * 16]
    assert driver.model.attention_layers()["model.layers.0.self_attn"].scales.tolist() == [0.25, 0.75]
    assert driver.step([(driver.sequence(), TOKENS)])[0].isfinite().all()


def test_scales_of_modelopt_lie_beside_its_weights(tmp_path: Path) -> None:
    """FP8 layers with a cache of FP8: `k_proj.k_scale` is the cache's, `k_proj.weight_scale` and `k_proj.input_scale` the layer's."""
    settings = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "ignore": ["lm_head"]}
    written = write(tmp_path, per_tensor, settings, num_hidden_layers=1)
    scales = {"model.layers.0.self_attn.k_proj.k_scale": 0.25, "model.layers.0.self_attn.v_proj.v_scale": 0.75}
    add_tensors(written.folder, {name: torch.tensor(value) for name, value in scales.items()})
    config = resolve(Options(model=str(written.folder), dtype="float32", skip_tokenizer_init=True))
    assert (config.model.quantization, config.cache.dtype) == ("modelopt", "fp8_e4m3")
    driver = Driver(config)
    assert driver.model.attention_layers()["model.layers.0.self_attn"].scales.tolist() == [0.25, 0.75]
    assert driver.step([(driver.sequence(), TOKENS)])[0].isfinite().all()
