"""What `octavo plan` does with its options: one plan, told as a table, as JSON, or with every formula."""

import json
import sys
from typing import Any

from octavo.config.options import Options, PlanOptions
from octavo.planning import advice, explain, hardware, plan, report, table
from octavo.planning.topology import Topology


def run(options: Options, wanted: PlanOptions, layout: dict[str, Any], notes: list[str]) -> int:
    """Prints the plan; 0 if it fits, 1 if not. Raises OctavoError for what cannot be planned."""
    devices = hardware.parse(wanted.hardware)
    made = plan.make(options, devices, Topology(**layout), notes=notes)
    remedies = [] if made.fits else advice.find(made, options)
    if wanted.json:
        json.dump(report.of(made, remedies), sys.stdout, indent=2)
        print()
    else:
        print(table.of(made, remedies))
        if wanted.explain:
            print()
            print(explain.of(made))
    return 0 if made.fits else 1
