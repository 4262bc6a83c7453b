"""Calibration: what is noted is what went in, and it comes to the checkpoint as scales of activations and as what matters in blocks."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from octavo.cli import quantize
from octavo.config.options import Options
from octavo.config.resolve import resolve
from octavo.errors import ConfigError
from octavo.worker import calibrate
from tests.loading import tokenizers_made as made
from tests.models import oracle
from tests.models.conftest import threads  # noqa: F401
from tests.models.driver import Driver
from tests.quant.checkpoints import SIZES, TOKENS, configured


@pytest.fixture
def source(tmp_path: Path) -> Path:
    model = oracle.make("gemma3_text", SIZES | {"vocab_size": made.VOCABULARY, "head_dim": 32, "query_pre_attn_scalar": 32})
    return made.save(oracle.save(model, tmp_path / "source"), made.byte_level())


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text("the cat sat on the mat, and the dog ran 123 times. " * 40)
    return file


@pytest.mark.oracle
def test_what_is_noted_is_what_goes_into_transformers_layers(source: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    monkeypatch.setattr(calibrate, "MOST_WINDOWS", 2)
    monkeypatch.setattr(calibrate, "WINDOW", 96)
    config = resolve(Options(model=str(source), dtype="float32"))
    felt = calibrate.calibrate(config, str(text))
    windows = calibrate._windows(config, str(text))
    assert [len(window) for window in windows] == [96, 96]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    inputs: dict[str, list[torch.Tensor]] = {}
    for path, module in theirs.named_modules():
        if isinstance(module, torch.nn.Linear) and path != "lm_head":
            module.register_forward_pre_hook(lambda _, given, path=path: inputs.setdefault(path, []).append(given[0][0]))
    for window in windows:
        oracle.logits(theirs, window)
    assert set(felt) == set(inputs)
    for path, seen in inputs.items():
        whole = torch.cat(seen)
        torch.testing.assert_close(felt[path].mean_square, whole.square().mean(0), atol=1e-5, rtol=1e-3)
        assert felt[path].largest == pytest.approx(float(whole.abs().max()), rel=1e-3)


def test_static_scales(source: Path, text: Path, tmp_path: Path) -> None:
    assert quantize.run([str(source), str(tmp_path / "made"), "--scheme", "int8_static", "--calibration", str(text)]) == 0
    stored = load_file(tmp_path / "made" / "model.safetensors")
    scales = {name: value for name, value in stored.items() if name.endswith("input_scale")}
    assert len(scales) == 2 * 7
    assert all(value.shape == (1,) and value > 0 for value in scales.values())
    ours, plain = Driver(configured(tmp_path / "made", "compressed_tensors")), Driver(configured(source, None))
    expected = plain.step([(plain.sequence(), TOKENS)])[0]
    assert (ours.step([(ours.sequence(), TOKENS)])[0] - expected).square().mean() < 0.01 * expected.square().mean()


def test_what_matters_changes_the_blocks(source: Path, text: Path, tmp_path: Path) -> None:
    for name, more in (("plain", []), ("calibrated", ["--calibration", str(text)])):
        assert quantize.run([str(source), str(tmp_path / f"{name}.gguf"), "--scheme", "q4_k", *more]) == 0
    assert (tmp_path / "plain.gguf").read_bytes() != (tmp_path / "calibrated.gguf").read_bytes()


def test_refusals(source: Path, text: Path, tmp_path: Path) -> None:
    def run(*words: str) -> None:
        quantize.run([str(source), str(tmp_path / "made"), "--scheme", *words])

    with pytest.raises(ConfigError, match="needs --calibration"):
        run("int8_static")
    with pytest.raises(ConfigError, match="--calibration is not for --scheme int8"):
        run("int8", "--calibration", str(text))
    with pytest.raises(ConfigError, match="cannot be read"):
        run("int8_static", "--calibration", str(tmp_path / "none.txt"))
    (tmp_path / "short.txt").write_text("the")
    with pytest.raises(ConfigError, match="too short"):
        run("int8_static", "--calibration", str(tmp_path / "short.txt"))
    assert not (tmp_path / "made").exists()
