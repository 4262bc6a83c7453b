"""Every serve command that handbooks print plans, or is refused with its reason; the options of a layout reach the plan."""

import itertools
import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from octavo import environment
from octavo.cli import plan as command
from octavo.errors import ConfigError, OctavoError
from octavo.planning import families

HANDBOOK = tomllib.loads((Path(__file__).parents[1] / "unit" / "cli" / "handbook.toml").read_text())["serve"]
# how the names of those that plan end; the last is planned as a model of its architecture that is published
PLANNED = ("Qwen2.5-7B-Instruct", "Qwen3-0.6B", "Llama-3.1-8B-Instruct", "Llama-3.1-70B-Instruct")


def planned(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    command.run([*words, "--json"])
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment.of_ours():
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize("entry", HANDBOOK, ids=lambda entry: entry["command"][:40])
def test_commands_of_the_handbooks(entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in entry.get("environment", {}).items():
        monkeypatch.setenv(name, value)
    words = shlex.split(entry["command"])
    model = words[1] if words[0] == "--model" else words[0]
    typed = ["--hardware", "h100x8", "--", "octavo", "serve", *words]
    if "wrong" in entry:  # a value that vLLM itself does not have
        with pytest.raises(SystemExit) as ended:
            command.read(typed)
        assert ended.value.code == 2
        assert entry["wrong"] in capsys.readouterr().err
    elif model.endswith(PLANNED):
        found = planned(["--hardware", "h100x8", *words], capsys)
        assert found["fits"] is True
        wanted = {name.replace("-", "_"): value for name, value in itertools.pairwise(words)}
        assert found["topology"]["tensor_parallel_size"] == int(wanted.get("__tensor_parallel_size", 1))
        # what is neither of the engine nor of the layout is named
        left = {name.replace("-", "_") for name in entry["refused"]} - command.LAYOUT.keys()
        assert len([note for note in found["notes"] if note.startswith("not in this plan: ")]) == len(left)
    else:
        with pytest.raises(OctavoError) as caught:
            command.run(typed)
        family = families.of_name(model)
        assert (f"waits for {family.told}" if family else "no folder with a config.json, and no hub id") in caught.value.fact
        assert (family is None) == (model == "model_name")


def test_every_size_of_a_layout_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    """By its short flag too; EP is a switch, whose size is computed."""
    words = "Mixtral-8x7B-v0.1 --hardware h200x32 -tp 4 -dp 2 -pp 2 -pcp 2 -ep --api-server-count 3 --max-model-len 4096"
    found = planned(words.split(), capsys)
    topology = found["topology"]
    sizes = [topology[f"{name}_parallel_size"] for name in ("tensor", "data", "pipeline", "prefill_context", "expert")]
    assert sizes == [4, 2, 2, 2, 16]
    assert (topology["devices"], topology["processes"]) == (32, 3 + 2 + 32 + 1)
    assert [each["layers"] for each in found["holds"]] == [[0, 16], [16, 32]]
    assert [each["experts"] for each in found["holds"]] == [1, 1]
    assert len(found["weights_bytes"]) == 2


def test_context_parallelism_shares_a_cache(capsys: pytest.CaptureFixture[str]) -> None:
    """What tensor parallel ranks hold twice can be shared out: twice the tokens in the same memory."""
    words = "Llama-3.1-70B --hardware h100x16 -tp 16 --max-model-len 32768"
    once, shared = (planned(f"{words} {more}".split(), capsys) for more in ("", "-dcp 2"))
    assert shared["topology"]["decode_context_parallel_size"] == 2
    assert shared["cache_tokens"] == pytest.approx(2 * once["cache_tokens"], rel=0.01)
    assert shared["weights_bytes"] == once["weights_bytes"]


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        ("Llama-3.3-70B -tp 3", "tensor parallel size 3 does not divide 64 attention heads"),
        ("Qwen2.5-7B -tp 8", "tensor parallel size 8 does not divide 28 attention heads"),
        ("Llama-3.3-70B -tp 8 -dcp 3", "3 does not divide --tensor-parallel-size 8"),
        ("Llama-3.3-70B -tp 8 -dcp 2", "only 1 ranks hold the same kv head"),
        ("Llama-3.1-8B -pp 33", "more than the model's 32 layers"),
        ("Qwen2.5-72B-Instruct-AWQ -tp 2", "a rank's 14784 columns are not whole groups of 128"),
        ("Qwen3-32B-FP8 -tp 16", "are not whole groups of 128"),
        ("Llama-3.1-8B -dp 0", "--data-parallel-size must be at least 1"),
    ],
)
def test_layouts_that_cannot_be(words: str, fact: str) -> None:
    with pytest.raises(ConfigError, match=fact):
        command.run(["--hardware", "h200x8", *words.split()])


def test_more_devices_than_there_are_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(["Llama-3.1-8B", "--hardware", "h100x4", "-tp", "2", "-dp", "4", "--max-model-len", "4096"], capsys)
    assert (found["fits"], found["reasons"]) == (False, ["the layout needs 8 devices, and there are 4"])


def test_a_checkpoint_in_float16_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    """Its cache is in float16 too, which takes what bfloat16 takes."""
    found = planned(["Llama-2-7b-hf", "--hardware", "l40s"], capsys)
    assert (found["fits"], found["cache_bytes_per_token"]) == (True, 2 * 32 * 32 * 128 * 2)
