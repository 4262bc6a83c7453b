"""Scenarios: their settings are in the plan with a reason each, what the user typed stays, and the command can be typed."""

import json
import shlex
from typing import Any

import pytest

from octavo.cli import plan as plan_command
from octavo.cli import serve
from octavo.config.config import Config
from octavo.config.options import Options
from octavo.config.resolve import resolve
from octavo.planning import hardware, scenario, sources
from octavo.planning.scenario import Scenario

NAMES = ("chat-latency", "batch-throughput", "long-context", "agent", "mixed")


def config(model: str = "Llama-3.1-8B") -> Config:
    options = Options(model=model)
    return resolve(options, "server", hardware.parse("h100").facts(), sources.find(options))


def applied(name: str, layout: dict[str, Any] | None = None, **typed: Any) -> tuple[Scenario, Options, dict[str, Any]]:
    return scenario.apply(name, Options(model="Llama-3.1-8B", **typed), layout or {}, config())


@pytest.mark.parametrize("name", NAMES)
def test_each_setting_has_a_reason_and_is_put_into_the_plan_or_is_told_why_not(name: str) -> None:
    chosen, options, layout = applied(name, {"tensor": 16})
    assert chosen.settings
    for setting in chosen.settings:
        assert len(setting.reason) > 20
        if setting.why_not is None:
            assert setting.field is not None
            assert (layout[setting.field] if setting.is_layout else getattr(options, setting.field)) == setting.value
        else:
            assert setting.field is None or setting.is_layout
        assert setting.reason in scenario.page(chosen, "m", layout)


@pytest.mark.parametrize("name", NAMES)
def test_the_command_is_one_that_serve_takes(name: str) -> None:
    chosen, options, layout = applied(name)
    words = shlex.split(chosen.command("Llama-3.1-8B", layout))
    assert words[:2] == ["octavo", "serve"]
    typed = vars(serve.parser().parse_args(words[2:]))
    for setting in chosen.settings:
        if setting.why_not is None and setting.field is not None:
            assert typed[setting.field] == setting.value
            assert getattr(options, setting.field) == setting.value


def test_settings_are_those_of_the_handbook() -> None:
    _, options, _ = applied("chat-latency")
    assert (options.max_num_batched_tokens, options.max_num_seqs) == (2048, 8)
    _, options, _ = applied("batch-throughput")
    assert (options.max_num_batched_tokens, options.max_num_seqs, options.gpu_memory_utilization) == (16384, 512, 0.95)
    _, options, _ = applied("long-context")
    assert (options.max_model_len, options.kv_cache_dtype, options.enable_prefix_caching, options.block_size) == (131072, "fp8", True, 64)
    _, options, _ = applied("mixed")
    assert (options.scheduling_policy, options.async_scheduling) == ("priority", True)


def test_what_the_user_typed_stays() -> None:
    chosen, options, _ = applied("chat-latency", max_num_seqs=64)
    assert (options.max_num_seqs, options.max_num_batched_tokens) == (64, 2048)
    assert [setting.why_not for setting in chosen.settings if setting.field == "max_num_seqs"] == ["you chose 64"]
    assert "--max-num-seqs" not in chosen.command("m", {})


def test_only_ranks_that_hold_the_same_heads_share_out_a_cache() -> None:
    chosen, _, layout = applied("agent", {"tensor": 8})
    assert "decode_context" not in layout
    assert "8 kv heads on 8 ranks" in scenario.page(chosen, "m", layout)
    chosen, _, layout = applied("agent", {"tensor": 32})
    assert layout == {"tensor": 32, "decode_context": 4}
    assert "--tensor-parallel-size 32 --enable-prefix-caching --decode-context-parallel-size 4" in chosen.command("m", layout)


def test_a_plan_is_made_with_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    code = plan_command.run(["Llama-3.1-8B", "--hardware", "h100", "--scenario", "long-context", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (told["block_size"], told["kv_cache_dtype"]) == (64, "fp8_e4m3")
    assert told["scenario"]["command"].startswith("octavo serve Llama-3.1-8B --max-model-len 131072")
    plan_command.run(["Llama-3.1-8B", "--hardware", "h100", "--scenario", "chat-latency"])
    page = capsys.readouterr().out
    assert page.startswith("Scenario chat-latency")
    assert "2048 tokens, 8 rows" in page
