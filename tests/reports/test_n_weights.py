"""Reports of kind N: a checkpoint is read whole and rightly, or the start fails and names what is wrong with it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer as Backend

from octavo import LLM, SamplingParams
from octavo.errors import CheckpointError, OctavoError, UnsupportedModelError
from octavo.protocol.outputs import RequestOutput
from octavo.text.tokenizer import Tokenizer
from tests.loading.gguf_bytes import write as write_gguf
from tests.models import oracle
from tests.reports.servers import write_random
from tests.tolerances import ATOL

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PROMPTS = [list(range(5 + n, 60 + n)) for n in range(3)]
SMALL: dict[str, Any] = {
    "dtype": "float32",
    "max_num_seqs": 4,
    "max_num_batched_tokens": 64,
    "kv_cache_memory_bytes": 1 << 20,
    "cpu_threads": 1,
}


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dozens of small models are loaded."""
    monkeypatch.setenv("OCTAVO_ENABLE_V1_MULTIPROCESSING", "0")


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random(tmp_path_factory.mktemp("plain"))


@pytest.fixture
def folder(plain: Path, tmp_path: Path) -> Path:
    """A copy of the model, to be spoilt."""
    return Path(shutil.copytree(plain, tmp_path / "model"))


def outputs(model: Path, **options: Any) -> list[RequestOutput]:
    """Greedy answers with the log-probabilities of every token of the prompts and of the answers."""
    with LLM(str(model), **(SMALL | options)) as llm:
        params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, prompt_logprobs=2, logprobs=2, detokenize=False)
        return llm.generate(PROMPTS, params, use_tqdm=False)


def numbers(found: list[RequestOutput]) -> list[tuple[list[int], list[float]]]:
    """Of each answer its tokens, and every log-probability."""
    result = []
    for output in found:
        positions = [*(output.prompt_logprobs or [])[1:], *(output.outputs[0].logprobs or [])]
        values = [entry.logprob for position in positions if position for _, entry in sorted(position.items())]
        result.append((list(output.outputs[0].token_ids), values))
    return result


def same(one: list[RequestOutput], other: list[RequestOutput]) -> bool:
    """Equal tokens, and equal numbers within what float32 leaves open."""
    pairs = list(zip(numbers(one), numbers(other), strict=True))
    return all(a[0] == b[0] and np.allclose(a[1], b[1], rtol=0, atol=ATOL["float32"]) for a, b in pairs)


def configure(folder: Path, **keys: Any) -> Path:
    config = json.loads((folder / "config.json").read_text()) | keys
    (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    return folder


def shard(folder: Path, count: int = 3) -> list[Path]:
    """Split the weights into files with an index."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    names = sorted(tensors)
    files, weight_map = [], {}
    size = -(-len(names) // count)
    for number, part in enumerate(names[first : first + size] for first in range(0, len(names), size)):
        files.append(folder / f"model-{number + 1:05}-of-{count:05}.safetensors")
        save_file({name: tensors[name] for name in part}, files[-1], metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, files[-1].name)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return files


def exit_of(*words: str) -> tuple[int, str]:
    """The exit code and what is said of a server that cannot start."""
    command = [
        sys.executable,
        "-m",
        "octavo.cli.main",
        "serve",
        *words,
        "--port",
        "0",
        "--kv-cache-memory-bytes",
        "1M",
        "--cpu-threads",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2])
    return done.returncode, done.stdout + done.stderr


ROPES: dict[str, dict[str, Any]] = {
    "yarn": {"factor": 2.0, "original_max_position_embeddings": 64},
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2.0},
    "llama3": {"factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
}
LIMITS = {"yarn": 128, "linear": 256, "dynamic": 256, "llama3": 128}


@pytest.mark.parametrize("kind", ROPES)
def test_n1_both_spellings_of_a_rope_type_are_one(plain: Path, folder: Path, kind: str) -> None:
    length, unscaled = 128, outputs(plain)
    found = []
    for spelled in ({"type": kind}, {"rope_type": kind}, {"type": kind, "rope_type": kind}):
        configure(folder, max_position_embeddings=length, rope_scaling=spelled | ROPES[kind])
        with LLM(str(folder), **SMALL) as llm:
            assert llm.facts.max_model_len == LIMITS[kind]
        found.append(outputs(folder))
    # as newer files have it: everything about the rotation in one place
    configure(folder, rope_scaling=None, rope_theta=None, rope_parameters={"rope_type": kind, "rope_theta": 10000.0} | ROPES[kind])
    found.append(outputs(folder))
    assert all(same(each, found[0]) for each in found[1:])
    assert not same(found[0], unscaled)
    if kind == "dynamic":  # which changes nothing as long as nobody may go beyond the length of training
        assert same(outputs(folder, max_model_len=length), unscaled)


@pytest.mark.parametrize("spelled", [{"type": "spiral"}, {"rope_type": "spiral", "factor": 2.0}, {"rope_type": "linear"}])
def test_n1_a_rope_type_that_is_unknown_or_lacks_a_number_is_named(folder: Path, spelled: dict[str, Any]) -> None:
    configure(folder, rope_scaling=spelled)
    with pytest.raises(UnsupportedModelError, match=r"spiral|factor"):
        LLM(str(folder), **SMALL)


def test_n2_a_tied_head_may_be_written_out_and_an_untied_one_must_be(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tied = {name: tensor for name, tensor in tensors.items() if name != "lm_head.weight"}
    save_file(tied, folder / WEIGHTS, metadata={"format": "pt"})
    without = outputs(configure(folder, tie_word_embeddings=True))
    save_file(tied | {"lm_head.weight": tensors["model.embed_tokens.weight"].copy()}, folder / WEIGHTS, metadata={"format": "pt"})
    assert same(outputs(folder), without)
    assert same(outputs(configure(folder, tie_word_embeddings=False)), without)
    save_file(tied, folder / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lm_head\.weight"):
        LLM(str(folder), **SMALL)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def _cut_header(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:50])


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _spoil_header(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[8:20] = b"\xff" * 12
    file.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "spoil", [Path.unlink, _cut, _cut_header, _empty, _spoil_header], ids=["missing", "cut", "cut header", "empty", "header"]
)
def test_n3_a_shard_that_is_missing_or_damaged_is_named(folder: Path, spoil: Callable[[Path], None]) -> None:
    victim = shard(folder)[1]
    spoil(victim)
    with pytest.raises(CheckpointError, match=victim.name):
        LLM(str(folder), **SMALL)
    if spoil is Path.unlink:
        code, said = exit_of(str(folder))
        assert code == 1
        assert victim.name in said
        assert "Traceback" not in said


def _drop(tensors: dict[str, Any]) -> str:
    del tensors["model.layers.1.mlp.up_proj.weight"]
    return r"layers\.1\.mlp\.up_proj"


def _reshape(tensors: dict[str, Any]) -> str:
    tensors["model.layers.0.self_attn.k_proj.weight"] = tensors["model.layers.0.self_attn.k_proj.weight"][:-1].copy()
    return r"layers\.0\.self_attn\.k_proj"


def _rename(tensors: dict[str, Any]) -> str:
    tensors["model.layers.0.self_attn.key.weight"] = tensors.pop("model.layers.0.self_attn.k_proj.weight")
    return r"self_attn\.key\.weight"


def _add(tensors: dict[str, Any]) -> str:
    tensors["model.layers.7.mlp.up_proj.weight"] = np.zeros((4, 4), np.float32)
    return r"layers\.7"


def _cast(tensors: dict[str, Any]) -> str:
    tensors["model.norm.weight"] = tensors["model.norm.weight"].astype(np.int32)
    return r"norm\.weight"


@pytest.mark.parametrize("spoil", [_drop, _reshape, _rename, _add, _cast])
def test_n3_every_tensor_is_used_once_or_named(folder: Path, spoil: Callable[[dict[str, Any]], str]) -> None:
    tensors = load_file(folder / WEIGHTS)
    named = spoil(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(OctavoError, match=named):
        LLM(str(folder), **SMALL)


@pytest.mark.parametrize(
    "config",
    ["", "{", "[]", "null", '"x"', '{"model_type": 5}', "{}", '{"model_type": "llama"}', '{"model_type": "llama", "vocab_size": "many"}'],
    ids=str,
)
def test_n3_a_configuration_that_says_nothing_sensible_is_an_error_with_a_text(folder: Path, config: str) -> None:
    (folder / "config.json").write_text(config)
    with pytest.raises(OctavoError, match=r"\w"):
        LLM(str(folder), **SMALL)


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "rms_norm_eps", "vocab_size"]
)
@pytest.mark.parametrize("value", [None, 0, -1, "x", [1]], ids=str)
def test_n3_a_number_of_the_configuration_that_cannot_be_is_an_error_with_a_text(folder: Path, key: str, value: Any) -> None:
    if key == "rms_norm_eps" and value in (None, 0):
        pytest.skip("a model may leave it open, and may have none")
    configure(folder, **{key: value})
    with pytest.raises(OctavoError, match=r"\w"):
        LLM(str(folder), **SMALL)


def test_n4_files_that_the_index_does_not_name_are_left_alone(plain: Path, folder: Path) -> None:
    shard(folder)
    save_file({"model.norm.weight": np.full(7, 3.0, np.float32), "stray": np.ones(3, np.float32)}, folder / WEIGHTS)
    save_file({"tok_embeddings.weight": np.ones((2, 2), np.float32)}, folder / "consolidated.safetensors")
    save_file({"lora_A": np.ones((2, 2), np.float32)}, folder / "adapter_model.safetensors")
    (folder / "training_args.bin").write_bytes(b"not to be read")
    assert same(outputs(folder), outputs(plain))


def test_n5_a_model_that_overflows_does_not_start_in_half_precision(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    for name in ("gate_proj", "up_proj", "down_proj"):
        tensors[f"model.layers.0.mlp.{name}.weight"] *= 300
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(OctavoError, match=r"not finite numbers(.|\n)*--dtype bfloat16"):
        LLM(str(folder), **(SMALL | {"dtype": "float16"}))
    for dtype in ("bfloat16", "float32"):
        assert [output.error for output in outputs(folder, dtype=dtype)] == [None] * 3


def test_n5_a_token_that_overflows_ends_its_own_request_with_an_error(folder: Path) -> None:
    """And not with one token, often "!", again and again."""
    tensors = load_file(folder / WEIGHTS)
    tensors["model.embed_tokens.weight"][300] *= 1e6
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    prompts = [[5, 6, 7], [5, 300, 7], [8, 9]]
    for dtype in ("float16", "float32"):
        with LLM(str(folder), **(SMALL | {"dtype": dtype})) as llm:
            found = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=6, ignore_eos=True), use_tqdm=False)
            told = [metric.value for metric in llm.get_metrics() if metric.labels.get("finished_reason") == "error"]
        wrong = [output.error is not None for output in found]
        assert wrong == [False, dtype == "float16", False]
        assert [len(output.outputs[0].token_ids) for output in found] == [0 if is_wrong else 6 for is_wrong in wrong]
        if dtype == "float16":
            assert "not finite" in str(found[1].error)
            assert found[1].outputs[0].finish_reason == "error"
            assert told == [1]


# --- GGUF


def permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """A projection's rows in the order in which llama's GGUF files have them: the two halves of a head interleaved."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


GGUF_LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "block_sparse_moe.gate": "ffn_gate_inp",
}


def gguf_tensors(folder: Path, config: dict[str, Any]) -> dict[str, tuple[tuple[int, ...], int, bytes]]:
    """A folder's tensors under the names, and in the order of rows, of a llama GGUF file; all of them float32."""
    found: dict[str, np.ndarray] = {}
    experts: dict[str, dict[int, np.ndarray]] = {}
    outer = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    for name, tensor in load_file(folder / WEIGHTS).items():
        path = name.removesuffix(".weight")
        if path in outer:
            found[f"{outer[path]}.weight"] = tensor
            continue
        _, _, layer, rest = path.split(".", 3)
        if ".experts." in rest:
            number, part = rest.split(".experts.")[1].split(".")
            kind = {"w1": "ffn_gate_exps", "w2": "ffn_down_exps", "w3": "ffn_up_exps"}[part]
            experts.setdefault(f"blk.{layer}.{kind}.weight", {})[int(number)] = tensor
            continue
        heads = {"self_attn.q_proj": "num_attention_heads", "self_attn.k_proj": "num_key_value_heads"}.get(rest)
        found[f"blk.{layer}.{GGUF_LAYER[rest]}.weight"] = tensor if heads is None else permuted(tensor, config[heads])
    found |= {name: np.stack([parts[number] for number in sorted(parts)]) for name, parts in experts.items()}
    return {name: (tensor.shape, 0, np.ascontiguousarray(tensor, np.float32).tobytes()) for name, tensor in found.items()}


def to_gguf(folder: Path, file: Path, **metadata: Any) -> Path:
    """The model in `folder`, of a byte-level tokenizer, as a GGUF file. metadata: keys to change, with __ for a dot; None drops one."""
    config = json.loads((folder / "config.json").read_text())
    keys: dict[str, Any] = {
        "general.architecture": "llama",
        "llama.block_count": config["num_hidden_layers"],
        "llama.context_length": config["max_position_embeddings"],
        "llama.embedding_length": config["hidden_size"],
        "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": config["num_attention_heads"],
        "llama.attention.head_count_kv": config["num_key_value_heads"],
        "llama.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "llama.rope.freq_base": (config.get("rope_parameters") or config)["rope_theta"],
        "llama.rope.dimension_count": config["hidden_size"] // config["num_attention_heads"],
    }
    if "num_local_experts" in config:
        keys |= {"llama.expert_count": config["num_local_experts"], "llama.expert_used_count": config["num_experts_per_tok"]}
    if (folder / "tokenizer.json").is_file():
        state = json.loads(Backend.from_file(str(folder / "tokenizer.json")).to_str())
        ids = {index: token for token, index in state["model"]["vocab"].items()}
        special = {token["id"]: token["content"] for token in state["added_tokens"]}
        tokens = [special.get(index, ids.get(index, "")) for index in range(len(ids | special))]
        keys |= {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [3 if index in special else 1 for index in range(len(tokens))],
            "tokenizer.ggml.merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in state["model"]["merges"]],
            "tokenizer.ggml.bos_token_id": config["bos_token_id"],
            "tokenizer.ggml.eos_token_id": config["eos_token_id"],
        }
    keys |= {key.replace("__", "."): value for key, value in metadata.items()}
    return write_gguf(file, {key: value for key, value in keys.items() if value is not None}, gguf_tensors(folder, config))


@pytest.mark.parametrize("vocabulary", [501, 512])
def test_n6_a_vocabulary_of_any_size_is_read_from_gguf(tmp_path: Path, vocabulary: int) -> None:
    folder = write_random(tmp_path / "model", vocabulary=vocabulary)
    file = to_gguf(folder, tmp_path / "model.gguf")
    assert same(outputs(file), outputs(folder))
    ours, theirs = Tokenizer.load(file), Tokenizer.load(folder)
    for text in ("the London the", "x <|end|> y", " é 🙂\n\n\tz", "w1 w2 w33"):
        assert ours.encode(text, add_special_tokens=False) == theirs.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("key", ["merges", "tokens", "model"])
def test_n7_a_gguf_tokenizer_that_lacks_something_says_what(plain: Path, tmp_path: Path, key: str) -> None:
    file = to_gguf(plain, tmp_path / "model.gguf", **{f"tokenizer__ggml__{key}": None})
    with pytest.raises(CheckpointError, match=r"tokenizer|tokens") as caught:
        LLM(str(file), **SMALL)
    assert key in str(caught.value) or key == "model"
    assert same(outputs(file, skip_tokenizer_init=True), outputs(plain))


def test_n7_the_way_in_which_text_is_split_is_the_file_s_own(plain: Path, tmp_path: Path) -> None:
    """One vocabulary, two ways of splitting: digits in threes or in one."""
    splits = {}
    for name in ("gpt-2", "llama-bpe"):
        tokenizer = Tokenizer.load(to_gguf(plain, tmp_path / f"{name}.gguf", tokenizer__ggml__pre=name))
        splits[name] = [word for word, _ in tokenizer.backend.pre_tokenizer.pre_tokenize_str("a 1234567")]
    assert splits == {"gpt-2": ["a", "Ġ1234567"], "llama-bpe": ["a", "Ġ", "123", "456", "7"]}
    with pytest.raises(OctavoError, match="no-such-splitter"):
        Tokenizer.load(to_gguf(plain, tmp_path / "unknown.gguf", tokenizer__ggml__pre="no-such-splitter"))


@pytest.mark.oracle
def test_n8_a_mixture_of_experts_is_read_from_gguf(tmp_path: Path) -> None:
    model = oracle.make("mixtral")
    model.save_pretrained(tmp_path / "model", safe_serialization=True)
    folder = tmp_path / "model"
    file = to_gguf(folder, tmp_path / "model.gguf")
    prompts = [[token % 90 for token in prompt] for prompt in PROMPTS]
    answers = []
    for path in (folder, file):
        with LLM(str(path), **SMALL, skip_tokenizer_init=True) as llm:
            params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, prompt_logprobs=2, logprobs=2, detokenize=False)
            answers.append(llm.generate(prompts, params, use_tqdm=False))
    assert same(answers[0], answers[1])


def test_n8_a_gguf_file_that_is_cut_short_or_lacks_a_tensor_is_refused(plain: Path, tmp_path: Path) -> None:
    whole = to_gguf(plain, tmp_path / "whole.gguf").read_bytes()
    for name, size in (("cut", len(whole) - 1000), ("head", 200), ("magic", 3), ("none", 0)):
        (tmp_path / f"{name}.gguf").write_bytes(whole[:size])
        with pytest.raises(OctavoError, match=name):
            LLM(str(tmp_path / f"{name}.gguf"), **SMALL)
    (tmp_path / "other.gguf").write_bytes(b"GGML" + whole[4:])
    with pytest.raises(OctavoError, match="other"):
        LLM(str(tmp_path / "other.gguf"), **SMALL)
    (tmp_path / "renamed.gguf").write_bytes(whole.replace(b"blk.1.ffn_up", b"blk.1.ffn_uq"))
    with pytest.raises(CheckpointError, match=r"ffn_u"):
        LLM(str(tmp_path / "renamed.gguf"), **SMALL)
