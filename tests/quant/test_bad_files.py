"""What is wrong with a quantized checkpoint is found before anything is computed, and named: the file, the tensor or the key."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from octavo.checkpoint import index as checkpoint_index
from octavo.config.options import Options
from octavo.config.quantization import decide_quantization
from octavo.errors import CheckpointError, ConfigError
from tests.quant.oracles import PATH, Case, Written, cases

ONE_OF_EACH = tuple({(case.scheme, case.name.split("-")[0], len(case.stored)): case for case in cases()}.values())
NOT_USED = {"input_scale", "weight_format", "_weight_zero_point"}


def changed(case: Case, **tensors: torch.Tensor | None) -> Case:
    kept = {name: tensor for name, tensor in (case.stored | tensors).items() if tensor is not None}
    return replace(case, stored=kept)


def needed(case: Case) -> list[str]:
    return [name for name in case.stored if name not in NOT_USED]


def read(folder: Path, case: Case) -> None:
    Written(folder, case).numbers()


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_a_missing_tensor(case: Case, tmp_path: Path) -> None:
    for number, name in enumerate(needed(case)):
        with pytest.raises((CheckpointError, ConfigError)) as raised:
            read(tmp_path / str(number), changed(case, **{name: None}))
        assert f"{PATH}.{name}" in str(raised.value) or f"{PATH}.weight" in str(raised.value)


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_a_changed_key(case: Case, tmp_path: Path) -> None:
    """Both are named: what is missing and what is not known."""
    name = needed(case)[-1]
    with pytest.raises((CheckpointError, ConfigError), match=PATH):
        read(tmp_path, changed(case, **{name: None, name + "_of": case.stored[name]}))


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_a_wrong_shape(case: Case, tmp_path: Path) -> None:
    for number, name in enumerate(needed(case)):
        wrong = torch.cat([case.stored[name].reshape(-1)] * 3)[:, None]
        with pytest.raises((CheckpointError, ConfigError)) as raised:
            read(tmp_path / str(number), changed(case, **{name: wrong}))
        assert PATH in str(raised.value), name


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_a_scale_that_is_no_number(case: Case, tmp_path: Path) -> None:
    scales = [name for name in needed(case) if any(word in name for word in ("scale", "absmax", "SCB"))]
    found = 0
    for name in scales:
        damaged = case.stored[name].clone()
        if damaged.dtype == torch.uint8 and "absmax" in name:
            continue  # codes of a table: every one is a number
        flat = damaged.view(torch.uint8).reshape(-1) if damaged.dtype.itemsize == 1 else damaged.reshape(-1)
        flat[-1] = 0xFF if damaged.dtype.itemsize == 1 else float("nan")
        if damaged.dtype == torch.float8_e4m3fn:
            flat[-1] = 0x7F
        with pytest.raises(CheckpointError, match=PATH):
            read(tmp_path / name, changed(case, **{name: damaged}))
        found += 1
    assert found


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_another_number_format(case: Case, tmp_path: Path) -> None:
    name = next(name for name in needed(case) if "weight" in name)
    with pytest.raises((CheckpointError, ConfigError), match=PATH):
        read(tmp_path, changed(case, **{name: case.stored[name].to(torch.int16)}))


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_a_file_that_was_cut_short(case: Case, tmp_path: Path) -> None:
    Written(tmp_path, case)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        checkpoint_index.read(tmp_path)


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_a_missing_shard(case: Case, tmp_path: Path) -> None:
    Written(tmp_path, case)
    shutil.move(tmp_path / "model.safetensors", tmp_path / "model-00001-of-00002.safetensors")
    names = {f"{PATH}.{name}": "model-00001-of-00002.safetensors" for name in case.stored} | {"x": "model-00002-of-00002.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    with pytest.raises(CheckpointError, match="model-00002-of-00002"):
        checkpoint_index.read(tmp_path)


@pytest.mark.parametrize("method", ["quark", "fp4_of_tomorrow", "experts_int8"])
def test_an_unknown_quant_method(method: str) -> None:
    with pytest.raises(ConfigError, match=rf"quantization_config asks for '{method}'[\s\S]*known: awq, "):
        decide_quantization(Options(model="m"), {"quantization_config": {"quant_method": method}}, [])


def test_every_scheme_is_among_them() -> None:
    schemes = {"compressed_tensors", "modelopt", "bitsandbytes", "torchao", "mxfp8", "deepseek_v4_fp8"}
    assert {case.scheme for case in ONE_OF_EACH} >= schemes
