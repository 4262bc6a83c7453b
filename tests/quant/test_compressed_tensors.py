"""compressed-tensors checkpoints of several formats: lists of names, an order of columns, and keys that are refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.errors import ConfigError
from octavo.loading.build import bare
from octavo.quant import eight_bit
from octavo.quant.format import Source
from octavo.quant.schemes import compressed_tensors, unquantized
from tests.quant.checkpoints import Encode, check, check_cuts, configured, write
from tests.quant.test_gptq import pack

GROUP = 32


def packed(order: torch.Generator | None = None) -> Encode:
    """4 bits, symmetric, in groups of columns; with an order of its own for each weight, or none."""

    def encode(path: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        rows, columns = weight.shape
        index = torch.arange(columns) // GROUP
        if order is not None:
            index = index[torch.randperm(columns, generator=order)]
        largest = torch.stack([weight[:, index == group].abs().amax(1) for group in range(columns // GROUP)], 1)
        scales = (largest / 7.5).to(torch.bfloat16)
        wide = scales.float()[:, index]
        codes = (weight / wide).round().clamp(-8, 7)
        stored = {"weight_packed": pack(codes.t() + 8, 4).t(), "weight_scale": scales, "weight_shape": torch.tensor([rows, columns])}
        return stored | ({} if order is None else {"weight_g_idx": index.to(torch.int32)}), codes * wide

    return encode


def int8(path: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    scales = weight.abs().amax(1, keepdim=True) / 127
    codes = (weight / scales).round()
    return {"weight": codes.to(torch.int8), "weight_scale": scales}, codes * scales


def group(targets: list[str], format: str | None = None, **weights: Any) -> dict[str, Any]:
    defaults = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP, "symmetric": True, "actorder": None}
    return {"targets": targets, "format": format, "weights": defaults | weights, "input_activations": None, "output_activations": None}


def config(*groups: dict[str, Any], **changes: Any) -> dict[str, Any]:
    about = {"quant_method": "compressed-tensors", "quantization_status": "compressed", "format": "pack-quantized", "ignore": ["lm_head"]}
    nothing = {"kv_cache_scheme": None, "sparsity_config": {}, "transform_config": {}}
    return about | nothing | {"config_groups": {f"group_{number}": each for number, each in enumerate(groups)}} | changes


def test_groups_by_name_and_by_class(tmp_path: Path) -> None:
    """One group by expression, one by class, and names that stay plain, one of them that of a layer that engines run as one."""
    four = packed()

    def encode(path: str, weight: torch.Tensor) -> Any:
        if "o_proj" in path or "layers.1.mlp.gate_proj" in path or "layers.1.mlp.up_proj" in path:
            return None
        return int8(path, weight) if path.endswith("down_proj") else four(path, weight)

    groups = (
        group(["re:.*down_proj$"], "int-quantized", num_bits=8, strategy="channel", group_size=None),
        group(["Linear"], "pack-quantized"),
    )
    ignored = ["lm_head", "re:.*o_proj", "model.layers.1.mlp.gate_up_proj"]
    written = write(tmp_path, encode, config(*groups, format="mixed-precision", ignore=ignored))
    check(written, "compressed_tensors", num_coded=10)
    check_cuts(written, "compressed_tensors")


def test_order_of_columns(tmp_path: Path) -> None:
    written = write(tmp_path, packed(torch.Generator().manual_seed(3)), config(group(["Linear"], actorder="group")))
    check(written, "compressed_tensors", num_coded=14)
    check_cuts(written, "compressed_tensors")


def test_an_order_that_the_config_denies_is_found(tmp_path: Path) -> None:
    written = write(tmp_path, packed(torch.Generator().manual_seed(3)), config(group(["Linear"])))
    with pytest.raises(ConfigError, match=r"weight_g_idx.*actorder None"):
        bare(configured(written.folder, "compressed_tensors"))


def test_experts(tmp_path: Path) -> None:
    check_cuts(write(tmp_path, packed(), config(group(["Linear"]), ignore=["re:.*gate$"]), "mixtral"), "compressed_tensors")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kv_cache_scheme", {"num_bits": 8, "type": "int"}),
        ("sparsity_config", {"format": "sparse-24-bitmask"}),
        ("transform_config", {"config_groups": {"u": {"type": "hadamard"}}}),
        ("moe_sparsity_config", {"method": "prune"}),
        ("quantization_status", "frozen"),
        ("config_groups", {"W4A16": ["Linear"]}),
        ("config_groups", {}),
        ("output_activations", {"num_bits": 8}),
        ("format", "marlin-24"),
    ],
)
def test_what_is_not_read_is_refused_by_its_key(key: str, value: Any) -> None:
    settings = config(group(["Linear"]))
    if key == "output_activations":
        settings["config_groups"]["group_0"][key] = value
    else:
        settings[key] = value
    with pytest.raises(ConfigError, match=value if key == "format" else key.replace("config_groups", "config.group")):
        compressed_tensors.Scheme(Source(torch.bfloat16, settings)).weight("model.layers.0.mlp.down_proj", "linear")


def test_heads_and_routers_are_what_the_file_says() -> None:
    """`Linear` means them too, and many checkpoints leave them plain without a word."""
    settings = config(group(["Linear"], "int-quantized", num_bits=8, strategy="channel", group_size=None), ignore=[])
    plain = compressed_tensors.Scheme(Source(torch.bfloat16, settings))
    coded = compressed_tensors.Scheme(Source(torch.bfloat16, settings, lambda path: "F32" if path.endswith("weight_scale") else None))
    for path, role in (("lm_head", "head"), ("model.layers.0.mlp.gate", "router")):
        assert isinstance(plain.weight(path, role), unquantized.Format)  # type: ignore[arg-type]
        assert isinstance(coded.weight(path, role), eight_bit.Format)  # type: ignore[arg-type]
