"""transformers: generate() on one prompt at a time, in bfloat16, with torch's own attention."""

import time

import torch
import transformers

from benchmarks.drivers import driver


class Transformers(driver.Engine):
    def __init__(self, wanted: driver.Wanted) -> None:
        super().__init__(wanted)
        torch.set_num_threads(wanted["threads"])
        self.model = transformers.AutoModelForCausalLM.from_pretrained(wanted["model"], dtype=torch.bfloat16).eval()
        self.model.generation_config.eos_token_id = None
        self.model.generation_config.pad_token_id = 0

    def facts(self) -> driver.Value:
        return {"version": f"{transformers.__version__}, torch {torch.__version__}"}

    def generate(self, prompts: list[list[int]], counts: list[int]) -> float:
        (prompt,), (count,) = prompts, counts
        ids = torch.tensor([prompt])
        lengths = {"max_new_tokens": count, "min_new_tokens": count}
        start = time.perf_counter()
        with torch.inference_mode():
            out = self.model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, eos_token_id=None, **lengths)
        seconds = time.perf_counter() - start
        assert out.shape[1] == len(prompt) + count
        return seconds


if __name__ == "__main__":
    driver.run(Transformers)
