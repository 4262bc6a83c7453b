"""--config: the file says what the command line would, the command line is over it, and what is wrong in it is told with its name."""

from pathlib import Path

import pytest

from octavo.cli import serve


def _write(folder: Path, text: str) -> str:
    file = folder / "f.yaml"
    file.write_text(text)
    return str(file)


def test_every_form_of_value(tmp_path: Path) -> None:
    file = _write(
        tmp_path,
        """
model: some/model
max_model_len: 25.6k
max-num-seqs: 8
enable-prefix-caching: false
trust_remote_code: true
tokenizer: null
served-model-name: [a, "-b"]
api-key: one
allowed_origins: ["*"]
hf-overrides:
  rope_scaling: {factor: 4.0}
override_generation_config: '{"top_k": 3}'
default-chat-template-kwargs.enable_thinking: false
port: 9000
optimization-level: 1
""",
    )
    options, server = serve.parse(["--config", file])
    assert (options.model, options.max_model_len, options.max_num_seqs) == ("some/model", 25_600, 8)
    assert options.enable_prefix_caching is False
    assert options.trust_remote_code is True
    assert options.tokenizer is None
    assert options.served_model_name == ["a", "-b"]
    assert options.hf_overrides == {"rope_scaling": {"factor": 4.0}}
    assert options.override_generation_config == {"top_k": 3}
    assert options.optimization_level == 1
    assert (server.port, server.api_key, server.allowed_origins) == (9000, ["one"], ["*"])
    assert server.default_chat_template_kwargs == {"enable_thinking": False}


def test_the_command_line_is_over_the_file(tmp_path: Path) -> None:
    file = _write(tmp_path, "max-num-seqs: 8\nserved-model-name: [a, b]\nhf-overrides: {x: 1}\nenable_prefix_caching: true\nseed: 3\n")
    words = ["m", "--served-model-name", "c", "--config", file, "--served-model-name=d", "--hf-overrides.y=2", "--max-num-seqs", "9"]
    options, _ = serve.parse([*words, "--no-enable-prefix-caching"])
    assert (options.model, options.served_model_name, options.hf_overrides) == ("m", ["c", "d"], {"y": 2})
    assert (options.max_num_seqs, options.enable_prefix_caching, options.seed) == (9, False, 3)


def test_an_empty_file_and_model_tag(tmp_path: Path) -> None:
    assert serve.parse(["--config", _write(tmp_path, "")])[0].model == "smollm2"
    assert serve.parse(["--config=" + _write(tmp_path, "model_tag: x")])[0].model == "x"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max-nun-seqs: 3", "unknown option 'max-nun-seqs'; did you mean max-num-seqs?"),
        ("max-num-seqs: many", "'many' is not a number"),
        ("dtype: bfloat61", "did you mean bfloat16"),
        ("port: [1, 2]", "port takes one value, not a list"),
        ("port: {a: 1}", "port takes no mapping"),
        ("port.x: 1", "--port takes no keys"),
        ("- a", "holds no mapping"),
        ("a: [", "is no YAML"),
        ("config: other.yaml", "unknown option 'config'"),
    ],
)
def test_what_is_wrong_is_told_with_the_file(text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _write(tmp_path, text)
    with pytest.raises(SystemExit) as ended:
        serve.parse(["--config", file])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert f"{file}: " in error


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serve.parse(["--config", "nowhere.yaml"])
    assert "nowhere.yaml: cannot be read: No such file" in capsys.readouterr().err


def test_refusals_of_file_and_command_line_are_told_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serve.parse(["--config", _write(tmp_path, "enable-lora: true\ndata_parallel_size: 2"), "--enable-sleep-mode"])
    said = capsys.readouterr().err
    assert all(
        what in said for what in ("--enable-lora: awaits LoRA", "--data-parallel-size 2: awaits data", "--enable-sleep-mode: awaits sleep")
    )


def test_an_error_on_the_command_line_does_not_name_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serve.parse(["--config", _write(tmp_path, "seed: 3"), "--dtype", "x"])
    assert "f.yaml" not in capsys.readouterr().err
