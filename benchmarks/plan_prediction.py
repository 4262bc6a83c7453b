"""What a calibrated plan predicts against what octavo then does: decoding at four numbers of rows, and prompts, for each model named.

    python -m benchmarks.plan_prediction MODEL ... [--rounds 3] [--within 0.15] [--json FILE]

Calibration and models take turns in every round, so that a machine that grows slower or faster does so for both; medians over the rounds
are compared. Nothing is kept: `octavo plan --calibrate` does that. Exits with 1 where a prediction is off by more than --within.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
from pathlib import Path

import msgspec

from octavo.config.options import Options
from octavo.planning import calibrate, calibrate_runs, calibrate_terms
from octavo.planning.calibrate_terms import Ran

Kind = tuple[str, int, int, float]  # model or shape, tokens, rows, context


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="folders or hub ids; their architectures must be ones that octavo runs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--within", type=float, default=0.15, help="largest error, as a share of what was measured")
    parser.add_argument("--quantization", default=None, help="as for octavo serve, in calibration and models alike")
    parser.add_argument("--json", type=Path, default=None, help="a file for all figures")
    wanted = parser.parse_args()
    options = Options(quantization=wanted.quantization)
    calibrated: dict[Kind, list[Ran]] = {}
    measured: dict[Kind, list[Ran]] = {}
    for number in range(wanted.rounds):
        shapes, models = iter(calibrate_runs.SHAPES.items()), iter(wanted.models)
        for shape, model in itertools.zip_longest(shapes, models):
            if shape is not None:
                print(f"round {number + 1}: calibration, {shape[0]}", flush=True)
                _note(calibrated, shape[0], calibrate_runs.measure(shape[1], options))
            if model is not None:
                print(f"round {number + 1}: {model}", flush=True)
                with calibrate_runs.running(calibrate_runs.settings(options, model=model)) as bench:
                    _note(measured, model, calibrate_runs.steps(bench))
    terms = calibrate_terms.fit(_medians(calibrated))
    print(f"\nload average {os.getloadavg()[0]:.1f}; medians of {wanted.rounds} rounds")
    print(f"{'model':<28}{'step':<20}{'measured':>12}{'spread':>8}{'predicted':>13}{'off by':>8}")
    rows, worst = [], 0.0
    for kind, median in zip(measured, _medians(measured), strict=True):
        error = calibrate.error(terms, median)
        worst = max(worst, abs(error))
        seconds = [each.seconds for each in measured[kind]]
        spread = (max(seconds) - min(seconds)) / median.seconds
        name, tokens, count, _ = kind
        step = f"{count} rows" if tokens == count else f"prompt of {tokens}"
        predicted = median.seconds * (1 + error)
        print(f"{Path(name).name:<28}{step:<20}{median.seconds * 1e3:>9.2f} ms{spread:>8.0%}{predicted * 1e3:>10.2f} ms{error:>+8.0%}")
        rows.append({"model": name, "tokens": tokens, "rows": count, "measured_s": seconds, "predicted_s": predicted, "error": error})
    print(f"largest error {worst:.0%}, {wanted.within:.0%} allowed")
    if wanted.json is not None:
        wanted.json.write_text(json.dumps({"terms": msgspec.to_builtins(terms), "steps": rows}, indent=2) + "\n")
    return 0 if worst <= wanted.within else 1


def _note(into: dict[Kind, list[Ran]], name: str, steps: list[Ran]) -> None:
    for each in steps:
        into.setdefault((name, each.tokens, each.rows, each.context), []).append(each)


def _medians(steps: dict[Kind, list[Ran]]) -> list[Ran]:
    return [msgspec.structs.replace(some[0], seconds=statistics.median(each.seconds for each in some)) for some in steps.values()]


if __name__ == "__main__":
    sys.exit(main())
