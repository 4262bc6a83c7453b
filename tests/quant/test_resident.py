"""Nothing is widened: a process that has loaded a model holds its stored bytes, within 3 %, in each format of Qwen2.5-Coder-0.5B."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from octavo import environment
from octavo.checkpoint import index as checkpoint_index
from octavo.config.options import Options
from octavo.config.resolve import resolve
from octavo.loading.write import write
from octavo.quant import online
from octavo.quant.written import SCHEMES
from tests.quant.resident import measure

pytestmark = [pytest.mark.model, pytest.mark.slow]
QWEN, GEMMA = "Qwen2.5-Coder-0.5B-Instruct", "gemma-3-270m"
SHARE = 0.03
# what a linear weight takes with its scales, made of codes of that many bits and scales of that many bytes as the format is written down
BYTES: dict[str, Callable[[int, int], float]] = {
    "fp8_per_tensor": lambda rows, columns: rows * columns + 4,
    "fp8_per_block": lambda rows, columns: rows * columns + -(-rows // 128) * -(-columns // 128) * 4,
    "int8_per_channel_weight_only": lambda rows, columns: rows * columns + rows * 4,
    "int8": lambda rows, columns: rows * columns + rows * 4,
    "int8_token": lambda rows, columns: rows * columns + rows * 4,
    "int4": lambda rows, columns: rows * columns * (1 / 2 + 4 / 32),
    "mxfp8": lambda rows, columns: rows * columns * (1 + 1 / 32),
    "nvfp4": lambda rows, columns: rows * columns * (1 / 2 + 1 / 16),
    "bitsandbytes": lambda rows, columns: rows * columns * (1 / 2 + 4 / 64),
}


def folder(name: str) -> Path:
    models = environment.test_models()
    if models is None or not (models / name / "config.json").exists():
        pytest.skip(f"OCTAVO_TEST_MODELS has no {name}")
    return models / name


def holds(model: Path, stored_bytes: float, scheme: str | None) -> None:
    resident = measure(model, scheme)
    share = resident.grown_bytes / stored_bytes - 1
    print(
        f"{model.name} {scheme or 'as stored'}: {stored_bytes / 1e6:.1f} MB stored, {resident.grown_bytes / 1e6:.1f} resident, {share:+.2%}"
    )
    assert resident.planned_bytes == pytest.approx(stored_bytes, rel=SHARE)
    assert resident.grown_bytes == pytest.approx(stored_bytes, rel=SHARE)


def online_bytes(model: Path, scheme: str) -> Iterator[float]:
    for name, entry in checkpoint_index.read(model).entries.items():
        is_linear = len(entry.shape) == 2 and "embed" not in name and "lm_head" not in name
        yield BYTES[scheme](*entry.shape) if is_linear else entry.num_elements * 2


def test_every_online_format_is_here() -> None:
    assert set(online.BY_NAME) <= set(BYTES)


@pytest.mark.parametrize("name", [QWEN, GEMMA])
@pytest.mark.parametrize("is_gguf", [False, True], ids=["bfloat16", "mixed-gguf"])
def test_as_stored(name: str, is_gguf: bool) -> None:
    model = folder(name) / f"{name}.gguf" if is_gguf else folder(name)
    holds(model, checkpoint_index.read(model).total_bytes, None)


@pytest.mark.parametrize("scheme", BYTES)
def test_made_while_loading(scheme: str) -> None:
    model = folder(QWEN)
    holds(model, sum(online_bytes(model, scheme)), scheme)


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme in BYTES])
def test_written(tmp_path: Path, scheme: str) -> None:
    done = write(resolve(Options(model=str(folder(QWEN)))), str(tmp_path / "made"), scheme)
    assert done.written_bytes == checkpoint_index.read(tmp_path / "made").total_bytes
    holds(tmp_path / "made", done.written_bytes, None)
