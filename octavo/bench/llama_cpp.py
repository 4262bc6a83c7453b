"""llama.cpp measured as octavo is, over the same windows of token ids, through the C interface in the llama-cpp-python package."""

import ctypes
import importlib
import math
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from octavo.errors import ConfigError

Array = np.ndarray[Any, Any]
# ggml's ftype of a whole file, by the name that users know
FILE_TYPES = {"BF16": 32, "Q4_0": 2, "Q8_0": 7, "Q4_K": 15}


def library() -> Any:
    """llama.cpp's functions; silent."""
    try:
        functions: Any = importlib.import_module("llama_cpp")
    except (ImportError, RuntimeError, OSError) as error:
        raise ConfigError(f"llama.cpp cannot be measured: {error}", "pip install llama-cpp-python") from None
    if not _CALLBACKS:
        _CALLBACKS.append(functions.llama_log_callback(lambda level, text, data: None))
        functions.llama_log_set(_CALLBACKS[0], None)
        functions.llama_backend_init()
    return functions


def quantize(source: Path, destination: Path, file_type: str) -> None:
    """Write a GGUF file of 16 bit numbers again, as llama.cpp's own quantize does."""
    functions = library()
    params = functions.llama_model_quantize_default_params()
    params.ftype = FILE_TYPES[file_type]
    if functions.llama_model_quantize(os.fsencode(source), os.fsencode(destination), ctypes.byref(params)):
        raise ConfigError(f"llama.cpp cannot write {source} in {file_type}")


class LlamaCpp:
    """A GGUF file in memory, and a context of one window."""

    def __init__(self, file: Path, context: int, threads: int) -> None:
        self._functions = library()
        params = self._functions.llama_model_default_params()
        params.n_gpu_layers = 0
        self._model = self._functions.llama_model_load_from_file(os.fsencode(file), params)
        if not self._model:
            raise ConfigError(f"llama.cpp cannot load {file}")
        settings = self._functions.llama_context_default_params()
        settings.n_ctx = settings.n_batch = context
        settings.n_threads = settings.n_threads_batch = threads
        self._context = self._functions.llama_init_from_model(self._model, settings)
        self._vocabulary = self._functions.llama_vocab_n_tokens(self._functions.llama_model_get_vocab(self._model))
        self._batch = self._functions.llama_batch_init(context, 0, 1)

    def __enter__(self) -> "LlamaCpp":
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self._functions.llama_batch_free(self._batch)
        self._functions.llama_free(self._context)
        self._functions.llama_model_free(self._model)

    @property
    def weights_bytes(self) -> int:
        return int(self._functions.llama_model_size(self._model))

    def logprobs(self, window: list[int]) -> list[float]:
        """Of every token but the first."""
        self._decode(window, 0, all_logits=True)
        found = []
        for row, token in zip(self._logits(len(window)), window[1:]):
            wide = row.astype(np.float64)
            largest = wide.max()
            found.append(float(wide[token] - largest - np.log(np.exp(wide - largest).sum())))
        if not all(map(math.isfinite, found)):
            raise ConfigError("llama.cpp's logits are not finite")
        return found

    def seconds(self, prompt: list[int], num_tokens: int) -> float:
        """Of the likeliest tokens after a prompt, alone."""
        start = time.perf_counter()
        self._decode(prompt, 0)
        for done in range(1, num_tokens):
            self._decode([int(self._logits(1)[0].argmax())], len(prompt) + done - 1)
        self._logits(1)[0].argmax()
        return time.perf_counter() - start

    def _decode(self, ids: list[int], start: int, all_logits: bool = False) -> None:
        if start == 0:
            self._functions.llama_memory_clear(self._functions.llama_get_memory(self._context), True)
        batch = self._batch
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, start + i, 1, 0
            batch.logits[i] = all_logits or i == len(ids) - 1
        if status := self._functions.llama_decode(self._context, batch):
            raise ConfigError(f"llama.cpp's decode fails with {status}")

    def _logits(self, rows: int) -> Array:
        """Of the rows that asked for them, until the next decode."""
        found: Array = np.ctypeslib.as_array(self._functions.llama_get_logits(self._context), shape=(rows, self._vocabulary))
        return found


_CALLBACKS: list[Any] = []  # that llama.cpp logs to; they live as long as the program
