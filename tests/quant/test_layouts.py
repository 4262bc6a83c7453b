"""Layouts that whole checkpoints bring: packed experts, settings in a file of their own, several formats, scales that are codes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.checkpoint import hf_config
from octavo.checkpoint.names import Expert, Interleave, Row, Split
from octavo.config.options import Options
from octavo.config.quantization import decide_quantization
from octavo.errors import ConfigError
from octavo.loading.build import bare
from octavo.ops.weights import NF4, decode
from octavo.parallel.cut import Cut
from octavo.quant import online
from octavo.quant.format import Filled, Source
from octavo.quant.schemes import torchao
from octavo.quant.schemes.online import Scheme
from tests.quant.checkpoints import check, check_cuts, configured, write
from tests.quant.fixtures.make_others import weight as fixed_weight
from tests.quant.oracles import Case, Written, cases


def nvfp4(path: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Packed as modelopt does it, by the sizes that its fixture shows; the codes are any."""
    rows, columns = weight.shape
    generator = torch.Generator().manual_seed(len(path))
    codes = torch.randint(0, 16, (rows, columns), dtype=torch.uint8, generator=generator)
    scales = torch.rand(rows, columns // 16, generator=generator).add(0.5).to(torch.float8_e4m3fn)
    whole = torch.tensor(0.0173)
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])[codes.long()]
    numbers = values * scales.float().repeat_interleave(16, 1) * whole
    stored = {"weight": codes[:, ::2] | codes[:, 1::2] << 4, "weight_scale": scales, "weight_scale_2": whole}
    return stored | {"input_scale": torch.tensor(0.5)}, numbers


def fp8(path: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    scale = weight.abs().max() / 448
    codes = (weight / scale).to(torch.float8_e4m3fn)
    return {"weight": codes, "weight_scale": scale, "input_scale": torch.tensor(0.01)}, codes.float() * scale


def nested_nf4(path: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """NF4 in blocks of 64 whose scales are codes of a table, in blocks of 256; written from bitsandbytes' QuantState."""
    rows, columns = weight.shape
    blocks = weight.reshape(-1, 64)
    largest = blocks.abs().amax(1)
    shift = largest.mean()
    table = torch.linspace(-1, 1, 256)
    count = -(-len(largest) // 256)
    outer = torch.nn.functional.pad((largest - shift).abs(), (0, count * 256 - len(largest))).view(count, 256).amax(1)
    wide = outer.repeat_interleave(256)[: len(largest)]
    codes = ((largest - shift) / wide)[:, None].sub(table).abs().argmin(1)
    scales = table[codes] * wide + shift
    places = (blocks / scales[:, None])[:, :, None].sub(torch.tensor(NF4)).abs().argmin(2).to(torch.uint8)
    about = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [rows, columns]}
    about |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": shift.item()}
    state = torch.tensor(list(json.dumps(about).encode()), dtype=torch.uint8)
    stored = {
        "weight": (places.flatten()[::2] << 4 | places.flatten()[1::2])[:, None],
        "weight.absmax": codes.to(torch.uint8),
        "weight.quant_map": torch.tensor(NF4),
        "weight.nested_absmax": outer,
        "weight.nested_quant_map": table,
        "weight.quant_state.bitsandbytes__nf4": state,
    }
    return stored, (torch.tensor(NF4)[places.long()] * scales[:, None]).view(rows, columns)


def test_scales_that_are_codes_in_a_whole_model(tmp_path: Path) -> None:
    """Ranks cut inside of what shares an outer scale."""
    written = write(tmp_path, nested_nf4, {"quant_method": "bitsandbytes", "load_in_4bit": True}, hidden_size=256, intermediate_size=512)
    check(written, "bitsandbytes", num_coded=14)
    check_cuts(written, "bitsandbytes")


def test_modelopt_layer_by_layer_with_settings_beside_the_config(tmp_path: Path) -> None:
    def encode(path: str, weight: torch.Tensor) -> Any:
        if "o_proj" in path:
            return None
        return fp8(path, weight) if "self_attn" in path else nvfp4(path, weight)

    written = write(tmp_path, encode, None)
    layers = {path: {"quant_algo": "FP8"} if "self_attn" in path else {"quant_algo": "NVFP4", "group_size": 16} for path in written.numbers}
    kept = {path: about for path, about in layers.items() if "o_proj" not in path and "embed" not in path and "lm_head" not in path}
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": kept}}
    (written.folder / "hf_quant_config.json").write_text(json.dumps(beside))
    read, _ = hf_config.read(written.folder)
    assert decide_quantization(Options(model="m"), read, []) == "modelopt"
    assert decide_quantization(Options(model="m", quantization="modelopt_fp4"), read, []) == "modelopt"
    check(written, "modelopt", num_coded=12)
    check_cuts(written, "modelopt")


EXCLUDED = (["*self_attn*", "lm_head"], ["model.layers.*.self_attn*"], ["model.layers.0.self_attn", "layers.1.self_attn.*"])


@pytest.mark.parametrize("excluded", EXCLUDED)
def test_modelopt_excludes_by_patterns(tmp_path: Path, excluded: list[str]) -> None:
    def encode(path: str, weight: torch.Tensor) -> Any:
        return None if "self_attn" in path else nvfp4(path, weight)

    settings = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": None, "exclude_modules": excluded}
    check_cuts(write(tmp_path, encode, settings, num_hidden_layers=2), "modelopt")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"quant_algo": "NVFP4_SVD"}, "NVFP4_SVD"),
        ({"quant_algo": "W4A16_AWQ"}, "W4A16_AWQ"),
        ({"kv_cache_quant_algo": "INT8"}, "kv_cache_quant_algo"),
    ],
)
def test_modelopt_refuses_by_name(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    written = write(tmp_path, nvfp4, {"quant_method": "modelopt", "quant_algo": "NVFP4"} | changes)
    with pytest.raises(ConfigError, match=words):
        bare(configured(written.folder, "modelopt"))


def test_gpt_oss_experts_are_packed_and_interleaved(tmp_path: Path) -> None:
    """Equal to transformers' own reading, for each expert and in the pieces of two ranks."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    experts, size, hidden = 3, 64, 96
    generator = torch.Generator().manual_seed(7)
    blocks = torch.randint(0, 256, (experts, 2 * size, hidden // 32, 16), dtype=torch.uint8, generator=generator)
    scales = torch.randint(118, 126, (experts, 2 * size, hidden // 32), dtype=torch.uint8, generator=generator)
    down = torch.randint(0, 256, (experts, hidden, size // 32, 16), dtype=torch.uint8, generator=generator)
    down_scales = torch.randint(118, 126, (experts, hidden, size // 32), dtype=torch.uint8, generator=generator)
    # [experts, hidden, 2 size] of them, gate and up by turns
    expected = convert_moe_packed_tensors(blocks, scales.clone(), dtype=torch.float32)
    expected_down = convert_moe_packed_tensors(down, down_scales.clone(), dtype=torch.float32)
    layer = "model.layers.{i}.mlp.experts"
    names = [
        Row(f"{layer}.{disk}_{kind}", f"{layer}.{{e}}.{part}.{kind}", views)
        for kind in ("blocks", "scales")
        for disk, part, views in (
            ("gate_up_proj", "gate_proj", (Expert(), Interleave(2, 0), Split(0, size))),
            ("gate_up_proj", "up_proj", (Expert(), Interleave(2, 0), Split(size, size))),
            ("down_proj", "down_proj", (Expert(),)),
        )
    ]
    stored = {"gate_up_proj_blocks": blocks, "gate_up_proj_scales": scales, "down_proj_blocks": down, "down_proj_scales": down_scales}
    for number in range(experts):
        for part, numbers in (
            ("gate_proj", expected[number, :, 0::2].t()),
            ("up_proj", expected[number, :, 1::2].t()),
            ("down_proj", expected_down[number].t()),
        ):
            case = Case("experts", "gpt_oss_mxfp4", "transformers", {"quant_method": "mxfp4"}, stored, numbers)
            written = Written(tmp_path / f"{number}{part}", case, names=names, prefix="model.layers.0.mlp.experts", path=f"{number}.{part}")
            assert torch.equal(written.numbers(), numbers)
            for rank in range(2):
                half = len(numbers) // 2
                assert torch.equal(written.numbers(Cut(0, rank * half, half)), numbers[rank * half : (rank + 1) * half])


def test_torchao_int4(tmp_path: Path) -> None:
    """Written from the routine that torchao's Int4Tensor is made with: two's complement, low half first, number = code * scale + zero."""
    generator = torch.Generator().manual_seed(11)
    codes = torch.randint(-8, 8, (32, 128), dtype=torch.int8, generator=generator)
    scales, zeros = torch.rand(2, 4, 32, generator=generator).to(torch.bfloat16)
    stored = {"_weight_qdata": codes[:, ::2] & 15 | codes[:, 1::2] << 4, "_weight_scale": scales, "_weight_zero_point": zeros}
    wide_scales, wide_zeros = (each.float().t().repeat_interleave(32, 1) for each in (scales, zeros))
    numbers = codes * wide_scales + wide_zeros
    written = Written(tmp_path, Case("int4", "torchao", "its specification", {"quant_method": "torchao"}, stored, numbers))
    assert torch.equal(written.numbers(), numbers)
    assert torch.equal(written.numbers(Cut(1, 64, 64)), numbers[:, 64:])


def test_torchao_layouts_of_one_kernel_are_refused_by_name() -> None:
    shapes = {"w._weight_qdata": (4, 2, 32, 4), "w._weight_scale_and_zero": (4, 32, 2)}
    source = Source(torch.bfloat16, {"quant_method": "torchao"}, lambda path: "I32" if path in shapes else None, shapes.get)
    with pytest.raises(ConfigError, match="scale_and_zero"):
        torchao.Scheme(source).weight("w", "linear")


@pytest.mark.parametrize(
    ("made", "scheme", "name", "seed", "stored"),
    [
        (online.nf4, "bitsandbytes", "nf4-blocks-of-64", 0, ("weight", "weight.absmax")),
        (online.nvfp4, "modelopt", "nvfp4", 20, ("weight", "weight_scale", "weight_scale_2")),
        (online.mxfp8, "modelopt", "mxfp8", 21, ("weight", "weight_scale")),
    ],
)
def test_made_while_loading_as_others_make_it(made: Any, scheme: str, name: str, seed: int, stored: tuple[str, ...]) -> None:
    """The numbers that bitsandbytes and modelopt make of the same weight, bit for bit."""
    case = next(case for case in cases() if (case.scheme, case.name) == (scheme, name))
    plain = fixed_weight(seed)
    layout, tensors = made(Filled("w", (len(plain),), plain.shape[1], {}), plain)
    assert torch.equal(decode(layout, tensors, *plain.shape), case.numbers)


def test_quantization_config_says_what_is_made_of_which(tmp_path: Path) -> None:
    settings = {
        "linear": {"weight": "int4"},
        "moe": {"weight": "nvfp4"},
        "targets": {"re:.*down_proj": "mxfp8", "*q_proj": "fp8_per_tensor"},
        "ignore": ["o_proj"],
        "group_size": 64,
    }
    scheme = Scheme(Source(torch.bfloat16, settings))
    roles = {"k_proj": "linear", "down_proj": "linear", "q_proj": "linear", "o_proj": "linear", "experts.0.w1": "expert"}
    formats = {path: scheme.weight(f"model.layers.0.{path}", role) for path, role in roles.items()}  # type: ignore[arg-type]
    made = {path: getattr(format, "quantize", None) for path, format in formats.items()}
    assert made == {
        "k_proj": online.int4_by_groups,
        "down_proj": online.mxfp8,
        "q_proj": online.fp8_per_tensor,
        "o_proj": None,
        "experts.0.w1": online.nvfp4,
    }
    assert scheme.weight("k_proj", "linear").finish(Filled("k", (8,), 128, {"weight": torch.rand(8, 128)}))[0].group == 64  # type: ignore[union-attr]
    assert decide_quantization(Options(model="m", quantization_config=settings), {}, []) == "online"
    with pytest.raises(ConfigError, match="quantization-config"):
        decide_quantization(Options(model="m", quantization_config=settings), {"quantization_config": {"quant_method": "awq"}}, [])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"linaer": {}}, "no key 'linaer'"),
        ({"linear": {"weight": "int3"}}, "'int3'"),
        ({"linear": {"weight": "int4", "activation": "fp8"}}, "linear.activation"),
        ({"targets": {"x": "y"}}, "'y'"),
        ({"ignore": ["x"]}, "needs a --quantization-config with linear, moe or targets"),
        ({"linear": {"weight": "int4"}, "group_size": 12}, "group_size 12"),
    ],
)
def test_quantization_config_is_checked_by_key(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Scheme(Source(torch.bfloat16, settings))
