"""custom: the prompts of a file of JSON lines, {"prompt": ..., "output_tokens": ...}."""

from octavo.bench.options import DatasetOptions
from octavo.bench.sample import Sample, chosen, lines
from octavo.bench.words import Words
from octavo.errors import ConfigError


def sample(options: DatasetOptions, words: Words | None) -> list[Sample]:
    """Prompts as they stand, rendered by the chat template where the tokenizer has one and it is not skipped."""
    samples = []
    for line in lines(options):
        if not isinstance(line.get("prompt"), str):
            raise ConfigError('a line of the dataset has no "prompt" of text', 'each line is {"prompt": "..."}')
        num_output = options.custom_output_len
        if num_output == -1 and options.output_len is None:
            if not isinstance(line.get("output_tokens"), int):
                raise ConfigError('--custom-output-len -1 takes the "output_tokens" of each line, and one has none')
            num_output = line["output_tokens"]
        prompt = line["prompt"]
        if words is None:
            samples.append(Sample(prompt, 0, num_output))
            continue
        if not options.skip_chat_template and words.tokenizer.chat_template:
            messages = [{"role": "user", "content": prompt}]
            prompt = words.tokenizer.render_chat(messages, add_generation_prompt=True, variables=options.chat_template_kwargs).text
        samples.append(Sample(prompt, len(words.tokenizer.encode(prompt)), num_output))
    return chosen(options, samples)
