"""FP8 checkpoints: a scale for the tensor, or for each block, in float32 or as powers of two."""

from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.errors import CheckpointError, ConfigError
from octavo.loading.build import bare
from octavo.parallel.cut import Group
from tests.models.driver import Driver
from tests.quant.checkpoints import Written, check, check_cuts, configured, write

BLOCK = 32


def per_tensor(path: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    scale = weight.abs().max() / 448
    codes = (weight / scale).to(torch.float8_e4m3fn)
    return {"weight": codes, "weight_scale": scale, "input_scale": torch.tensor(0.01)}, codes.float() * scale


def blocks(path: str, weight: torch.Tensor, is_ue8m0: bool = False, size: int = BLOCK) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    rows, columns = weight.shape
    largest = weight.view(rows // size, size, columns // size, size).abs().amax((1, 3))
    scales = largest / 448
    if is_ue8m0:
        scales = torch.exp2(scales.log2().ceil())
    wide = scales.repeat_interleave(size, 0).repeat_interleave(size, 1)
    codes = (weight / wide).clamp(-448, 448).to(torch.float8_e4m3fn)
    stored = scales.to(torch.float8_e8m0fnu) if is_ue8m0 else scales
    return {"weight": codes, "weight_scale_inv": stored}, codes.float() * wide


def ue8m0(path: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    return blocks(path, weight, True)


STATIC = {"quant_method": "fp8", "activation_scheme": "static"}
BLOCKED = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [BLOCK, BLOCK]}


@pytest.fixture(params=["per_tensor", "blocks", "ue8m0"])
def written(request: Any, tmp_path: Path) -> Written:
    encode, config = {"per_tensor": (per_tensor, STATIC), "blocks": (blocks, BLOCKED), "ue8m0": (ue8m0, BLOCKED)}[request.param]
    return write(tmp_path, encode, config)


def test_numbers_and_logits(written: Written) -> None:
    check(written, "fp8", num_coded=14)


def test_cuts(written: Written) -> None:
    check_cuts(written, "fp8")


def test_experts(tmp_path: Path) -> None:
    check(write(tmp_path, blocks, BLOCKED, "mixtral"), "fp8")


def test_what_the_config_lists_stays_plain(tmp_path: Path) -> None:
    def encode(path: str, weight: torch.Tensor) -> Any:
        return None if "o_proj" in path else blocks(path, weight)

    check(write(tmp_path, encode, BLOCKED | {"modules_to_not_convert": ["o_proj"]}), "fp8", num_coded=12)


def test_a_cut_inside_a_block_is_refused(tmp_path: Path) -> None:
    written = write(tmp_path, blocks, BLOCKED, hidden_size=64)  # heads of 16: two share a block
    with pytest.raises(ConfigError, match=r"whole groups of 32[\s\S]*expert parallel"):
        bare(configured(written.folder, "fp8"), Group(0, 4))


def test_a_scale_that_is_no_number_names_its_tensor(tmp_path: Path) -> None:
    def encode(path: str, weight: torch.Tensor) -> Any:
        tensors, numbers = per_tensor(path, weight)
        if path.endswith("layers.1.mlp.down_proj"):
            tensors["weight_scale"] = torch.tensor(float("nan"))
        return tensors, numbers

    with pytest.raises(CheckpointError, match=r"layers\.1\.mlp\.down_proj"):
        Driver(configured(write(tmp_path, encode, STATIC).folder, "fp8"))


def test_a_missing_scale_is_listed(tmp_path: Path) -> None:
    def encode(path: str, weight: torch.Tensor) -> Any:
        tensors, numbers = per_tensor(path, weight)
        if path.endswith("layers.0.self_attn.k_proj"):
            del tensors["weight_scale"]
        return tensors, numbers

    with pytest.raises(CheckpointError, match=r"layers\.0\.self_attn\.k_proj\.weight_scale is missing"):
        Driver(configured(write(tmp_path, encode, STATIC).folder, "fp8"))
