"""Logits of every model type equal transformers', however a prompt is cut into steps and whoever shares them."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models import oracle
from tests.models.driver import Driver, config_for
from tests.tolerances import ATOL, RTOL

pytestmark = pytest.mark.oracle


def prompt(seed: int, length: int) -> list[int]:
    generator = random.Random(seed)
    return [generator.randrange(3, 250) for _ in range(length)]


# three windows of 16 and a bit; the longer one is for what happens beyond 64 positions
TOKENS, OTHERS, LONG = prompt(1, 50), prompt(2, 29), prompt(3, 75)

# type, what differs from oracle.TYPES
MODELS = [
    ("llama", {}),
    ("llama", {"tie_word_embeddings": True}),
    ("llama", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 251}),
    ("llama", {"hidden_act": "gelu", "num_key_value_heads": 4, "rms_norm_eps": 1e-3}),
    ("mistral", {}),
    ("mistral", {"sliding_window": None, "head_dim": 48}),
    ("qwen2", {}),
    ("qwen2", {"use_sliding_window": False, "tie_word_embeddings": True}),
    ("qwen3", {}),
    ("qwen3", {"attention_bias": True, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}),
    ("gemma3_text", {}),
    ("gemma3_text", {"tie_word_embeddings": False, "attention_bias": True}),
    ("mixtral", {}),
    ("mixtral", {"sliding_window": 16, "num_experts_per_tok": 3}),
]
SPLITS = {"whole": [50], "chunks": [20, 1, 17, 7, 5], "token by token": [1] * 50}


def name(case: tuple[str, dict[str, Any]]) -> str:
    return case[0] + "".join(f"-{key}={value}" for key, value in case[1].items())


@pytest.fixture(scope="module", params=MODELS, ids=name)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, torch.Tensor, torch.Tensor]:
    """A checkpoint's folder and transformers' logits for both prompts."""
    made = oracle.make(*request.param)
    folder = oracle.save(made, tmp_path_factory.mktemp("model"))
    return folder, oracle.logits(made, TOKENS), oracle.logits(made, OTHERS)


@pytest.fixture(scope="module", params=["fast", "reference"])
def driver(model: Any, request: pytest.FixtureRequest) -> Driver:
    return Driver(config_for(model[0], mode=request.param))


def close(ours: torch.Tensor, theirs: torch.Tensor, dtype: str = "float32") -> None:
    torch.testing.assert_close(ours, theirs, atol=ATOL[dtype], rtol=RTOL[dtype])


def in_pieces(driver: Driver, counts: list[int], tokens: list[int] = TOKENS) -> torch.Tensor:
    sequence, start, out = driver.sequence(), 0, []
    for count in counts:
        out += driver.step([(sequence, tokens[start : start + count])])
        start += count
    driver.release(sequence)
    return torch.cat(out)


@pytest.mark.parametrize("counts", SPLITS.values(), ids=SPLITS.keys())
def test_logits_equal_transformers(model: Any, driver: Driver, counts: list[int]) -> None:
    close(in_pieces(driver, counts), model[1])


def test_two_rows_in_one_batch(model: Any, driver: Driver) -> None:
    """The second joins while the first is under way, and both end with single tokens."""
    first, second = driver.sequence(), driver.sequence()
    steps = [[(first, TOKENS[:21])], [(second, OTHERS[:19]), (first, TOKENS[21:48])], [(first, TOKENS[48:49]), (second, OTHERS[19:])]]
    steps.append([(first, TOKENS[49:])])
    found: dict[int, list[torch.Tensor]] = {id(first): [], id(second): []}
    for rows in steps:
        for (sequence, _), logits in zip(rows, driver.step(rows), strict=True):
            found[id(sequence)].append(logits)
    driver.release(first)
    driver.release(second)
    close(torch.cat(found[id(first)]), model[1])
    close(torch.cat(found[id(second)]), model[2])


ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 500.0},
    "linear": {"rope_type": "linear", "factor": 3.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
        "rope_theta": 100.0,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 50.0},
    "yarn, all told": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "beta_fast": 20.0,
        "beta_slow": 2.0,
        "mscale": 0.7,
        "mscale_all_dim": 0.9,
        "truncate": False,
        "rope_theta": 50.0,
    },
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0 + i / 10 for i in range(8)],
        "long_factor": [1.0 + i for i in range(8)],
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}


@pytest.mark.parametrize("max_position_embeddings", [64, 512])
@pytest.mark.parametrize("way", ROPES.values(), ids=ROPES.keys())
def test_ways_of_rotating(way: dict[str, Any], max_position_embeddings: int, tmp_path: Path) -> None:
    """75 tokens, beyond 64 and within 512. The length decides for dynamic and longrope: it is told here as the longest there will be."""
    made = oracle.make("llama", {"rope_parameters": dict(way), "max_position_embeddings": max_position_embeddings})
    driver = Driver(config_for(oracle.save(made, tmp_path), max_model_len=len(LONG)))
    expected = oracle.logits(made, LONG)
    close(in_pieces(driver, [75], LONG), expected)
    close(in_pieces(driver, [40, 35], LONG), expected)


def test_longrope_takes_short_factors_within_the_original_length(tmp_path: Path) -> None:
    made = oracle.make("llama", {"rope_parameters": ROPES["longrope"] | {"original_max_position_embeddings": 128}})
    driver = Driver(config_for(oracle.save(made, tmp_path), max_model_len=len(LONG)))
    close(in_pieces(driver, [75], LONG), oracle.logits(made, LONG))


def test_gemma_rotates_its_two_kinds_of_layer_in_two_ways(tmp_path: Path) -> None:
    full = {"rope_type": "linear", "factor": 8.0, "rope_theta": 3000.0}
    made = oracle.make(
        "gemma3_text", {"rope_parameters": {"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": 70.0}}}
    )
    driver = Driver(config_for(oracle.save(made, tmp_path)))
    close(in_pieces(driver, [30, 20]), oracle.logits(made, TOKENS))


def test_packed_experts(tmp_path: Path) -> None:
    made = oracle.make("mixtral")
    driver = Driver(config_for(oracle.save_as_in_memory(made, tmp_path)))
    close(in_pieces(driver, [30, 20]), oracle.logits(made, TOKENS))


@pytest.mark.parametrize("block_size", [16, 32])
@pytest.mark.parametrize("model_type", ["llama", "gemma3_text"])
def test_block_size_changes_nothing(model_type: str, block_size: int, tmp_path: Path) -> None:
    made = oracle.make(model_type)
    driver = Driver(config_for(oracle.save(made, tmp_path), block_size=block_size))
    close(in_pieces(driver, [33, 17]), oracle.logits(made, TOKENS))


@pytest.mark.parametrize("mode", ["fast", "reference"])
@pytest.mark.parametrize("model_type", oracle.TYPES)
def test_half_precision(model_type: str, mode: str, tmp_path: Path) -> None:
    """bfloat16 against transformers in float32 with the same rounded weights.

    A mixture takes all its experts here: where two are nearly as probable, rounding may choose the other one, in transformers as well.
    """
    changes = {"num_local_experts": 3, "num_experts_per_tok": 3} if model_type == "mixtral" else {}
    made = oracle.make(model_type, changes, dtype=torch.bfloat16)
    driver = Driver(config_for(oracle.save(made, tmp_path), dtype="bfloat16", mode=mode))
    close(in_pieces(driver, [30, 20]), oracle.logits(made.float(), TOKENS), "bfloat16")


def test_float16_runs_on_references(tmp_path: Path) -> None:
    made = oracle.make("llama", dtype=torch.float16)
    driver = Driver(config_for(oracle.save(made, tmp_path), dtype="float16"))
    close(in_pieces(driver, [30, 20]), oracle.logits(made.float(), TOKENS), "float16")
