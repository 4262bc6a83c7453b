"""octavo quantize, GGUF: other people's reader finds the same model in the file; what GGUF cannot say is refused before."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf as gguf_package
import pytest
import torch
from safetensors.torch import load_file

from octavo.checkpoint import gguf, hf_config
from octavo.config.options import Options
from octavo.config.resolve import resolve
from octavo.errors import ConfigError
from octavo.loading import write, write_gguf
from octavo.quant import blocks
from octavo.text.tokenizer import Tokenizer
from tests.loading import tokenizers_made as made
from tests.models import oracle
from tests.models.conftest import threads  # noqa: F401
from tests.models.driver import Driver
from tests.quant.checkpoints import SIZES, TOKENS, configured, weights_of

# beside the sizes: what GGUF can say of the type
CHANGES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "mixtral": {},
    "qwen2": {"use_sliding_window": False, "tie_word_embeddings": True},
    "qwen3": {"use_sliding_window": False},
    "gemma3_text": {"head_dim": 32, "query_pre_attn_scalar": 32},
}
# what transformers does not read of a file, but takes to be so
NOT_READ = {"qwen3": {"head_dim": 128}, "gemma3_text": {"head_dim": 256, "query_pre_attn_scalar": 256}}
# and the error of normal numbers, as the root of its mean square, with some room
SCHEMES = {"bf16": 0.002, "q8_0": 0.0065, "q4_0": 0.095, "q4_k": 0.082}


def source(folder: Path, model_type: str, **changes: Any) -> Path:
    """A tiny checkpoint with a tokenizer."""
    model = oracle.make(model_type, SIZES | {"vocab_size": made.VOCABULARY} | CHANGES[model_type] | changes)
    return made.save(oracle.save(model, folder), made.byte_level())


def written(folder: Path, target: Path, scheme: str) -> Path:
    write.write(resolve(Options(model=str(folder), dtype="float32")), str(target), scheme)
    return target


def plain_gguf(folder: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with monkeypatch.context() as patch:
        patch.setattr(write_gguf, "SCHEMES", {"q8_0": (("F32",), 0)})
        patch.setattr(write_gguf, "_HEAD", ("F32",))
        return written(folder, target, "q8_0")


def logits(path: Path) -> tuple[torch.Tensor, Driver]:
    ours = Driver(configured(path, None, load_format="gguf" if path.suffix else "safetensors"))
    return ours.step([(ours.sequence(), TOKENS)])[0], ours


@pytest.mark.parametrize("model_type", list(CHANGES))
def test_a_file_of_plain_numbers_is_the_model(tmp_path: Path, model_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, orders, norms and every key, without rounding: the same logits, bit for bit."""
    folder = source(tmp_path / "source", model_type)
    assert torch.equal(logits(plain_gguf(folder, tmp_path / "plain.gguf", monkeypatch))[0], logits(folder)[0])


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "gemma3_text"])
def test_transformers_reads_the_file(tmp_path: Path, model_type: str) -> None:
    import transformers

    folder = source(tmp_path / "source", model_type, **NOT_READ.get(model_type, {}))
    file = written(folder, tmp_path / "made.gguf", "q4_k")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=file.name, dtype=torch.float32).eval()
    torch.testing.assert_close(logits(file)[0], oracle.logits(theirs, TOKENS), atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("scheme", list(SCHEMES))
@pytest.mark.parametrize("model_type", ["llama", "mixtral", "gemma3_text"])
def test_weights_are_near(tmp_path: Path, model_type: str, scheme: str) -> None:
    folder = source(tmp_path / "source", model_type)
    file = written(folder, tmp_path / "made.gguf", scheme)
    formats = {tensor.type for tensor in gguf.read_header(file).tensors.values()}
    assert formats == {"F32", *{"bf16": ("BF16",), "q8_0": ("Q8_0",), "q4_0": ("Q8_0", "Q4_0"), "q4_k": ("Q8_0", "Q4_K", "Q5_0")}[scheme]}
    plain = load_file(folder / "model.safetensors")
    found = weights_of(logits(file)[1].model)
    if scheme == "bf16":  # plain numbers are in the layout of a kernel when the model is there
        stored = next(tensor for tensor in gguf_package.GGUFReader(file).tensors if tensor.name == "token_embd.weight")
        whole = plain["model.embed_tokens.weight"]
        assert torch.equal(torch.from_numpy(stored.data.copy()).view(torch.bfloat16).view(whole.shape), whole.to(torch.bfloat16))
        return
    assert len(found) > 14
    for path, numbers in found.items():
        whole = plain.get(f"{path}.weight")
        if whole is not None:
            assert (numbers - whole).square().mean().sqrt() <= SCHEMES[scheme] * whole.std(), path


def test_the_tokenizer_and_what_generation_needs_go_along(tmp_path: Path) -> None:
    folder = source(tmp_path / "source", "llama")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0], "temperature": 0.6, "top_k": 20, "do_sample": True}))
    file = written(folder, tmp_path / "made.gguf", "q8_0")
    ours, theirs = Tokenizer.load(file), Tokenizer.load(folder)
    assert ours.encode("the cat <tool> 123") == theirs.encode("the cat <tool> 123")
    assert ours.chat_template == theirs.chat_template
    generation = hf_config.read(file)[1]
    assert set(generation["eos_token_id"]) >= {2, 0}
    assert (generation["temperature"], generation["top_k"]) == (0.6, 20)
    assert gguf.read_header(file).metadata["general.file_type"] == 7


def test_a_gguf_source_keeps_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = source(tmp_path / "source", "llama")
    plain = plain_gguf(folder, tmp_path / "plain.gguf", monkeypatch)
    for scheme in SCHEMES:
        direct, again = written(folder, tmp_path / f"{scheme}.gguf", scheme), written(plain, tmp_path / f"{scheme}-2.gguf", scheme)
        first, second = gguf.read_header(direct), gguf.read_header(again)
        assert {key: repr(value) for key, value in first.metadata.items()} == {key: repr(value) for key, value in second.metadata.items()}
        assert [tensor.type for tensor in first.tensors.values()] == [tensor.type for tensor in second.tensors.values()]
        assert torch.equal(logits(direct)[0], logits(again)[0])


def test_the_same_bytes_twice(tmp_path: Path) -> None:
    folder = source(tmp_path / "source", "llama")
    first, second = (written(folder, tmp_path / f"{name}.gguf", "q4_k") for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()


def test_llama_3s_ropes_are_a_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, **scaling}
    folder = source(tmp_path / "source", "llama", rope_parameters=rope, max_position_embeddings=16384)
    assert torch.equal(logits(plain_gguf(folder, tmp_path / "plain.gguf", monkeypatch))[0], logits(folder)[0])


@pytest.mark.parametrize(
    ("model_type", "changes", "named"),
    [
        ("gemma3_text", {"query_pre_attn_scalar": 24}, "query_pre_attn_scalar 24"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}, "sliding window"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}}, "rope type 'dynamic'"),
    ],
)
def test_what_gguf_cannot_say_is_refused(tmp_path: Path, model_type: str, changes: dict[str, Any], named: str) -> None:
    folder = source(tmp_path / "source", model_type, **changes)
    with pytest.raises(ValueError, match=named):
        written(folder, tmp_path / "made.gguf", "q8_0")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_refusals(tmp_path: Path) -> None:
    folder = source(tmp_path / "source", "llama")
    with pytest.raises(ConfigError, match="no name for one"):
        written(folder, tmp_path / "made", "q8_0")
    file = written(folder, tmp_path / "made.gguf", "q8_0")
    with pytest.raises(ConfigError, match="there already"):
        written(folder, file, "q8_0")
    with pytest.raises(ConfigError, match="quantized already: it is in Q8_0"):
        written(file, tmp_path / "again.gguf", "q4_0")
    with pytest.raises(ConfigError, match=r"cannot write 'q4_00'(.|\n)*did you mean q4_0"):
        written(folder, tmp_path / "again.gguf", "q4_00")


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A disk on which a file can grow to 100 kB."""
    import resource

    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, old[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, old)


@pytest.mark.parametrize(("name", "scheme"), [("made.gguf", "q8_0"), ("made", "int8")])
def test_a_full_disk_leaves_nothing(tmp_path: Path, name: str, scheme: str, request: pytest.FixtureRequest) -> None:
    folder = source(tmp_path / "source", "llama")
    request.getfixturevalue("full")
    with pytest.raises(ConfigError, match="cannot be written"):
        written(folder, tmp_path / name, scheme)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(("name", "scheme"), [("made.gguf", "q8_0"), ("made", "int8")])
def test_an_interrupt_leaves_nothing(tmp_path: Path, name: str, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = source(tmp_path / "source", "llama")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(blocks, "encode", interrupted)
    monkeypatch.setattr(write, "save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        written(folder, tmp_path / name, scheme)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
