"""A start over a quantized checkpoint that is wrong, or asked for wrongly, ends before a token is made, with what is wrong by name."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo import LLM
from octavo.checkpoint import gguf
from octavo.config import resolve
from octavo.config.options import Options
from octavo.errors import CheckpointError, ConfigError, OctavoError
from tests.loading.test_gguf_formats import HALVES_AT, random_blocks
from tests.quant import test_awq, test_compressed_tensors, test_fp8, test_gptq, test_int8_activations
from tests.quant.checkpoints import write
from tests.reports import test_n_weights as reports

PLAIN = "model.layers.1.mlp.down_proj"
WEIGHTS = "model.safetensors"
SMALL: dict[str, Any] = {
    "dtype": "float32",
    "max_num_seqs": 2,
    "max_num_batched_tokens": 16,
    "kv_cache_memory_bytes": 1 << 20,
    "max_model_len": 64,
    "cpu_threads": 1,
    "skip_tokenizer_init": True,
}
CT = test_compressed_tensors
# scheme -> how it is encoded, its quantization_config, a tensor of scales
WRITTEN: dict[str, tuple[Any, dict[str, Any], str]] = {
    "awq": (test_awq.encode, test_awq.CONFIG, "scales"),
    "gptq": (test_gptq.encoder(4), test_gptq.config(4), "scales"),
    "fp8": (test_fp8.per_tensor, test_fp8.STATIC, "weight_scale"),
    "fp8-blocks": (test_fp8.blocks, test_fp8.BLOCKED, "weight_scale_inv"),
    "compressed-tensors": (CT.packed(), CT.config(CT.group(["Linear"])), "weight_scale"),
    "w8a8": (test_int8_activations.encode_static, test_int8_activations.STATIC, "input_scale"),
}


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_ENABLE_V1_MULTIPROCESSING", "0")


def start(model: Path, **options: Any) -> None:
    LLM(str(model), **(SMALL | options)).shutdown()


def drop(tensors: dict[str, torch.Tensor], name: str) -> None:
    del tensors[name]


def reshape(tensors: dict[str, torch.Tensor], name: str) -> None:
    tensors[name] = torch.cat([tensors[name].reshape(-1)] * 3)[:, None].contiguous()


def no_number(tensors: dict[str, torch.Tensor], name: str) -> None:
    tensors[name] = tensors[name].clone()
    tensors[name].reshape(-1)[0] = float("nan")


def rename(tensors: dict[str, torch.Tensor], name: str) -> None:
    tensors[f"{name}_of"] = tensors.pop(name)


def shards(folder: Path) -> Path:
    """Two files with an index; the second is given."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    names = sorted(tensors)
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = folder / f"model-{number:05}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, file, {"format": "pt"})
        weight_map |= dict.fromkeys(part, file.name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return file


def configure(folder: Path, **keys: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] |= keys
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.oracle
@pytest.mark.parametrize("kind", WRITTEN)
def test_a_checkpoint_that_is_wrong(kind: str, tmp_path: Path) -> None:
    encode, config, scales = WRITTEN[kind]
    right = write(tmp_path / "right", encode, config).folder
    start(right)
    name = f"{PLAIN}.{scales}"

    def copy(called: str) -> Path:
        return Path(shutil.copytree(right, tmp_path / called))

    faults: list[Callable[[dict[str, torch.Tensor], str], None]] = [drop, reshape, no_number, rename]
    for fault in faults:
        folder = copy(fault.__name__)
        tensors = load_file(folder / WEIGHTS)
        fault(tensors, name)
        save_file(tensors, folder / WEIGHTS, {"format": "pt"})
        with pytest.raises(CheckpointError) as raised:
            start(folder)
        assert name in str(raised.value)
    folder = copy("cut")
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is cut short"):
        start(folder)
    folder = copy("shards")
    shards(folder).unlink()
    with pytest.raises(CheckpointError, match=r"model-00002-of-00002\.safetensors is missing"):
        start(folder)
    folder = copy("method")
    configure(folder, quant_method="fp4_of_tomorrow")
    with pytest.raises(ConfigError, match="asks for 'fp4_of_tomorrow'"):
        start(folder)
    with pytest.raises(ConfigError, match="--quantization bitsandbytes, but the checkpoint is in"):
        start(right, quantization="bitsandbytes")


def gguf_model(folder: Path, file: Path, number_format: str) -> tuple[dict[str, Any], Path]:
    """A llama whose feed-forward is blocks of random codes: the file's tensors, and the file."""
    kind, elements = next((kind, elements) for kind, (name, elements, _) in gguf.TYPES.items() if name == number_format)
    config = json.loads((folder / "config.json").read_text())
    tensors: dict[str, Any] = reports.gguf_tensors(folder, config)
    for name, (shape, _, _) in tensors.items():
        if ".ffn_" in name and "norm" not in name:
            blocks = random_blocks(number_format, shape[0] * shape[1] // elements, seed=len(name))
            for at in HALVES_AT[number_format]:
                blocks[:, at : at + 2] = (0x66, 0x0E)  # 0.0004
            tensors[name] = (shape, kind, blocks.tobytes())
    return tensors, file


@pytest.mark.parametrize("number_format", ["Q4_0", "Q8_0", "Q4_K", "Q6_K"])
def test_a_gguf_file_that_is_wrong(number_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4}
    folder = reports.write_random(tmp_path / "model", config=sizes)
    tensors, _ = gguf_model(folder, tmp_path, number_format)
    name = "blk.1.ffn_up.weight"
    shape, kind, raw = tensors[name]

    def saved(called: str, **changes: Any) -> Path:
        monkeypatch.setattr(reports, "gguf_tensors", lambda *_: {key: value for key, value in (tensors | changes).items() if value})
        return reports.to_gguf(folder, tmp_path / f"{called}.gguf")

    for called, value, words in (
        ("missing", None, r"mlp\.up_proj"),
        (
            "format",
            (shape, 16, b"\0" * (shape[0] * shape[1] // 256 * 66)),
            r"layers\.1\.mlp\.up_proj\.weight is in IQ2_XXS",
        ),
        ("shape", ((shape[0] // 2, shape[1]), kind, raw[: len(raw) // 2]), r"up_proj"),
        ("scale", (shape, kind, _with_nan(raw, number_format)), r"layers\.1\.mlp\.up_proj\.weight has nan"),
    ):
        with pytest.raises(OctavoError, match=words):
            start(saved(called, **{name: value}))
    start(saved("whole"))
    whole = (tmp_path / "whole.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[:-100])
    with pytest.raises(CheckpointError, match=r"cut\.gguf"):
        start(tmp_path / "cut.gguf")
    for typed in ("awq", "int4"):
        with pytest.raises(ConfigError, match=rf"--quantization {typed}, but the checkpoint is a GGUF file"):
            start(tmp_path / "whole.gguf", quantization=typed)


def _with_nan(raw: bytes, number_format: str) -> bytes:
    at = HALVES_AT[number_format][-1]
    return raw[:at] + b"\x01\x7e" + raw[at + 2 :]


def resolved(model: Path, **options: Any) -> tuple[str | None, list[str]]:
    reasons: list[str] = []
    found = resolve.resolve_model(Options(model=str(model), skip_tokenizer_init=True, **options), reasons)
    return found.quantization, reasons


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reports.write_random(tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize(
    "typed", ["awq", "gptq", "gptq_marlin", "compressed-tensors", "modelopt_fp4", "mxfp4", "torchao", "deepseek_v4_fp8"]
)
def test_a_format_that_is_only_read_asked_of_a_plain_checkpoint(typed: str, plain: Path) -> None:
    words = rf"--quantization {typed} needs a checkpoint in .* no quantization_config[\s\S]*--quantization (int4|nvfp4|fp8_per_block)"
    with pytest.raises(ConfigError, match=words):
        resolved(plain, quantization=typed)
    with pytest.raises(ConfigError, match="--quantization gguf, but the checkpoint is no GGUF file"):
        resolved(plain, quantization="gguf")


def test_the_deprecated_fp8_of_a_plain_checkpoint(plain: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "octavo"):
        found, reasons = resolved(plain, quantization="fp8")
    assert found == "fp8_per_tensor"
    assert "--quantization fp8 is deprecated for a plain checkpoint; use --quantization fp8_per_tensor" in caplog.text
    assert any("quantization = fp8_per_tensor" in reason for reason in reasons)
    start(plain, quantization="fp8")


@pytest.mark.oracle
def test_a_dtype_for_a_quantized_checkpoint_is_that_of_the_rest(tmp_path: Path) -> None:
    written = write(tmp_path, test_fp8.per_tensor, test_fp8.STATIC).folder
    found, reasons = resolved(written, dtype="bfloat16")
    assert found == "fp8"
    assert any("dtype = bfloat16" in reason and "fp8 weights keep their codes and scales" in reason for reason in reasons)
    assert not any("keep their codes" in reason for reason in resolved(written)[1])
    start(written, dtype="bfloat16")


@pytest.mark.oracle
def test_a_config_without_its_method(tmp_path: Path) -> None:
    written = write(tmp_path, test_awq.encode, {key: value for key, value in test_awq.CONFIG.items() if key != "quant_method"}).folder
    with pytest.raises(ConfigError, match=r"quantization_config in config\.json has no quant_method"):
        resolved(written)
    assert resolved(written, quantization="awq_marlin")[0] == "awq"
    start(written, quantization="awq")
    with pytest.raises(CheckpointError, match=r"q_proj\.qweight has shape"):
        start(written, quantization="gptq")
