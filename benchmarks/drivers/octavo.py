"""octavo, through LLM in processes of its own as users have it."""

import itertools
import time
from typing import Any

from benchmarks.drivers import driver
from octavo import LLM, SamplingParams, __version__
from octavo.protocol.messages import EngineRequest

# format -> options; the model is a folder, or a GGUF file in the format that it is stored in
FORMATS: dict[str, dict[str, Any]] = {
    "fp32": {"dtype": "float32"},
    "bf16": {"dtype": "bfloat16"},
    "w8a8": {"dtype": "bfloat16", "quantization": "int8"},
    "int8": {"dtype": "bfloat16", "quantization": "int8_per_channel_weight_only"},
    "int4": {"dtype": "bfloat16", "quantization": "int4"},
}


class Octavo(driver.Engine):
    def __init__(self, wanted: driver.Wanted) -> None:
        super().__init__(wanted)
        options = FORMATS.get(wanted["format"], {"dtype": "bfloat16"}) | wanted.get("options", {})
        self.llm = LLM(
            model=wanted["model"],
            enable_prefix_caching=wanted["keeps_prefixes"],
            kv_cache_memory_bytes=1 << 30,
            max_num_batched_tokens=2048,
            max_num_seqs=64,
            max_model_len=wanted["context"],
            cpu_threads=wanted["threads"],
            **options,
        )

    def facts(self) -> driver.Value:
        facts = self.llm.facts
        return {"version": __version__, "weights_bytes": facts.weights_bytes, "choices": facts.choices}

    def generate(self, prompts: list[list[int]], counts: list[int]) -> float:
        params = [_params(count) for count in counts]
        start = time.perf_counter()
        outputs = self.llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
        seconds = time.perf_counter() - start
        assert [len(output.outputs[0].token_ids) for output in outputs] == counts
        return seconds

    def gaps(self, prompt: list[int], count: int) -> list[float]:
        client, times = self.llm._client, []  # LLM tells a request's end alone
        ids = b"".join(token.to_bytes(4, "little") for token in prompt)
        client.add(EngineRequest("gaps", ids, _params(count), time.monotonic()))
        while len(times) < count:
            outputs = client.outputs()
            assert outputs is not None
            times += [time.perf_counter() for output in outputs.outputs for _ in output.token_ids]
        return [later - earlier for earlier, later in itertools.pairwise(times)]


def _params(count: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True, detokenize=False)


if __name__ == "__main__":
    driver.run(Octavo)
