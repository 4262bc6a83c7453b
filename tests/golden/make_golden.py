"""Writes smollm2.json: what transformers says, greedy and in float32, with the weights of the catalog's GGUF file.

usage: python -m tests.golden.make_golden PATH_OF_THE_GGUF
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from octavo.text.tokenizer import Tokenizer

NEW_TOKENS = 32
PROMPTS = [
    "What is the capital of Germany?",
    "What is 2 + 2?",
    "Write a haiku about the sea.",
    "Explain in one sentence why the sky is blue.",
    "List three fruits that are red.",
    "Translate 'good morning' into French.",
    "Who wrote Romeo and Juliet?",
    "What is the boiling point of water in degrees Celsius?",
    "Give me a short recipe for pancakes.",
    "How many days are there in a leap year?",
    "Summarize: The quick brown fox jumps over the lazy dog. The dog does not mind.",
    "What does HTTP stand for?",
    "Write a Python function that adds two numbers.",
    "Name the planets of the solar system.",
    "What is the opposite of hot?",
    "Tell me a fact about elephants.",
    "Write an email to my landlord about a broken heater.",
    "Why do leaves change colour in autumn?",
    "Finish the sentence: Once upon a time, there was a dragon who",
    "What is the difference between a list and a tuple in Python?",
]


def main() -> None:
    path = Path(sys.argv[1])
    tokenizer = Tokenizer.from_gguf(path)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    golden = []
    for prompt in PROMPTS:
        ids = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=True, add_generation_prompt=True)
        with torch.inference_mode():
            out = model.generate(torch.tensor([ids]), max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=2, pad_token_id=2)
        new = out[0, len(ids) :].tolist()
        golden.append(
            {"prompt": prompt, "prompt_token_ids": ids, "token_ids": new, "text": tokenizer.decode(new, skip_special_tokens=True)}
        )
        print(repr(golden[-1]["text"]), file=sys.stderr)
    Path(__file__).with_name("smollm2.json").write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
