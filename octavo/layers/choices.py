"""Choices: which implementation each layer got, taken once when the model is finished, counted, and told in a few lines."""

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from octavo.attention import interface
from octavo.ops.op import choose


class Choices:
    """Hands out implementations for one device. Layers that ask with equal facts share one.

    dtype: of activations. dry: for meta tensors; nothing is computed, everything is as large as it will be.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        *,
        device: str = "cpu",
        mode: str = "fast",
        attention_backend: str | None = None,
        block_size: int = 16,
        dry: bool = False,
    ) -> None:
        self.dtype = dtype
        self.device = device
        self.mode = mode
        self.attention_backend = attention_backend
        self.block_size = block_size
        self.dry = dry
        self._made: dict[tuple[str, Any], Any] = {}
        self._counts: dict[str, Counter[str]] = {}
        self._refusals: dict[str, list[str]] = {}

    def take(self, op: str, facts: Any) -> Any:
        """The implementation of `op` for `facts`."""
        if (op, facts) not in self._made:
            self._made[op, facts] = choose(op, facts, self.device, self.mode, self.dry)
        return self._noted(self._made[op, facts])

    def take_attention(self, facts: interface.Facts) -> Any:
        """The attention back end for `facts`. Raises ConfigError where one was asked for by name and refuses."""
        if ("attention", facts) not in self._made:
            choice = interface.choose_backend(facts, self.attention_backend, self.mode, self.dry, self.device)
            inner = ", ".join(choice.implementation.choices.values())
            name = choice.name.upper() + (f" ({inner})" if inner else "")
            self._made["attention", facts] = replace(choice, name=name)
        return self._noted(self._made["attention", facts])

    def told(self) -> dict[str, str]:
        """An op: the implementations it got, how often, and why not the ones before."""
        lines = {}
        for op, counts in self._counts.items():
            chosen = ", ".join(f"{name} x {count}" for name, count in counts.most_common())
            lines[op] = "; ".join([chosen, *(f"not {refusal}" for refusal in self._refusals[op])])
        return lines

    def _noted(self, choice: Any) -> Any:
        self._counts.setdefault(choice.op, Counter())[choice.name] += 1
        reasons = self._refusals.setdefault(choice.op, [])
        reasons.extend(reason for reason in choice.refusals if reason not in reasons)
        return choice.implementation
