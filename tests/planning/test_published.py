"""Published models have the parameters and the bytes per token that are known of them; those that are not built are refused by name."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from octavo import plugins
from octavo.config.options import Options
from octavo.errors import ModelNotFoundError, UnsupportedModelError
from octavo.planning import families, plan, recipes, sources
from octavo.planning.hardware import parse
from octavo.planning.ranks import describe
from octavo.planning.topology import Topology

CONFIGS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("model_configs.toml").read_text())
BUILT = {name: entry for name, entry in CONFIGS.items() if "waits" not in entry}
# parameters as their makers publish them, in billions
PUBLISHED = {
    "Llama-2-7b-hf": 6.74,
    "Llama-2-13b-hf": 13.02,
    "Llama-2-70b-hf": 68.98,
    "CodeLlama-34b-hf": 33.74,
    "Meta-Llama-3-8B": 8.03,
    "Meta-Llama-3-70B": 70.55,
    "Llama-3.1-405B": 405.85,
    "Llama-3.2-1B": 1.24,
    "Llama-3.2-3B": 3.21,
    "Qwen2.5-0.5B": 0.49,
    "Qwen2.5-1.5B": 1.54,
    "Qwen2.5-3B": 3.09,
    "Qwen2.5-14B": 14.77,
    "Qwen2.5-32B": 32.76,
    "Qwen2.5-72B": 72.71,
    "Qwen3-0.6B": 0.60,
    "Qwen3-1.7B": 1.72,
    "Qwen3-4B": 4.02,
    "Qwen3-14B": 14.77,
    "Qwen3-32B": 32.76,
    "Mistral-7B-v0.1": 7.24,
    "Mistral-7B-v0.3": 7.25,
    "Mixtral-8x7B-v0.1": 46.70,
    "Mixtral-8x22B-Instruct-v0.1": 140.63,
    "gemma-3-270m": 0.27,
    "gemma-3-1b-pt": 1.00,
}


@pytest.mark.parametrize("name", BUILT)
def test_parameters_and_bytes_per_token(name: str) -> None:
    entry = BUILT[name]
    for cache, size in entry["bytes_per_token"].items():
        options = Options(model=entry["model"], kv_cache_dtype=cache, max_model_len=4096)
        made = plan.make(options, parse("h200x4"), Topology(tensor=4))
        assert (made.parameters, made.bytes_per_token, made.bytes_per_sequence) == (entry["parameters"], size, 0)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_as_published(name: str) -> None:
    config = plan.configure(Options(model=name), parse("h200"))
    assert round(describe(config).parameters / 1e9, 2) == PUBLISHED[name]


def test_every_published_configuration_is_named_and_built() -> None:
    folders = {published.folder for published in sources.known().values()}
    assert {path for path in folders if not (path / "config.json").is_file()} == set()
    assert {path.parent for path in next(iter(folders)).parent.glob("*/config.json")} == folders
    types = {json.loads((folder / "config.json").read_text())["model_type"] for folder in folders}
    assert types == set(plugins.names("models"))
    formats = {published.number_format for published in sources.known().values()} - {None}
    assert formats == set(sources.number_formats())


@pytest.mark.parametrize("name", [name for name, entry in CONFIGS.items() if "waits" in entry])
def test_what_is_not_built_is_refused_by_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no network reaches the hub, and then both are said."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    entry = CONFIGS[name]
    with pytest.raises(UnsupportedModelError) as caught:
        plan.make(Options(model=entry["model"]), parse("h200x8"), Topology())
    assert f"waits for {families.table()[entry['waits']].told}: octavo does not build that yet" in caught.value.fact
    assert "HF_HUB_OFFLINE forbids fetching it" in caught.value.fact
    assert "octavo plans what it builds: gemma3_text, llama" in str(caught.value.hint)


@pytest.mark.parametrize("inner", [False, True])
def test_a_configuration_of_what_is_not_built(tmp_path: Path, inner: bool) -> None:
    """Of a folder, by the model type in it; also that of the language model in a model that sees."""
    config = {"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"]}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "seeing", "text_config": config} if inner else config))
    with pytest.raises(UnsupportedModelError, match=r"waits for Qwen3.5 \(gated delta networks\)"):
        plan.make(Options(model=str(tmp_path)), parse("h100"), Topology())


def test_an_unknown_architecture_and_an_unknown_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "strange", "vocab_size": 8}))
    with pytest.raises(UnsupportedModelError, match="model type 'strange'"):
        plan.make(Options(model=str(tmp_path)), parse("h100"), Topology())
    with pytest.raises(ModelNotFoundError, match="org/strange is not in"):
        plan.make(Options(model="org/strange"), parse("h100"), Topology())


def test_no_family_that_waits_is_built() -> None:
    built = set(plugins.names("models"))
    assert {name for name, family in families.table().items() if built & set(family.model_types)} == set()
    assert {name for name in sources.known() if families.of_name(name) is not None} == set()
    assert families.of_name("nvidia/DeepSeek-V3.2-NVFP4") == families.table()["deepseek-v3_2"]  # the longest that fits
    assert recipes.of("deepseek-ai/DeepSeek-V3.2")
