"""Calibration: terms are found again in steps made of them, the file is used by the machine and the versions that made it, and octavo
itself is what is measured.
"""

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from octavo.cli import plan as plan_command
from octavo.config.options import Options
from octavo.errors import ConfigError, OctavoError
from octavo.planning import calibrate, calibrate_file, calibrate_runs, calibrate_terms, hardware, plan, speed
from octavo.planning.calibrate_file import Calibration
from octavo.planning.calibrate_terms import TOKENS, Ran, Terms
from octavo.planning.topology import Topology
from octavo.planning.work import Work

TERMS = Terms(
    step=2e-3,
    layer=5e-5,
    row=4e-5,
    score=1e-9,
    number=2e-10,
    attention=3e-11,
    prompt_attention=4e-12,
    weight=[4e-11, 6e-11, 1.6e-10, 5.6e-10, 2.1e-9],
)


def shaped(layers: int, hidden: int, vocabulary: int, **changes: Any) -> Work:
    weights = layers * 12 * hidden * hidden
    made = Work(
        layers=layers,
        is_last=True,
        hidden=hidden,
        vocabulary=vocabulary,
        dense_products=weights,
        dense_bytes=2 * weights,
        expert_products=0,
        expert_bytes=0,
        experts=0,
        num_experts=0,
        num_chosen=0,
        head_products=hidden * vocabulary,
        head_bytes=2 * hidden * vocabulary,
        heads=[(layers * hidden, layers * hidden, 0)],
    )
    return msgspec.structs.replace(made, **changes)


def ran(noise: float = 0.0) -> list[Ran]:
    """The steps of a calibration, by TERMS."""
    draw = random.Random(0)
    found = []
    for work in (shaped(8, 1024, 1024), shaped(24, 256, 1024), shaped(2, 256, 131072)):
        kinds = [(rows, rows, 20.0) for rows in TOKENS[:4]] + [(512, 1, 256.0), (8, 8, 1050.0)]
        for tokens, rows, context in kinds:
            seconds = calibrate_terms.predict(TERMS, work, tokens, rows, context) * (1 + draw.uniform(-noise, noise))
            found.append(Ran(work=work, tokens=tokens, rows=rows, context=context, seconds=seconds))
    return found


def test_steps_are_predicted_by_terms_that_were_fitted_to_others() -> None:
    terms = calibrate_terms.fit(ran())
    assert terms.weight == pytest.approx(TERMS.weight, rel=0.01)
    for work in (shaped(30, 576, 49152), shaped(24, 896, 151936), shaped(18, 640, 262144)):
        for tokens, rows, context in [(rows, rows, 300.0) for rows in (1, 4, 8, 32, 100, 128)] + [(512, 1, 256.0), (2048, 1, 1024.0)]:
            wanted = calibrate_terms.predict(TERMS, work, tokens, rows, context)
            assert calibrate_terms.predict(terms, work, tokens, rows, context) == pytest.approx(wanted, rel=0.02)


def test_noise_in_what_is_measured_makes_no_term_negative() -> None:
    terms = calibrate_terms.fit(ran(noise=0.1))
    assert min(msgspec.structs.astuple(terms)[:-1]) >= 0.0
    assert terms.weight == sorted(terms.weight)
    wanted = calibrate_terms.predict(TERMS, shaped(30, 576, 49152), 32, 32, 300.0)
    assert calibrate_terms.predict(terms, shaped(30, 576, 49152), 32, 32, 300.0) == pytest.approx(wanted, rel=0.15)


def test_a_weights_time_is_interpolated_and_goes_on_behind_the_last() -> None:
    assert [TERMS.weights_s(1.0, tokens) for tokens in TOKENS] == pytest.approx(TERMS.weight)
    assert TERMS.weights_s(10.0, 20) == pytest.approx(10 * (6e-11 + 1.6e-10) / 2)
    slope = (TERMS.weight[-1] - TERMS.weight[-2]) / (512 - 128)
    assert TERMS.weights_s(1.0, 1024) == pytest.approx(TERMS.weight[-1] + 512 * slope)


def test_experts_take_the_time_of_those_that_are_chosen() -> None:
    work = shaped(4, 256, 1000, expert_products=1000, experts=8, num_experts=8, num_chosen=2)
    (_, (count, tokens), _) = calibrate_terms.weights(work, 16, 16)
    assert count == pytest.approx(1000 * work.chosen_experts(16))
    assert count * tokens == pytest.approx(16 * 2 * 1000)  # all products are done, by whichever experts


# --- the file


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(calibrate_file, "path", lambda found: tmp_path / "calibration" / f"{found.id}.json")
    return calibrate_file.path(calibrate_file.this_machine())


def made(**changes: Any) -> Calibration:
    whole = Calibration(
        machine=calibrate_file.this_machine(),
        versions=calibrate_file.versions(),
        measured_at="2030-01-02T03:04:05+00:00",
        terms={"bfloat16": TERMS},
        worst={"bfloat16": 0.05},
    )
    return msgspec.structs.replace(whole, **changes)


def test_what_was_measured_is_found_again(file: Path) -> None:
    assert calibrate_file.load() is None
    assert calibrate_file.save(made()) == file
    assert calibrate_file.load() == made()
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_number_formats_are_kept_beside_one_another(file: Path) -> None:
    calibrate_file.save(made())
    calibrate_file.save(made(terms={"int8": TERMS}, worst={"int8": 0.1}))
    found = calibrate_file.load()
    assert found is not None
    assert set(found.terms) == set(found.worst) == {"bfloat16", "int8"}


def test_what_other_versions_or_machines_measured_is_not_used(file: Path) -> None:
    calibrate_file.save(made(versions=calibrate_file.versions() | {"octavo": "0.0"}))
    assert calibrate_file.load() is None
    other = msgspec.structs.replace(calibrate_file.this_machine(), cores=77)
    assert other.id != calibrate_file.this_machine().id
    file.write_bytes(msgspec.json.encode(made(machine=other)))
    assert calibrate_file.load() is None


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"machine": 1}'])
def test_a_damaged_file_is_as_good_as_none(file: Path, damage: bytes) -> None:
    calibrate_file.save(made())
    file.write_bytes(damage)
    assert calibrate_file.load() is None
    calibrate_file.save(made())
    assert calibrate_file.load() == made()


# --- plans


@pytest.fixture
def tiny_config(tmp_path: Path) -> str:
    folder = tmp_path / "tiny"
    folder.mkdir()
    calibrate_runs.write(folder, {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 512})
    return str(folder)


def test_plans_for_this_machine_use_it_and_say_so(file: Path, tiny_config: str) -> None:
    options = Options(model=tiny_config)
    before = speed.Roofline(plan.make(options, hardware.parse("cpu"), Topology()))
    calibrate_file.save(made())
    after = speed.Roofline(plan.make(options, hardware.parse("cpu"), Topology()))
    assert "assumed" in before.efficiency.source
    assert after.efficiency.source.startswith("measured on this machine by octavo")
    assert after.decode(8, 50.0).seconds == pytest.approx(calibrate_terms.predict(TERMS, after.stages[0], 8, 8, 50.0))


def test_a_format_that_was_not_measured_is_assumed_and_told(file: Path, tiny_config: str) -> None:
    calibrate_file.save(made())
    options = Options(model=tiny_config, quantization="int8")
    roofline = speed.Roofline(plan.make(options, hardware.parse("cpu"), Topology()))
    assert roofline.efficiency.measured is None
    assert "--calibrate --quantization int8" in roofline.efficiency.source


def test_explained_terms_add_up(file: Path, tiny_config: str, capsys: pytest.CaptureFixture[str]) -> None:
    calibrate_file.save(made())
    plan_command.run([tiny_config, "--explain"])
    told = capsys.readouterr().out
    assert "measured on this machine" in told
    assert "weights x" in told


# --- octavo itself


def test_calibrating_runs_octavo_and_tells_what_it_predicts(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 512}
    monkeypatch.setattr(calibrate_runs, "SHAPES", {"tiny": tiny})
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    assert plan_command.run(["--calibrate"]) == 0
    told = capsys.readouterr().out
    for rows in (1, 8, 32, 128):
        assert f"tiny    {rows} rows, context" in told
    assert "prompt of 512" in told
    assert "8 rows, context 1,0" in told
    assert str(file) in told
    found = calibrate_file.load()
    assert found is not None
    assert found.terms["bfloat16"].weight == sorted(found.terms["bfloat16"].weight)


def test_only_this_machines_processor_is_measured() -> None:
    with pytest.raises(ConfigError, match="processor"):
        calibrate.run(Options(device="cuda"))


def test_steps_that_cannot_be_told_apart_are_no_measurement() -> None:
    with pytest.raises(OctavoError, match="side by side"):
        calibrate_runs._median([])
    assert calibrate_runs._median([3.0, 1.0, 2.0]) == 2.0
