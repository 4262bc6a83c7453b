"""onnxruntime-genai over a model that its builder has made; one prompt at a time."""

import json
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnxruntime_genai as genai

from benchmarks.drivers import driver


class OnnxRuntime(driver.Engine):
    def __init__(self, wanted: driver.Wanted) -> None:
        super().__init__(wanted)
        _set_threads(Path(wanted["model"]) / "genai_config.json", wanted["threads"])
        self.model = genai.Model(wanted["model"])

    def facts(self) -> driver.Value:
        return {"version": version("onnxruntime-genai")}

    def generate(self, prompts: list[list[int]], counts: list[int]) -> float:
        (prompt,), (count,) = prompts, counts
        params, length = genai.GeneratorParams(self.model), len(prompt) + count
        params.set_search_options(max_length=length, min_length=length, do_sample=False, batch_size=1)
        start = time.perf_counter()
        generator = genai.Generator(self.model, params)
        generator.append_tokens(np.array([prompt], dtype=np.int32))
        for _ in range(count):
            generator.generate_next_token()
        return time.perf_counter() - start


def _set_threads(file: Path, threads: int) -> None:
    """Its default is one thread."""
    settings = json.loads(file.read_text())
    options = settings["model"]["decoder"]["session_options"]
    if options.get("intra_op_num_threads") != threads:
        options["intra_op_num_threads"] = threads
        file.write_text(json.dumps(settings, indent=4))


if __name__ == "__main__":
    driver.run(OnnxRuntime)
