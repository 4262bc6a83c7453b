"""A tiny llama with random weights behind the whole engine, configured by hand: no files, no front end."""

import random
from dataclasses import dataclass, field
from typing import Any

from octavo.config.config import Config
from octavo.engine.client import EngineClient
from octavo.protocol.columns import pack, unpack, unpack_floats
from octavo.protocol.messages import EngineOutput, EngineRequest, FinishReason
from octavo.protocol.sampling_params import SamplingParams
from tests.configs import make_config

VOCABULARY = 160
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}
GEMMA: dict[str, Any] = {
    **LLAMA,
    "model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"],
    "num_hidden_layers": 4,
    "head_dim": 16,
    "sliding_window": 20,
    "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "query_pre_attn_scalar": 16,
    "rope_local_base_freq": 10000.0,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
}
del GEMMA["hidden_act"]


def tiny_config(**changes: Any) -> Config:
    """changes: fields of any of the parts of Config, by name."""
    hf_config = changes.get("hf_config", LLAMA)
    tiny: dict[str, Any] = {
        "name": "tiny",
        "model_type": hf_config["model_type"],
        "hf_config": hf_config,
        "vocab_size": VOCABULARY,
        "bos_token_id": 1,
        "memory_utilization": 0.3,
        "memory_bytes": 16 * 1024**2,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 256,
        "reserve_full_prompt": False,
    }
    return make_config(**{**tiny, **changes})


@dataclass
class Answer:
    """All that a request got."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[bytes] = field(default_factory=list)  # of each position: ids and values, bit for bit
    prompt_logprobs: dict[int, bytes] = field(default_factory=dict)
    finish: FinishReason | None = None
    error: str | None = None
    cached: int = 0

    def take(self, output: EngineOutput) -> None:
        self.tokens += output.token_ids
        self.cached = output.num_cached_tokens or self.cached
        self.finish = output.finish_reason or self.finish
        self.error = output.error or self.error
        if output.finish_reason is not None:
            self.finish = output.finish_reason
        if output.logprobs is not None:
            self.logprobs += positions(output.logprobs)
        for position, columns in output.prompt_logprobs:
            for offset, entry in enumerate(positions(columns)):
                self.prompt_logprobs[position + offset] = entry


def positions(columns: Any) -> list[bytes]:
    """Each position's ids, values and rank as bytes."""
    ids, values, found, start = unpack(columns.ids), unpack_floats(columns.values), [], 0
    for count, rank in zip(unpack(columns.counts).tolist(), unpack(columns.ranks).tolist()):
        end = start + count
        found.append(ids[start:end].tobytes() + values[start:end].tobytes() + pack([rank]))
        start = end
    assert start == len(ids) == len(values)
    return found


def prompt(seed: int, length: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(3, VOCABULARY) for _ in range(length)]


def request(name: str, tokens: list[int], *, seed: int = 0, priority: int = 0, **params: Any) -> EngineRequest:
    sampling = SamplingParams(**{"temperature": 0.0, "max_tokens": 8, "ignore_eos": True, **params})
    return EngineRequest(name, pack(tokens), sampling, arrival_s=0.0, seed=seed, priority=priority)


def generate(client: EngineClient, requests: list[EngineRequest], aborted: list[str] | None = None) -> dict[str, Answer]:
    """Every request to its end. aborted: names that are aborted as soon as all are added."""
    answers = {each.request_id: Answer() for each in requests}
    for each in requests:
        client.add(each)
    if aborted:
        client.abort(aborted)
    while any(answer.finish is None for answer in answers.values()):
        outputs = client.outputs(60)
        assert outputs is not None, "nothing came for a minute"
        for output in outputs.outputs:
            answers[output.request_id].take(output)
    return answers
