"""Layout: which parts of an engine have processes of their own. Two options say so: children can be started before all else is known."""

from octavo import environment
from octavo.config.config import ParallelConfig
from octavo.config.options import Options


def decide_parallel(options: Options, reasons: list[str]) -> ParallelConfig:
    alone = environment.in_one_process()
    if alone:
        reasons.append("one process: OCTAVO_ENABLE_V1_MULTIPROCESSING=0")
    backend = "uni" if alone else options.distributed_executor_backend or "mp"
    return ParallelConfig(tensor_parallel_size=1, executor="processes" if backend == "mp" else "in_process", core_in_process=alone)
