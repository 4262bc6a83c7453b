"""Threads: steps on as many threads as torch has, each step on one of them."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import torch

from octavo.loading.views import Step


class Threads:
    """Runs steps on as many threads as torch has, each step on one of them.

    The steps are many small operations on tensors that fit into a cache: a team of threads for each would wait more than it works.
    """

    def __enter__(self) -> "Threads":
        self._count = torch.get_num_threads()
        torch.set_num_threads(1)
        self._pool = ThreadPoolExecutor(self._count, thread_name_prefix="octavo-read", initializer=torch.set_num_threads, initargs=(1,))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)
        torch.set_num_threads(self._count)

    def run(self, steps: Iterable[Step]) -> None:
        """Run all steps; raises what the first of them raised."""
        for _ in self._pool.map(lambda step: step(), steps):
            continue
