"""octavo quantize: what it writes runs as the same scheme does online, bit for bit, and holds what other readers expect."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from octavo.cli import quantize
from octavo.errors import ConfigError
from octavo.loading import write
from octavo.ops.weights import Coded, decode
from tests.models import oracle
from tests.models.conftest import threads  # noqa: F401
from tests.models.driver import Driver
from tests.quant.checkpoints import SIZES, TOKENS, configured, weights_of

ONLINE = ("int8", "int8_token", "int8_per_channel_weight_only", "fp8_per_tensor")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = oracle.save(oracle.make("llama", SIZES), tmp_path / "source")
    (folder / "tokenizer.json").write_text("{}")
    return folder


def logits(folder: Path, scheme: str | None) -> torch.Tensor:
    ours = Driver(configured(folder, scheme))
    return ours.step([(ours.sequence(), TOKENS)])[0]


@pytest.mark.parametrize(
    ("model_type", "scheme"), [*(("llama", scheme) for scheme in ONLINE), ("mixtral", "int8"), ("gemma3_text", "int8")]
)
def test_it_runs_as_the_online_form(tmp_path: Path, model_type: str, scheme: str) -> None:
    folder = oracle.save(oracle.make(model_type, SIZES), tmp_path / "source")
    done = write.write(configured(folder, None), str(tmp_path / "made"), scheme)
    assert done.num_coded
    assert done.written_bytes < done.read_bytes / 2
    assert torch.equal(logits(tmp_path / "made", "compressed_tensors"), logits(folder, scheme))


def test_int4_is_within_half_a_step_and_groups_can_be_chosen(tmp_path: Path, source: Path) -> None:
    for group in (None, 64):
        made = tmp_path / f"made{group}"
        write.write(configured(source, None), str(made), "int4", group)
        plain = load_file(source / "model.safetensors")
        for path, numbers in weights_of(Driver(configured(made, "compressed_tensors")).model).items():
            whole = plain[f"{path}.weight"]
            runs = whole.view(len(whole), -1, group or 32)
            step = torch.maximum(runs.amax(-1) / 7, -runs.amin(-1) / 8).repeat_interleave(group or 32, 1)
            assert ((numbers - whole).abs() <= 0.54 * step).all(), path


def test_the_codes_of_int4_are_those_that_the_layout_says(source: Path, tmp_path: Path) -> None:
    """Eight to a word along the columns, the first lowest, 8 added."""
    write.write(configured(source, None), str(tmp_path / "made"), "int4")
    stored = load_file(tmp_path / "made" / "model.safetensors")
    name = "model.layers.0.mlp.down_proj"
    words, scales = stored[f"{name}.weight_packed"], stored[f"{name}.weight_scale"].float()
    codes = torch.stack([((words.long() >> (4 * place)) & 15) - 8 for place in range(8)], -1).flatten(1)
    layout = Coded(code="int4_offset", group=32, scale="bfloat16")
    numbers = decode(layout, (words.view(torch.uint8), stored[f"{name}.weight_scale"]), *codes.shape)
    assert torch.equal(numbers, codes * scales.repeat_interleave(32, 1))
    assert stored[f"{name}.weight_shape"].tolist() == list(codes.shape)


def test_other_files_and_the_config_go_along(source: Path, tmp_path: Path) -> None:
    assert quantize.run([str(source), str(tmp_path / "made"), "--scheme", "int8-token", "--dtype", "float32"]) == 0
    assert (tmp_path / "made" / "tokenizer.json").read_text() == "{}"
    assert not [path for path in tmp_path.iterdir() if "partial" in path.name]
    config = json.loads((tmp_path / "made" / "config.json").read_text())
    assert config["hidden_size"] == SIZES["hidden_size"]
    about = config["quantization_config"]
    assert about["config_groups"]["group_0"]["input_activations"]["strategy"] == "token"
    assert "lm_head" in about["ignore"]


def test_several_files_have_an_index(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "SHARD_BYTES", 100_000)
    write.write(configured(source, None), str(tmp_path / "made"), "int8")
    index = json.loads((tmp_path / "made" / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2
    assert torch.equal(logits(tmp_path / "made", "compressed_tensors"), logits(source, "int8"))


def test_refusals(source: Path, tmp_path: Path) -> None:
    config = configured(source, None)
    with pytest.raises(ConfigError, match="cannot write 'q9'"):
        write.write(config, str(tmp_path / "made"), "q9")
    with pytest.raises(ConfigError, match="not for --scheme int8"):
        write.write(config, str(tmp_path / "made"), "int8", 32)
    with pytest.raises(ConfigError, match="not whole groups of 96"):
        write.write(config, str(tmp_path / "made"), "int4", 96)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    with pytest.raises(ConfigError, match="there already"):
        write.write(config, str(source), "int8")
    write.write(config, str(tmp_path / "made"), "int8")
    with pytest.raises(ConfigError, match="has been quantized already: it is in compressed_tensors"):
        write.write(configured(tmp_path / "made", "compressed_tensors"), str(tmp_path / "again"), "int8")


def test_the_command_line_names_what_can_be_written() -> None:
    from octavo.loading import write_gguf
    from octavo.quant.written import SCHEMES

    assert tuple(SCHEMES) == quantize.FOLDERS
    assert tuple(write_gguf.SCHEMES) == quantize.FILES


def test_nothing_is_written_that_the_checkpoint_lacks(source: Path, tmp_path: Path) -> None:
    """Scales of the cache have a default, and need not be there."""
    write.write(configured(source, None), str(tmp_path / "made"), "int8")
    stored = {name.removesuffix("_scale") for name in load_file(tmp_path / "made" / "model.safetensors")}
    assert stored == set(load_file(source / "model.safetensors"))


def test_what_is_beside_the_destination_is_left_alone(source: Path, tmp_path: Path) -> None:
    (tmp_path / "made.partial").mkdir()
    (tmp_path / "made.partial" / "mine").write_text("")
    write.write(configured(source, None), str(tmp_path / "made"), "int8")
    assert (tmp_path / "made.partial" / "mine").exists()
