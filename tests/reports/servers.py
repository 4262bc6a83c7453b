"""Servers of the report tests: `octavo serve` over a model that says what it is told, or over a tiny llama of random numbers."""

import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from tests.script_model import TEMPLATE, byte_letters
from tests.server.real_server import RealServer
from tests.server.serving import parse_events

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SMALL = ("--dtype", "float32", "--max-num-seqs", "8", "--max-num-batched-tokens", "64", "--kv-cache-memory-bytes", "16M")

# --- what the random model's tokenizer knows beside the 256 bytes
END, STOP, START = 256, 257, 258  # two tokens that end a text, and the one that begins every prompt
TOKENS = {"London": 263, " London": 264, "the": 266, " the": 267}
RANDOM: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": START,
    "eos_token_id": END,
    "torch_dtype": "float32",
}


class Server(RealServer):
    """A real server, and one connection to it that is kept, since a test asks many things."""

    def __init__(self, model: Path, *words: str, **options: Any) -> None:
        super().__init__(model, *words, **options)
        self.http = httpx.Client(timeout=60)

    def close(self) -> None:
        self.http.close()
        super().close()

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.http.post(self.url + path, json=body)

    def raw(self, path: str, body: bytes) -> httpx.Response:
        """A body that Python's JSON writer would not write."""
        return self.http.post(self.url + path, content=body, headers={"content-type": "application/json"})

    def get(self, path: str) -> httpx.Response:
        return self.http.get(self.url + path)

    def ask(self, path: str, **body: Any) -> Any:
        """The answer of a request that must succeed."""
        response = self.post(path, **body)
        assert response.status_code == 200, response.text
        return response.json()

    def stream(self, path: str, **body: Any) -> list[Any]:
        """The events of a stream that must end as it should, without its [DONE]."""
        response = self.post(path, stream=True, **body)
        assert response.status_code == 200, response.text
        events = parse_events(response.text)
        assert events[-1] == "[DONE]"
        return events[:-1]

    def refusal(self, path: str, **body: Any) -> Any:
        """The error of a request that must be refused with 400."""
        response = self.post(path, **body)
        assert response.status_code == 400, response.text
        return response.json()["error"]

    def lives(self) -> bool:
        """A next request is answered, and nothing in the log is a fault."""
        assert self.post(COMPLETIONS, prompt="x", max_tokens=1).status_code == 200
        assert not self.faults
        return True


@contextlib.contextmanager
def serving(model: Path, *words: str, **options: Any) -> Iterator[Server]:
    """A server until the block ends. It must have no fault in its log then."""
    server = Server(model, *words, **options)
    try:
        yield server.wait_ready()
        assert not server.faults
    finally:
        server.close()


def says(key: str, text: str = "say") -> list[dict[str, str]]:
    """A conversation whose last character chooses the script."""
    return [{"role": "user", "content": f"{text} {key}"}]


def text_of(choice: Any) -> str:
    """The text of a choice, whichever of the endpoints made it and whether whole or a piece."""
    if "text" in choice:
        return str(choice["text"])
    return str((choice.get("message") or choice.get("delta") or {}).get("content") or "")


def joined(events: list[Any], index: int = 0) -> str:
    """The text of a streamed choice."""
    return "".join(text_of(choice) for event in events for choice in event["choices"] if choice["index"] == index)


def reasons(events: list[Any], index: int = 0) -> list[str]:
    """Every finish_reason of a streamed choice that is not null."""
    found = [choice["finish_reason"] for event in events for choice in event["choices"] if choice["index"] == index]
    return [reason for reason in found if reason is not None]


# --- a tiny llama of random numbers

# a conversation that is one of these words makes the trapped model's template do this
BURNS = {
    "time": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "memory": "{{ 'a' * 10**10 }}",
    "attributes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "files": "{% include '/etc/passwd' %}",
}
TRAPS = "".join(f"{{% if messages[0].content == 'burn {what}' %}}{burn}{{% endif %}}" for what, burn in BURNS.items())


def write_random(
    folder: Path,
    *,
    vocabulary: int = 512,
    padding: int = 0,
    context: int = 512,
    generation_config: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    seed: int = 0,
) -> Path:
    """A checkpoint with `vocabulary` tokens: bytes, END, STOP, START, TOKENS and made-up words.

    padding: rows of the head beyond the tokenizer, larger than all others. config: keys of config.json over RANDOM.
    """
    folder.mkdir(parents=True, exist_ok=True)
    facts = RANDOM | {"vocab_size": vocabulary + padding, "max_position_embeddings": context} | (config or {})
    (folder / "config.json").write_text(json.dumps(facts))
    if generation_config is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation_config))
    _write_random_weights(folder, facts, vocabulary, seed)
    _write_random_tokenizer(folder, vocabulary)
    return folder


def set_traps(folder: Path, sprung: Path) -> None:
    """What a hostile checkpoint has beside its weights: code to import, a pickle to open, a template that burns. Each makes `sprung`."""
    code = f"from pathlib import Path\nPath({str(sprung)!r}).touch()\nclass Model: ...\nclass Tokenizer: ...\n"
    for name in ("modeling_trap.py", "tokenization_trap.py"):
        (folder / name).write_text(code)
    # protocol 0 of pickle: os.system("touch ...")
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch " + str(sprung).encode() + b"'\ntR.")
    model = {"auto_map": {"AutoConfig": "modeling_trap.Model", "AutoModelForCausalLM": "modeling_trap.Model"}}
    tokenizer = {"auto_map": {"AutoTokenizer": ["tokenization_trap.Tokenizer", None]}, "chat_template": TRAPS + TEMPLATE}
    for name, entry in (("config.json", model), ("tokenizer_config.json", tokenizer)):
        facts = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(facts | entry))


def _write_random_weights(folder: Path, facts: dict[str, Any], vocabulary: int, seed: int) -> None:
    hidden, inner, rows = facts["hidden_size"], facts["intermediate_size"], facts["vocab_size"]
    head = hidden // facts["num_attention_heads"]
    keys = head * facts["num_key_value_heads"]
    rng = np.random.default_rng(seed)

    def matrix(out: int, into: int, scale: float = 1.0) -> np.ndarray:
        return (rng.standard_normal((out, into)) * scale / np.sqrt(into)).astype(np.float32)

    tensors = {
        "model.embed_tokens.weight": matrix(rows, hidden, np.sqrt(hidden)),
        "lm_head.weight": matrix(rows, hidden, 2.0),
        "model.norm.weight": np.ones(hidden, np.float32),
    }
    tensors["lm_head.weight"][vocabulary:] *= 10
    for layer in range(facts["num_hidden_layers"]):
        shapes = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (keys, hidden), "self_attn.v_proj": (keys, hidden)}
        shapes |= {"self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden)}
        shapes |= {"mlp.down_proj": (hidden, inner)}
        tensors |= {f"model.layers.{layer}.{name}.weight": matrix(*shape) for name, shape in shapes.items()}
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{name}.weight"] = np.ones(hidden, np.float32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _write_random_tokenizer(folder: Path, size: int) -> None:
    """Byte-level, puts START first, drops the character U+0001."""
    letters = byte_letters()
    known = {letter: index for index, letter in enumerate(letters)} | {"<|end|>": END, "<|stop|>": STOP, "<|start|>": START}
    merges: list[tuple[str, str]] = []
    for word in TOKENS:
        spelled = [letters[byte] for byte in word.encode()]
        if spelled[0] == letters[32]:  # a space before a word that is known
            merges.append((spelled[0], "".join(spelled[1:])))
        else:
            merges += [("".join(spelled[:end]), spelled[end]) for end in range(1, len(spelled))]
    for pair in merges:
        known.setdefault("".join(pair), len(known))
    assert all(known["".join(letters[byte] for byte in word.encode())] == index for word, index in TOKENS.items())
    for number in itertools.count():
        if len(known) >= size:
            break
        known.setdefault(f"{letters[32]}w{number}", len(known))
    assert len(known) == size
    tokenizer = Tokenizer(models.BPE(known, merges))
    tokenizer.normalizer = normalizers.Replace("\u0001", "")
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>", "<|stop|>", "<|start|>"])
    tokenizer.post_processor = processors.TemplateProcessing("<|start|> $A", special_tokens=[("<|start|>", START)])
    tokenizer.save(str(folder / "tokenizer.json"))
    facts = {"bos_token": "<|start|>", "eos_token": "<|end|>", "chat_template": TEMPLATE, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
