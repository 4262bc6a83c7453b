"""Calibration: what went into a weight while the model read a text."""

from dataclasses import dataclass

import torch


@dataclass(slots=True)
class Felt:
    """mean_square: float32 [columns], of each column of the inputs. largest: the magnitude of the largest input."""

    mean_square: torch.Tensor
    largest: float
