"""What `octavo plan` does with its options: one plan, told as a table, as JSON, or with every formula."""

import dataclasses
import json
import sys
from typing import Any

import msgspec

from octavo.config.options import Options, PlanOptions
from octavo.planning import advice, calibrate, explain, hardware, plan, recipes, report, scenario, speed, table, workload
from octavo.planning.topology import Topology
from octavo.planning.workload import Workload


def run(options: Options, wanted: PlanOptions, layout: dict[str, Any], notes: list[str]) -> int:
    """Prints the plan; 0 if it fits, 1 if not. Raises OctavoError for what cannot be planned."""
    if wanted.recipes:
        print(recipes.page(options.model, recipes.of(options.model)))
        return 0
    if wanted.calibrate:
        calibrate.run(options)
        return 0
    devices = hardware.parse(wanted.hardware)
    asked = Workload() if wanted.workload is None else workload.parse(wanted.workload)
    chosen = None
    if wanted.scenario is not None:
        before = plan.configure(dataclasses.replace(options), devices)
        chosen, options, layout = scenario.apply(wanted.scenario, options, layout, before)
    made = plan.make(options, devices, Topology(**layout), notes=notes)
    remedies = [] if made.fits else advice.find(made, options)
    roofline = speed.Roofline(made)
    if wanted.json:
        told = report.of(made, remedies, roofline, asked)
        if chosen is not None:
            told["scenario"] = msgspec.to_builtins(chosen) | {"command": chosen.command(options.model, layout)}
        json.dump(told, sys.stdout, indent=2)
        print()
    else:
        if chosen is not None:
            print(scenario.page(chosen, options.model, layout))
        print(table.of(made, remedies, roofline, asked))
        if wanted.explain:
            print()
            print(explain.of(made, roofline, asked))
    return 0 if made.fits else 1
