"""Calibrate: what the parts of a step take on this machine, measured by running octavo, kept, and shown beside what it predicts."""

import datetime
from collections.abc import Callable

from octavo.config.options import Options
from octavo.errors import ConfigError
from octavo.planning import calibrate_file, calibrate_runs, calibrate_terms
from octavo.planning.calibrate_file import Calibration
from octavo.planning.calibrate_terms import Ran, Terms


def run(options: Options, say: Callable[[str], None] = print) -> Calibration:
    """Measures, fits, keeps and tells. options: of their number formats. Raises ConfigError for what this machine does not run."""
    if options.device not in ("auto", "cpu"):
        raise ConfigError(f"--calibrate measures this machine's processor, not --device {options.device}", "leave --device out")
    began = datetime.datetime.now(datetime.UTC)
    steps: dict[str, list[Ran]] = {}
    for name, shape in calibrate_runs.SHAPES.items():
        steps[name] = calibrate_runs.measure(shape, options)
    terms = calibrate_terms.fit([each for some in steps.values() for each in some])
    calibration = Calibration(
        machine=calibrate_file.this_machine(),
        versions=calibrate_file.versions(),
        measured_at=began.isoformat(timespec="seconds"),
        terms={number_format(options): terms},
        worst={number_format(options): max(abs(error(terms, each)) for some in steps.values() for each in some)},
    )
    file = calibrate_file.save(calibration)
    say(page(calibration, number_format(options), steps))
    say(f"Kept in {file}; octavo plan on cpu predicts with it from now on.")
    return calibration


def number_format(options: Options) -> str:
    """What terms are kept by: a scheme of --quantization, or the numbers that weights are kept in without one."""
    return options.quantization or ("float32" if options.dtype in ("float32", "float") else "bfloat16")


def error(terms: Terms, ran: Ran) -> float:
    """Of the prediction, as a share of what was measured."""
    return calibrate_terms.predict(terms, ran.work, ran.tokens, ran.rows, ran.context) / ran.seconds - 1.0


def page(calibration: Calibration, name: str, steps: dict[str, list[Ran]]) -> str:
    """The terms, and each step as it was measured and as it is predicted."""
    machine, terms = calibration.machine, calibration.terms[name]
    lines = [f"{machine.processor}, {machine.cores} cores, weights in {name}", ""]
    lines.append(f"  a step {terms.step * 1e3:.3f} ms, a layer {terms.layer * 1e6:.1f} us, a row {terms.row * 1e6:.1f} us")
    bytes_each = {"bfloat16": 2, "float32": 4}.get(name)
    if bytes_each is not None and terms.weight[0] > 0.0:
        lines.append(f"  weights are read at {bytes_each / terms.weight[0] / 1e9:.1f} GB/s when one token is multiplied with them")
    shown = ((count, each) for count, each in zip(calibrate_terms.TOKENS, terms.weight, strict=True) if each > 0.0)
    for count, each in shown:
        lines.append(f"  {count:>4} tokens: {2e-9 * count / each:,.1f} billion operations a second")
    lines += ["", f"  {'model':<8}{'step':<26}{'measured':>12}{'predicted':>12}"]
    for model, some in steps.items():
        for ran in some:
            said = f"{ran.rows} rows, context {ran.context:,.0f}" if ran.tokens == ran.rows else f"prompt of {ran.tokens}"
            predicted = (1.0 + error(terms, ran)) * ran.seconds
            lines.append(f"  {model:<8}{said:<26}{ran.seconds * 1e3:>9.2f} ms{predicted * 1e3:>9.2f} ms  {error(terms, ran):+.0%}")
    return "\n".join([*lines, ""])
