"""Random numbers: one for each seed and position, whatever else is sampled beside it and however the text was cut into steps.

A counter-based generator: the finalizer of splitmix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014;
constants of Stafford's mix 13) over the seed, and once more over that and the position.
"""

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_POSITION = np.uint64(0xD1342543DE82EF95)


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniforms(seeds: npt.NDArray[np.uint64], positions: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """A number in 0 .. 1 (1 excluded), a multiple of 2**-53, for each pair of a 64-bit seed and a position."""
    places = np.asarray(positions).astype(np.uint64) * _POSITION + _GOLDEN
    bits = _mix(_mix(seeds + _GOLDEN) ^ places)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
