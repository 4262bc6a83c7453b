"""Tapes: which steps are recorded and replayed, from the options that say so of graphs: -O, --enforce-eager, -cc and two more."""

from typing import Any

from octavo.config.options import Options
from octavo.errors import ConfigError

ALL_ROWS = 1 << 20
FEW_ROWS = 8  # at -O1
_COUNTED = ("mode", "cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size")


def decide_tape_rows(options: Options, reasons: list[str]) -> int:
    """The most rows of a step of single tokens that is recorded; 0: every step runs kernel by kernel."""
    if not 0 <= options.optimization_level <= 3:
        raise ConfigError(f"optimization_level must be 0, 1, 2 or 3, not {options.optimization_level}")
    config = options.compilation_config
    config = config if isinstance(config, dict) else {"mode": config}
    if idle := [key for key in config if key not in _COUNTED]:
        reasons.append(f"compilation_config: {', '.join(idle)}: octavo compiles its own kernels, so these change nothing")
    if options.enforce_eager:
        return _none("--enforce-eager", reasons)
    if options.optimization_level == 0:
        return _none("-O0", reasons)
    if str(config.get("cudagraph_mode", "")).lower() in ("none", "0"):
        return _none("cudagraph_mode none", reasons)
    sizes, most = options.cudagraph_capture_sizes, options.max_cudagraph_capture_size
    if sizes:
        if most is not None and most != max(sizes):
            raise ConfigError(f"max_cudagraph_capture_size {most} is not the largest of cudagraph_capture_sizes, {max(sizes)}", "leave one")
        most = max(sizes)
    if most is not None:
        if most < 0 or any(size < 1 for size in sizes):
            raise ConfigError(f"steps cannot be captured for {most if most < 0 else min(sizes)} rows", "give numbers of rows from 1 on")
        reasons.append(f"tapes of steps of up to {most} rows: every number of rows has its own, and none is padded")
        return most
    if options.optimization_level == 1:
        reasons.append(f"tapes of steps of up to {FEW_ROWS} rows: -O1")
        return FEW_ROWS
    return ALL_ROWS


def _none(why: str, reasons: list[str]) -> int:
    reasons.append(f"no tapes, steps run kernel by kernel: {why}")
    return 0


def nested(value: Any) -> dict[str, Any]:
    """A JSON option that may also be a bare mode."""
    return value if isinstance(value, dict) else {}
