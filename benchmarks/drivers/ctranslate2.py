"""CTranslate2 over a model that its converter has made; one prompt at a time."""

import json
import time
from pathlib import Path

import ctranslate2

from benchmarks.drivers import driver


class CTranslate2(driver.Engine):
    def __init__(self, wanted: driver.Wanted) -> None:
        super().__init__(wanted)
        self.words = json.loads((Path(wanted["model"]) / "vocabulary.json").read_text())
        kind, threads = {"int8": "int8", "fp32": "float32"}[wanted["format"]], wanted["threads"]
        self.model = ctranslate2.Generator(wanted["model"], device="cpu", compute_type=kind, inter_threads=1, intra_threads=threads)

    def facts(self) -> driver.Value:
        return {"version": ctranslate2.__version__}

    def generate(self, prompts: list[list[int]], counts: list[int]) -> float:
        (prompt,), (count,) = prompts, counts
        words = [[self.words[token] for token in prompt]]
        lengths = {"max_length": count, "min_length": count, "include_prompt_in_result": False}
        start = time.perf_counter()
        (output,) = self.model.generate_batch(words, sampling_topk=1, end_token=[], **lengths)
        seconds = time.perf_counter() - start
        assert len(output.sequences_ids[0]) == count
        return seconds


if __name__ == "__main__":
    driver.run(CTranslate2)
