"""Every option of vLLM's benches is taken, or refused with the name of what it awaits; none is unknown."""

import subprocess
import sys

import pytest

from octavo.bench.options import LATER, LATER_BACKENDS, LATER_DATASETS, LatencyOptions, ServeOptions, StartupOptions, ThroughputOptions
from octavo.cli import bench
from octavo.cli import main as cli
from octavo.config.options import Options

DATASET = """--trust-remote-code --seed=1 --num-prompts=1 --dataset-name=random --no-stream --dataset-path=x --no-oversample
--skip-chat-template --enable-multimodal-chat --disable-shuffle --custom-output-len=1 --custom-ensure-client-side-data
--spec-bench-output-len=1 --spec-bench-category=x --sharegpt-output-len=1 --timed-trace-chunk-hash-size=1 --timed-trace-sec-multiplier=1
--timed-trace-label-timestamp=x --timed-trace-label-input-length=x --timed-trace-label-output-length=x --timed-trace-label-hash-ids=x
--blazedit-min-distance=0.5 --blazedit-max-distance=0.5 --asr-max-audio-len-sec=1 --asr-min-audio-len-sec=1 --hf-subset=x --hf-split=x
--hf-name=x --hf-output-len=1 --bfcl-categories=x --prefix-repetition-prefix-len=1 --prefix-repetition-suffix-len=1
--prefix-repetition-num-prefixes=1 --prefix-repetition-output-len=1 --speed-bench-dataset-subset=qualitative --speed-bench-output-len=1
--speed-bench-category=x --random-input-len=1 --random-output-len=1 --random-range-ratio=0.1 --random-prefix-len=1 --random-batch-size=2
--no-reranker --random-mm-base-items-per-request=1 --random-mm-num-mm-items-range-ratio=0.1 --random-mm-limit-mm-per-prompt={}
--random-mm-bucket-config={}"""
SERVE = """--label=x --backend=openai --base-url=x --host=x --port=1 --endpoint=x --header=a=b --max-concurrency=1 --model=x --input-len=1
--output-len=1 --tokenizer=x --tokenizer-mode=auto --use-beam-search --logprobs=1 --request-rate=inf --burstiness=1
--probe-request-rate=1 --disable-tqdm --num-warmups=1 --profile --save-result --save-detailed --append-result --metadata=a=b
--result-dir=x --result-filename=x --ignore-eos --self-timed --percentile-metrics=itl --metric-percentiles=99 --goodput=ttft:1
--request-id-prefix=x --top-p=1 --top-k=1 --min-p=0 --temperature=0 --frequency-penalty=0 --presence-penalty=0 --repetition-penalty=1
--served-model-name=x --lora-modules=x --lora-assignment=random --ramp-up-strategy=linear --ramp-up-start-rps=1 --ramp-up-end-rps=2
--ready-check-timeout-sec=1 --chat-template-kwargs={} --extra-body={} --skip-tokenizer-init --insecure --plot-timeline
--timeline-itl-thresholds=25,50 --plot-dataset-stats"""
THROUGHPUT = """--backend=vllm --dataset-name=sharegpt --dataset-path=x --no-oversample --enable-multimodal-chat --custom-output-len=1
--input-len=1 --output-len=1 --n=1 --num-prompts=1 --num-warmups=1 --hf-max-batch-size=1 --hf-enable-torch-compile --output-json=x
--async-engine --prequeue-requests --disable-detokenize --lora-path=x --lora-assignment=random --prefix-len=1 --hf-subset=x --hf-split=x
--hf-name=x --profile --prefix-repetition-prefix-len=1 --prefix-repetition-suffix-len=1 --prefix-repetition-num-prefixes=1
--prefix-repetition-output-len=1 --asr-min-audio-len-sec=1 --asr-max-audio-len-sec=1"""
LATENCY = """--input-len=1 --output-len=1 --batch-size=1 --n=1 --use-beam-search --num-iters-warmup=1 --num-iters=1 --profile
--output-json=x --disable-detokenize"""
STARTUP = "--num-iters-cold=1 --num-iters-warmup=1 --num-iters-warm=1 --output-json=x"

CASES = [
    *(("serve", ServeOptions, None, word) for word in (DATASET + "\n" + SERVE).split()),
    *(("throughput", ThroughputOptions, Options, word) for word in THROUGHPUT.split()),
    *(("latency", LatencyOptions, Options, word) for word in LATENCY.split()),
    *(("startup", StartupOptions, Options, word) for word in STARTUP.split()),
]


def test_the_lists_are_whole() -> None:
    assert [len(text.split()) for text in (DATASET, SERVE, THROUGHPUT, LATENCY, STARTUP)] == [47, 54, 30, 10, 4]


@pytest.mark.parametrize(("name", "own", "engine", "word"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_every_option_of_vllm(name: str, own: type, engine: type | None, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    flag = word.partition("=")[0]
    field = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
    if field not in LATER:
        options, engine_options = bench.parse(name, own, engine, [word])
        assert hasattr(options, field) or hasattr(engine_options, field)
        return
    with pytest.raises(SystemExit) as caught:
        bench.parse(name, own, engine, [word])
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert f"--{field.replace('_', '-')} " in err
    assert f"awaits {LATER[field]}" in err


@pytest.mark.parametrize("dataset", LATER_DATASETS)
def test_datasets_that_are_refused(dataset: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["bench", "serve", "--dataset-name", dataset])
    assert caught.value.code == 2
    assert f"--dataset-name {dataset} is not available in this version of octavo: it awaits" in capsys.readouterr().err


@pytest.mark.parametrize("backend", [*LATER_BACKENDS, "nonsense"])
def test_backends_that_are_refused(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["bench", "serve", "--backend", backend])
    assert caught.value.code == 2
    assert backend in capsys.readouterr().err


@pytest.mark.parametrize("name", ["sweep", "mm-processor", "forward"])
def test_benches_that_are_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", name, "--whatever"]) == 2
    assert f"{name} is not available in this version of octavo: it awaits" in capsys.readouterr().err


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in bench.BENCHES)
    assert cli.main(["bench"]) == 2
    assert cli.main(["bench", "nonsense"]) == 2
    assert "there are serve, throughput" in capsys.readouterr().err


def test_the_handbook_s_command() -> None:
    words = "--model zai-org/GLM-5-FP8 --dataset-name random --random-input 8000 --random-output 1024 --request-rate 10 --num-prompts 32"
    options, _ = bench.parse("serve", ServeOptions, None, [*words.split(), "--ignore-eos"])
    assert (options.random_input_len, options.random_output_len, options.request_rate, options.num_prompts) == (8000, 1024, 10.0, 32)
    assert options.ignore_eos


def test_what_is_typed_once_goes_to_both() -> None:
    options, engine = bench.parse("throughput", ThroughputOptions, Options, ["--seed", "5", "--input-len", "1k", "--trust-remote-code"])
    assert engine.seed == 5
    assert options.input_len == 1000


def test_a_bench_loads_neither_torch_nor_numba() -> None:
    code = (
        "import sys, octavo.cli.bench, octavo.bench.serve, octavo.bench.throughput, octavo.bench.latency, octavo.bench.startup\n"
        "octavo.cli.bench.parser('serve', octavo.cli.bench.ServeOptions, None).format_help()\n"
        "print([m for m in ('torch', 'numba', 'matplotlib', 'transformers') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
