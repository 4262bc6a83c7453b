"""OpenVINO GenAI: its pipeline with continuous batching, over a model that optimum-intel has converted."""

import time

import numpy as np
import openvino
import openvino_genai as genai

from benchmarks.drivers import driver


class OpenVino(driver.Engine):
    def __init__(self, wanted: driver.Wanted) -> None:
        super().__init__(wanted)
        schedule = genai.SchedulerConfig()
        schedule.cache_size, schedule.max_num_batched_tokens, schedule.max_num_seqs = 1, 2048, 64
        schedule.enable_prefix_caching, schedule.dynamic_split_fuse = False, True
        properties = {"INFERENCE_NUM_THREADS": wanted["threads"]}
        self.pipeline = genai.ContinuousBatchingPipeline(wanted["model"], schedule, "CPU", properties)

    def facts(self) -> driver.Value:
        return {"version": genai.__version__}

    def generate(self, prompts: list[list[int]], counts: list[int]) -> float:
        inputs = [openvino.Tensor(np.array([prompt], dtype=np.int64)) for prompt in prompts]
        settings = [_settings(count) for count in counts]
        start = time.perf_counter()
        outputs = self.pipeline.generate(inputs, settings)
        seconds = time.perf_counter() - start
        assert [len(output.m_generation_ids[0]) for output in outputs] == counts
        return seconds


def _settings(count: int) -> genai.GenerationConfig:
    settings = genai.GenerationConfig()
    settings.max_new_tokens = settings.min_new_tokens = count
    settings.ignore_eos, settings.do_sample = True, False
    return settings


if __name__ == "__main__":
    driver.run(OpenVino)
