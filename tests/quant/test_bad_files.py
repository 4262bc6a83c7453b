"""What is wrong with a quantized weight is found before anything is computed, and named: the file, the tensor or the key."""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo import plugins
from octavo.checkpoint import index as checkpoint_index
from octavo.config import quantization
from octavo.config.options import Options
from octavo.errors import CheckpointError, ConfigError
from octavo.layers.weight import Piece, Weight
from octavo.ops import gguf_blocks
from octavo.quant import online as online_schemes
from octavo.quant.schemes import gguf
from tests.loading.test_gguf_formats import HALVES_AT, random_blocks
from tests.quant import made
from tests.quant.oracles import PATH, Case, Written, cases

ONE_OF_EACH = made.one_of_each()
ALL = (*ONE_OF_EACH, *made.online())
# may be missing: they mean nothing here, or are zero
NOT_NEEDED = {"weight_format", "_weight_zero_point"}
HAS_SCALES = ("scale", "absmax", "SCB")


def changed(case: Case, **tensors: torch.Tensor | None) -> Case:
    kept = {name: tensor for name, tensor in (case.stored | tensors).items() if tensor is not None}
    return replace(case, stored=kept)


def needed(case: Case) -> list[str]:
    return [name for name in case.stored if name not in NOT_NEEDED and (name != "input_scale" or case.name == "w8a8-static")]


def scales(case: Case) -> list[str]:
    """Those whose numbers are scales, and not codes of such."""
    found = [name for name in needed(case) if any(word in name for word in HAS_SCALES)]
    return [name for name in found if not (case.stored[name].dtype == torch.uint8 and "absmax" in name)]


def read(folder: Path, case: Case) -> torch.Tensor:
    return Written(folder, case).numbers()


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_missing_tensor(case: Case, tmp_path: Path) -> None:
    for number, name in enumerate(name for name in needed(case) if name != "g_idx" or case.config.get("desc_act")):
        with pytest.raises((CheckpointError, ConfigError)) as raised:
            read(tmp_path / str(number), changed(case, **{name: None}))
        assert f"{PATH}.{name}" in str(raised.value) or f"{PATH}.weight" in str(raised.value)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_tensor_under_another_name(case: Case, tmp_path: Path) -> None:
    """Both are named: what is missing and what is not known."""
    name = needed(case)[-1]
    with pytest.raises((CheckpointError, ConfigError), match=PATH):
        read(tmp_path, changed(case, **{name: None, name + "_of": case.stored[name]}))


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_wrong_shape(case: Case, tmp_path: Path) -> None:
    for number, name in enumerate(needed(case)):
        wrong = torch.cat([case.stored[name].reshape(-1)] * 3)[:, None]
        with pytest.raises((CheckpointError, ConfigError)) as raised:
            read(tmp_path / str(number), changed(case, **{name: wrong}))
        assert PATH in str(raised.value), name


def not_numbers(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Copies whose last entry is no finite number, in each way that their format has."""
    raws = [0xFF] if tensor.dtype in (torch.uint8, torch.float8_e8m0fnu) else [0x7F, 0xFF] if tensor.dtype.itemsize == 1 else []
    for raw in raws:
        damaged = tensor.clone()
        damaged.view(torch.uint8).reshape(-1)[-1] = raw
        yield damaged
    for value in () if raws else (float("nan"), float("inf"), -float("inf")):
        damaged = tensor.clone()
        damaged.reshape(-1)[-1] = value
        yield damaged


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_a_scale_that_is_no_number(case: Case, tmp_path: Path) -> None:
    assert scales(case)
    for name in scales(case):
        for number, damaged in enumerate(not_numbers(case.stored[name])):
            with pytest.raises(CheckpointError, match=rf"{PATH}\.{name} has -?(nan|inf) among its numbers"):
                read(tmp_path / f"{name}{number}", changed(case, **{name: damaged}))


@pytest.mark.parametrize("case", made.online(), ids=str)
def test_a_plain_number_that_is_none_is_not_made_into_codes(case: Case, tmp_path: Path) -> None:
    damaged = case.stored["weight"].clone()
    damaged[3, 5] = float("inf")
    with pytest.raises(CheckpointError, match=rf"{PATH}\.weight has inf among its numbers"):
        read(tmp_path, changed(case, weight=damaged))


# those of whole tensors, whose zero would make every number zero
WHOLE = [("fp8", "per-tensor", "weight_scale"), ("compressed_tensors", "nvfp4-pack-quantized", "weight_global_scale")]
WHOLE += [
    ("modelopt", "nvfp4", "weight_scale_2"),
    ("modelopt", "fp8", "weight_scale"),
    ("compressed_tensors", "w8a8-static", "input_scale"),
]
WHOLE += [("compressed_tensors", kind, "weight_scale") for kind in ("int-quantized-tensor", "float-quantized-tensor")]
# magnitudes, and scales of codes that have a sign of their own
MAGNITUDES = [("fp8", "blocks", "weight_scale_inv"), ("bitsandbytes", "nf4-blocks-of-64", "weight.absmax"), ("bitsandbytes", "int8", "SCB")]
MAGNITUDES += [("compressed_tensors", "float-quantized-channel", "weight_scale"), ("modelopt", "nvfp4", "weight_scale")]
MAGNITUDES += [("bitsandbytes", "fp4-blocks-of-64-nested", "weight.nested_absmax"), ("torchao", "float8", "_weight_scale")]


def found(scheme: str, name: str) -> Case:
    return next(case for case in (*cases(), *made.made()) if (case.scheme, case.name) == (scheme, name))


@pytest.mark.parametrize(("scheme", "name", "tensor"), [*WHOLE, *MAGNITUDES])
def test_a_scale_of_a_sign_that_it_cannot_have(scheme: str, name: str, tensor: str, tmp_path: Path) -> None:
    case = found(scheme, name)
    wrong = -case.stored[tensor].float().abs().clamp(min=0.01)
    values = [wrong, torch.zeros_like(wrong)] if (scheme, name, tensor) in WHOLE else [wrong]
    for number, value in enumerate(values):
        with pytest.raises(CheckpointError, match=rf"{PATH}\.{tensor}.*(more than 0|negative)"):
            read(tmp_path / str(number), changed(case, **{tensor: value.to(case.stored[tensor].dtype)}))


@pytest.mark.parametrize(("scheme", "name", "tensor"), [("gptq", "gptq", "scales"), ("awq", "awq", "scales"), *MAGNITUDES])
def test_scales_that_may_be_zero_and_those_that_may_be_negative(scheme: str, name: str, tensor: str, tmp_path: Path) -> None:
    """Groups of nothing but zeros have them; and some tools let integers' groups have negative ones."""
    case = found(scheme, name)
    zero = torch.zeros_like(case.stored[tensor].float()).to(case.stored[tensor].dtype)
    assert read(tmp_path / "zero", changed(case, **{tensor: zero})).isfinite().all()
    if tensor == "scales":
        assert torch.equal(read(tmp_path / "negative", changed(case, scales=-case.stored[tensor])), -case.numbers)


@pytest.mark.parametrize(("number_format", "at"), [(name, at) for name, places in HALVES_AT.items() for at in places])
def test_a_scale_in_a_block_of_gguf(number_format: str, at: int) -> None:
    elements, size = gguf_blocks.SIZES[number_format]
    blocks = torch.from_numpy(random_blocks(number_format, 12, seed=3)).view(4, 3 * size)
    for place in HALVES_AT[number_format]:
        blocks.view(12, size)[:, place : place + 2] = torch.tensor([0x66, 0x2E], dtype=torch.uint8)  # 0.1
    for raw in (None, [0x00, 0x7C], [0x00, 0xFC], [0x01, 0x7E]):
        weight = Weight(gguf.Format(number_format), [Piece(name, 2, 3 * elements) for name in "ab"], torch.device("cpu"))
        for stored, rows in zip(weight.stored(), (blocks[:2], blocks[2:]), strict=True):
            stored.target.copy_(rows)
            if raw is not None and stored.path.startswith("b"):
                stored.target[1, size + at : size + at + 2] = torch.tensor(raw, dtype=torch.uint8)
        if raw is None:
            weight.finish(lambda layout, tensors: tensors)
            continue
        with pytest.raises(CheckpointError, match=r"^b\.weight has -?(nan|inf) among"):
            weight.finish(lambda layout, tensors: tensors)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_another_number_format(case: Case, tmp_path: Path) -> None:
    for number, name in enumerate(name for name in needed(case) if any(word in name for word in ("weight", "blocks", "scale"))):
        with pytest.raises((CheckpointError, ConfigError), match=PATH):
            read(tmp_path / str(number), changed(case, **{name: torch.zeros(case.stored[name].shape, dtype=torch.int16)}))


@pytest.mark.parametrize("name", ["gptq-ordered", "ordered"])
@pytest.mark.parametrize("value", [-1, 4, 2**30])
def test_a_column_in_a_group_that_is_not_there(name: str, value: int, tmp_path: Path) -> None:
    case = next(case for case in made.made() if case.name == name)
    key = "g_idx" if "gptq" in name else "weight_g_idx"
    indices = case.stored[key].clone()
    indices[7] = value
    with pytest.raises(CheckpointError, match=rf"{PATH}\.{key} names groups that are not there"):
        read(tmp_path, changed(case, **{key: indices}))


def test_a_shape_that_is_not_the_weight_s(tmp_path: Path) -> None:
    case = found("compressed_tensors", "pack-quantized-4-bits-group")
    with pytest.raises(CheckpointError, match=rf"{PATH}\.weight_shape is \[\[32, 120\]\], and the weight has 128 columns"):
        read(tmp_path, changed(case, weight_shape=torch.tensor([32, 120])))


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_a_file_that_was_cut_short(case: Case, tmp_path: Path) -> None:
    Written(tmp_path, case)
    file = tmp_path / "model.safetensors"
    whole = file.read_bytes()
    for size in (len(whole) - 7, len(whole) // 2, 20, 0):
        file.write_bytes(whole[:size])
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


WRONG_VALUES: tuple[Any, ...] = ("x", "8", -5, 0, 3.5, [], [1], {}, {"a": 1}, None, True)


def variants(config: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Each key of a configuration, at any depth, with each of the wrong values, without the key, and with another one in its place."""
    for key, value in config.items():
        if key == "quant_method":
            continue
        if isinstance(value, dict):
            for keys, inner in variants(value):
                yield (key, *keys), {**config, key: inner}
        for wrong in WRONG_VALUES:
            yield (key,), {**config, key: wrong}
        others = {name: kept for name, kept in config.items() if name != key}
        yield (key,), others
        yield (key,), others | {key + "_": value}


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_a_changed_key(case: Case, tmp_path: Path) -> None:
    """Whatever a key says instead: the same numbers are read, for the key means nothing or has that default, or the error names the key,
    one that it is in, or the tensor that does not belong to it.
    """
    written = Written(tmp_path, case)
    right = written.numbers()
    for keys, config in variants(case.config):
        told = None
        try:
            again = written.reread(config)
        except (CheckpointError, ConfigError) as error:
            told = str(error)
        if told is None:
            assert torch.equal(again, right), (keys, config)
        else:
            assert any(name in told for name in (*keys, PATH)), (told, keys, config)


@pytest.mark.parametrize("method", ["quark", "fp4_of_tomorrow", "experts_int8", "int4", "unquantized", "gguf", "", "../awq"])
def test_an_unknown_quant_method(method: str) -> None:
    with pytest.raises(ConfigError, match=rf"quantization_config asks for '{method}'[\s\S]*known: awq, "):
        quantization.decide_quantization(Options(model="m"), {"quantization_config": {"quant_method": method}}, [])


@pytest.mark.parametrize("value", ["fp8", ["fp8"], 8, True])
def test_a_quantization_config_that_is_no_table(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"quantization_config in config.json is .*, not a table"):
        quantization.decide_quantization(Options(model="m"), {"quantization_config": value}, [])


@pytest.mark.parametrize("method", [8, ["awq"], {"awq": 1}])
def test_a_quant_method_that_is_no_name(method: Any) -> None:
    with pytest.raises(ConfigError, match=r"quant_method is .*, not a name"):
        quantization.decide_quantization(Options(model="m"), {"quantization_config": {"quant_method": method}}, [])


def test_every_scheme_is_among_them() -> None:
    """And those that are made while loading are the ones that the configuration takes for a plain checkpoint."""
    aliases = {"modelopt_fp4", "modelopt_mixed", "modelopt_mxfp8", "gpt_oss_mxfp4"}
    schemes = set(plugins.names("quant.schemes")) - aliases
    assert {case.scheme for case in ALL} | {"unquantized", "gguf", "online"} == schemes
    loaded = {name: plugins.load("quant.schemes", name).Scheme for name in schemes}
    assert {name for name, scheme in loaded.items() if issubclass(scheme, online_schemes.Scheme)} == set(quantization.ONLINE)
