"""Formats: one model as each engine wants it, made once and kept beside the others.

The source is a folder of safetensors in bfloat16, or anything that octavo serves, of which such a folder is made first.
"""

import json
import os
import struct
import subprocess
import sys
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from benchmarks.children import ROOT, EngineFailed
from benchmarks.peers import Peers

MADE = ROOT / "results" / "models"
GGUF = {"Q4_0": "q4_0", "Q8_0": "q8_0", "BF16": "bf16"}  # format -> octavo quantize --scheme
_TO_FOLDER = """
import sys, torch
from pathlib import Path
from transformers import AutoModelForCausalLM, AutoTokenizer
source, target = Path(sys.argv[1]), sys.argv[2]
model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32).to(torch.bfloat16)
model.hf_quantizer = None
model.config.dtype = torch.bfloat16
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
model.save_pretrained(target)
AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(target)
"""


@dataclass(frozen=True)
class Sizes:
    """Of one model. linear: parameters of the layers' products. head: those of the product with the vocabulary."""

    hidden: int  # of all attention heads together
    layers: int
    vocabulary: int
    linear: int
    head: int
    is_tied: bool
    state_bytes: int  # of the cache for one token, in bfloat16

    def attention_flop(self, prompt: int) -> int:
        """Of the products of a causal attention over a prompt."""
        return 2 * prompt * prompt * self.hidden * self.layers

    def prefill_flop(self, prompt: int) -> int:
        return 2 * self.linear * prompt + self.attention_flop(prompt) + 2 * self.head

    def read_bytes(self, folder_bytes: int) -> int:
        """Of the weights, those that a step of decoding reads: an embedding of its own is looked up."""
        return folder_bytes if self.is_tied else folder_bytes * (self.linear + self.head) // (self.linear + 2 * self.head)


class Models:
    """The files of one model, in a folder of their own."""

    def __init__(self, model: str, folder: Path, peers: Peers) -> None:
        self._peers = peers
        self.source = folder_of(model, folder)
        self.name = self.source.name
        self._folder = folder / self.name
        self.sizes = sizes(json.loads((self.source / "config.json").read_text()))

    def path(self, engine: str, number_format: str) -> Path:
        """What the engine is given. Raises EngineFailed where it cannot be made."""
        if engine == "roofs":
            return self.source
        if number_format in GGUF:
            return self._gguf(number_format)
        if engine in ("octavo", "vllm", "transformers"):
            return self.source
        return self._converted(engine, number_format)

    def weights_bytes(self, path: Path) -> int:
        """Of the tensors of a folder of safetensors or of a GGUF file."""
        if path.suffix == ".gguf":
            return path.stat().st_size
        return sum(_tensor_bytes(file) for file in path.glob("*.safetensors"))

    def _gguf(self, number_format: str) -> Path:
        target = self._folder / f"{self.name}-{number_format}.gguf"
        if not target.exists():
            command = [sys.executable, "-m", "octavo.cli.main", "quantize", str(self.source), str(target), "--scheme", GGUF[number_format]]
            self._make(command, target)
        return target

    def _converted(self, engine: str, number_format: str) -> Path:
        target = self._folder / f"{engine}-{number_format}"
        if (target / ".ready").exists():
            return target
        python = self._peers.python(engine)
        source, out = str(self.source), str(target)
        if engine == "openvino":
            tool = str(Path(python).parent / "optimum-cli")
            kind = {"bf16": "fp16", "int8": "int8"}[number_format]  # OpenVINO computes in bfloat16 where the CPU does
            command = [tool, "export", "openvino", "--model", source, "--task", "text-generation-with-past", "--weight-format", kind, out]
        elif engine == "ctranslate2":
            tool = str(Path(python).parent / "ct2-transformers-converter")
            command = [tool, "--model", source, "--output_dir", out, "--quantization", number_format, "--force"]
        else:
            command = [python, "-m", "onnxruntime_genai.models.builder", "-m", source, "-o", out, "-p", number_format, "-e", "cpu"]
        self._make(command, target)
        (target / ".ready").touch()
        return target

    def _make(self, command: list[str], target: Path) -> None:
        print(f"making {target}", file=sys.stderr, flush=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        _run(command)


def sizes(config: dict[str, Any]) -> Sizes:
    """Of a config.json of the llama family."""
    hidden, layers, heads = config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
    kv_heads, size = config.get("num_key_value_heads") or heads, config.get("head_dim") or hidden // heads
    attention = hidden * size * (2 * heads + 2 * kv_heads)
    linear = layers * (attention + 3 * hidden * config["intermediate_size"])
    head = hidden * config["vocab_size"]
    tied = bool(config.get("tie_word_embeddings", False))
    return Sizes(heads * size, layers, config["vocab_size"], linear, head, tied, 2 * 2 * layers * kv_heads * size)


def folder_of(model: str, folder: Path = MADE) -> Path:
    """The folder of safetensors itself; of a GGUF file one that is made, in bfloat16."""
    from octavo.checkpoint import source

    path = Path(source.resolve(model).path).absolute()
    if path.is_dir():
        return path
    target = folder / f"{path.stem}-folder" / path.stem
    if not (target / "config.json").exists():
        print(f"making a folder of bfloat16 of {path}", file=sys.stderr, flush=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-c", _TO_FOLDER, str(path), str(target)])
    return target


def _run(command: list[str]) -> None:
    variables = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    said = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if said.returncode:
        raise EngineFailed(f"its model cannot be made: {' '.join(command[:4])} ended with {said.returncode}: {said.stdout[-600:]}")


def _tensor_bytes(file: Path) -> int:
    with file.open("rb") as opened:
        (length,) = struct.unpack("<Q", opened.read(8))
        tensors = json.loads(opened.read(length))
    width = {"BF16": 2, "F16": 2, "F32": 4, "I8": 1, "U8": 1}
    return sum(prod(one["shape"]) * width.get(one["dtype"], 4) for name, one in tensors.items() if name != "__metadata__")
