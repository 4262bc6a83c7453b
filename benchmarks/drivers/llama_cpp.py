"""llama.cpp through its C interface, one sequence at a time. Requests that are there at once go to its own server instead."""

import itertools
import time
from typing import Any

import llama_cpp as api
import numpy as np

from benchmarks.drivers import driver

BATCH = 2048


class LlamaCpp(driver.Engine):
    def __init__(self, wanted: driver.Wanted) -> None:
        super().__init__(wanted)
        api.llama_log_set(_SILENT, None)
        api.llama_backend_init()
        settings = api.llama_model_default_params()
        settings.n_gpu_layers = 0
        self.model = api.llama_model_load_from_file(wanted["model"].encode(), settings)
        if not self.model:
            raise ValueError(f"llama.cpp cannot load {wanted['model']}")
        wishes = api.llama_context_default_params()
        wishes.n_ctx, wishes.n_batch, wishes.n_ubatch, wishes.n_seq_max = wanted["context"], BATCH, 512, 1
        wishes.n_threads = wishes.n_threads_batch = wanted["threads"]
        self.context = api.llama_init_from_model(self.model, wishes)
        self.batch = api.llama_batch_init(BATCH, 0, 1)
        self.held: list[int] = []  # what the cache has
        self.words = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))

    def facts(self) -> driver.Value:
        system: Any = api.llama_print_system_info()
        return {"version": f"of llama-cpp-python {api.__version__}", "system": system.decode(), "bytes": api.llama_model_size(self.model)}

    def generate(self, prompts: list[list[int]], counts: list[int]) -> float:
        (prompt,), (count,) = prompts, counts
        self.held = []
        return self._times(prompt, count)[-1]

    def gaps(self, prompt: list[int], count: int) -> list[float]:
        times = self._times(prompt, count)
        return [later - earlier for earlier, later in itertools.pairwise(times)]

    def _times(self, prompt: list[int], count: int) -> list[float]:
        """Seconds from the start to each token. What the cache holds of the prompt's beginning is not computed again."""
        kept = min(self._num_common(prompt), len(prompt) - 1)
        api.llama_memory_seq_rm(api.llama_get_memory(self.context), 0, kept, -1)
        start, times = time.perf_counter(), []
        for first in range(kept, len(prompt), BATCH):
            token = self._decode(prompt[first : first + BATCH], first, first + BATCH >= len(prompt))
        self.held = prompt
        times.append(time.perf_counter() - start)
        for position in range(len(prompt), len(prompt) + count - 1):
            token = self._decode([token], position, True)
            times.append(time.perf_counter() - start)
        return times

    def _num_common(self, prompt: list[int]) -> int:
        return next((i for i, (one, other) in enumerate(zip(prompt, self.held)) if one != other), min(len(prompt), len(self.held)))

    def _decode(self, ids: list[int], first: int, wants_token: bool) -> int:
        """The likeliest token after these, if it is wanted."""
        batch = self.batch
        batch.n_tokens = len(ids)
        for index, token in enumerate(ids):
            batch.token[index], batch.pos[index], batch.logits[index] = token, first + index, False
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
        batch.logits[len(ids) - 1] = wants_token
        if status := api.llama_decode(self.context, batch):
            raise RuntimeError(f"llama_decode gave {status}")
        if not wants_token:
            return 0
        logits = api.llama_get_logits_ith(self.context, len(ids) - 1)
        return int(np.ctypeslib.as_array(logits, shape=(self.words,)).argmax())


@api.llama_log_callback
def _SILENT(level: int, text: bytes, data: Any) -> None:
    return None


if __name__ == "__main__":
    driver.run(LlamaCpp)
