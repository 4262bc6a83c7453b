"""Nothing of vLLM's command line is unknown: each flag is an option or awaited by name, and each command of the handbooks is answered."""

import importlib
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from octavo import environment
from octavo.cli import actions, serve
from octavo.cli.main import COMMANDS
from octavo.config import awaited, variables
from octavo.config.options import Options, ServerOptions, check, from_keywords, typed_fields
from octavo.errors import ConfigError

HERE = Path(__file__).parent
FLAGS = [line.split() for line in (HERE / "vllm_flags.txt").read_text().splitlines() if not line.startswith("#")]
HANDBOOK = tomllib.loads((HERE / "handbook.toml").read_text())
FIELDS = {f.name: f for cls in (Options, ServerOptions) for f in typed_fields(cls)}
PARSER = serve.parser()


def test_every_flag_is_known() -> None:
    known = set(actions.known_flags(PARSER))
    unknown = [f for name, *short in FLAGS for f in (f"--{name}", *short) if f not in known]
    assert unknown == []
    assert len(FLAGS) == 320


def test_every_flag_works_or_awaits_something() -> None:
    own = {"config", "help", "color"}
    neither = [name for name, *_ in FLAGS if name not in own and name.replace("-", "_") not in FIELDS.keys() | awaited.by_name().keys()]
    assert neither == []


def test_every_switch_has_its_opposites() -> None:
    known = set(actions.known_flags(PARSER))
    for action in PARSER._actions:
        if isinstance(action, actions.SwitchAction):
            assert set(actions.spellings(action.dest, (), True)) <= known


def test_an_option_that_works_awaits_some_of_its_values_only() -> None:
    # one rank is all there is, so the number of ranks has one value
    whole = {r.name for r in awaited.rows() if r.name in FIELDS and r.is_refused and not r.words} - {"tensor_parallel_size"}
    assert whole == set()
    for row in awaited.rows():
        if row.name in FIELDS and FIELDS[row.name].metadata["choices"]:
            choices = set(FIELDS[row.name].metadata["choices"])
            assert not choices & set(row.words), row.name


@pytest.mark.parametrize("row", awaited.rows(), ids=lambda row: f"{row.name}-{row.effect}"[:60])
def test_a_value_is_refused_said_or_asks_for_nothing(row: awaited.Awaited, capsys: pytest.CaptureFixture[str]) -> None:
    flag = "--" + row.name.replace("_", "-")
    for value in row.harmless:
        if row.kind != "switch" and value not in ("", [], {}):
            typed = PARSER.parse_args([flag, str(value) if not isinstance(value, dict) else '{"backend":"auto"}'])
            assert "accepted" not in typed
    words = _spelled(flag, row)
    if row.is_refused:
        with pytest.raises(SystemExit) as ended:
            PARSER.parse_args(words)
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert flag.removeprefix("--") in said
        assert row.told in said
    else:
        assert [row.told in fact for fact in PARSER.parse_args(words).accepted] == [True]


def _spelled(flag: str, row: awaited.Awaited) -> list[str]:
    """Words that ask for what the row is about."""
    if row.kind == "switch":
        return ["--no-" + flag[2:]] if True in row.harmless else [flag]
    if judged := awaited.keys().get(row.name):
        return [f"{flag}.{judged[1]}", "something"]
    value = {"int": "7", "float": "7.5", "json": '{"a": 1}', "str": "something", "list": "a", "ints": "1"}[row.kind]
    return [flag, row.words[-1] if row.words else value]


def test_a_keyword_is_refused_as_its_flag_is() -> None:
    with pytest.raises(ConfigError, match="enable_lora=True: awaits LoRA adapters") as caught:
        from_keywords({"model": "m", "enable_lora": True, "speculative_config": {"method": "mtp"}, "kv_cache_dtype": "turboquant_k8v4"})
    assert "speculative decoding" in str(caught.value)
    assert "kv_cache_dtype='turboquant_k8v4': awaits rotated and mixed caches" in str(caught.value)


def test_keywords_that_ask_for_nothing_and_facts() -> None:
    options = from_keywords({"model": "m", "enable_lora": False, "code_revision": "main", "cpu_offload_gb": 0, "max_model_len": "25.6k"})
    assert options.max_model_len == 25_600
    assert len(options.accepted) == 1
    assert options.accepted[0].startswith("code_revision = main: octavo fetches no code")
    with pytest.raises(ConfigError, match="did you mean max_num_seqs"):
        from_keywords({"max_num_seq": 3})
    with pytest.raises(ConfigError, match="compilation_config has no key 'mod'; did you mean mode"):
        check(from_keywords({"compilation_config": {"mod": 3}}))
    check(from_keywords({"compilation_config": 3, "optimization_level": 0}))


@pytest.mark.parametrize(("kind", "entry"), [(k, e) for k, entries in HANDBOOK.items() for e in entries], ids=lambda v: str(v)[:1])
def test_commands_of_the_handbooks(
    kind: str, entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for name in environment.of_ours():
        monkeypatch.delenv(name)
    for name, value in entry.get("environment", {}).items():
        monkeypatch.setenv(name, value)
    command, _, bench = kind.partition("-")
    parse = _parser_of(command if command == "bench" else kind, bench)
    words = shlex.split(entry["command"])
    if entry.get("refused") == []:
        parse(words)
    else:
        with pytest.raises(SystemExit) as ended:
            parse(words)
        assert ended.value.code == 2
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("octavo")]
        if "wrong" in entry:
            assert entry["wrong"] in lines[0]
        else:
            refused = {PARSER._option_string_actions[line.split()[2].rstrip(":")].dest for line in lines}
            assert refused == {name.replace("-", "_") for name in entry["refused"]}
            assert all("awaits" in line for line in lines)
    with caplog.at_level("WARNING", logger="octavo"):
        variables.check()
    assert [name for name in entry.get("warned", []) if name not in caplog.text] == []


def _parser_of(command: str, bench: str) -> Any:
    if command not in COMMANDS:
        pytest.skip(f"no command {command}")
    module = importlib.import_module(f"octavo.cli.{command.replace('-', '_')}")
    if command == "bench":
        return module.parsers()[bench].parse_args
    return serve.parse if command == "serve" else module.parser().parse_args
