"""Write GGUF: a plain checkpoint goes into one .gguf file, tensor by tensor, through the names and views that read such files.

What is two-dimensional and no router is coded; all else stays in float32. A tensor whose rows are not whole blocks of the scheme's format
is in the next one that they are whole blocks of. The head, also where it is the embedding, is in Q8_0 where the scheme has fewer bits: its
errors go straight into logits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import gguf as container
import numpy as np
import torch

from octavo.checkpoint import gguf, gguf_names
from octavo.checkpoint.gguf import GgufHeader, GgufTensor
from octavo.checkpoint.index import Index
from octavo.checkpoint.names import Expert, Located, Names, View
from octavo.config.config import Config
from octavo.errors import ConfigError
from octavo.layers.stored import Stored
from octavo.loading import gguf_keys
from octavo.loading.fill import Fill, Progress
from octavo.loading.plain import Done, Plain
from octavo.loading.threads import Threads
from octavo.loading.views import CHUNK_ELEMENTS, put
from octavo.ops import gguf_blocks
from octavo.quant import blocks
from octavo.text import gguf_vocabulary

# scheme -> (formats, the first whose blocks the rows are whole ones of; the number of llama.cpp's general.file_type)
SCHEMES: dict[str, tuple[tuple[str, ...], int]] = {
    "bf16": (("BF16",), 32),
    "q4_0": (("Q4_0", "F16"), 2),
    "q8_0": (("Q8_0", "F16"), 7),
    "q4_k": (("Q4_K", "Q5_0", "F16"), 14),
}
CALIBRATED = ("q4_0", "q4_k")  # schemes in which some columns can be held to more than others
_HEAD = ("Q8_0", "F16")
_WHOLE = ("bf16",)  # schemes that the head follows too
_QUANTIZATION_VERSION = 2  # of ggml's blocks, since May 2023
# of a GGUF source: what the new file says itself
_OWN = ("general.architecture", "general.file_type", "general.quantization_version", "general.alignment")


@dataclass(slots=True)
class _Tensor:
    """One tensor of the file. shape: outermost axis first. parameters: what it holds, and where in it, through which views."""

    name: str
    shape: tuple[int, ...]
    number_format: str
    parameters: list[tuple[Stored, tuple[View, ...]]] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        elements, size_bytes = gguf_blocks.SIZES[self.number_format]
        return prod(self.shape) // elements * size_bytes


def write(
    config: Config, plain: Plain, file: Path, scheme: str, importance: Mapping[str, torch.Tensor], progress: Progress | None = None
) -> Done:
    """Raises ConfigError for a model that GGUF cannot say, CheckpointError for files that are wrong; what is written by then is no model.
    importance: of the columns of weights, by their paths.
    """
    formats, file_type = SCHEMES[scheme]
    keys = gguf_keys.keys(config.model.model_type, plain.model.config)
    tensors = _plan(plain, keys, formats, formats if scheme in _WHOLE else _HEAD)
    factors = gguf_keys.rope_factors(plain.model.config)
    if factors is not None:
        tensors.insert(0, _Tensor(gguf_keys.ROPE_FACTORS, tuple(factors.shape), "F32"))
    with NamedTemporaryFile() as beside:
        if factors is not None:
            beside.write(factors.numpy().tobytes())
            beside.flush()
        gguf_keys.check(_header(Path(beside.name), keys, tensors), plain.model.config)
    described = {"general.file_type": file_type, "general.quantization_version": _QUANTIZATION_VERSION} | _description(config, plain.index)
    writer = container.GGUFWriter(None, keys.pop("general.architecture"))
    for key, value in (described | keys).items():
        writer.add_key_value(key, *(value if isinstance(value, _Kept) else _typed(key, value)))
    for tensor in tensors:
        number_format = container.GGMLQuantizationType[tensor.number_format]
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), tensor.size_bytes, number_format)
    try:
        writer.write_header_to_file(file)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        with Fill(plain.index, plain.model.names, progress) as fill:
            fill.check(plain.stored)
            _refuse_scales(plain, fill)
            for tensor in tensors:
                encoded = _encoded(tensor, fill, importance) if tensor.parameters else factors
                assert encoded is not None
                writer.write_tensor_data(encoded.numpy())
            fill.finish()
    finally:
        writer.close()
    gguf_keys.check(gguf.read_header(file), plain.model.config)
    coded = sum(len(tensor.parameters) for tensor in tensors if gguf_blocks.SIZES[tensor.number_format][0] > 1)
    total = sum(tensor.size_bytes for tensor in tensors)
    return Done(plain.index.total_bytes, total, coded, sum(len(tensor.parameters) for tensor in tensors) - coded)


def _plan(plain: Plain, keys: dict[str, Any], formats: Sequence[str], head_formats: Sequence[str]) -> list[_Tensor]:
    """The file's tensors, in the order of the model's parameters."""
    tables = (Names.of(plain.model.names), gguf_names.table(GgufHeader(plain.index.path, 3, 32, keys, {})))
    tensors: dict[str, _Tensor] = {}
    for one in plain.stored:
        if one.default is not None:
            continue
        located = _located(tables, one.path)
        expert = next((view for view in located.views if isinstance(view, Expert)), None)
        if expert is not None and located.disk in tensors:
            tensors[located.disk].parameters.append((one, located.views))
            continue
        number_format = _number_format(one, plain, formats, head_formats)
        shape = one.shape if expert is None else (_num_experts(plain), *one.shape)
        tensors[located.disk] = _Tensor(located.disk, shape, number_format, [(one, located.views)])
    return list(tensors.values())


def _num_experts(plain: Plain) -> int:
    config: Any = plain.model.config
    return int(config.num_local_experts)


def _located(tables: tuple[Names, Names], path: str) -> Located:
    """Where GGUF has a parameter: through the model's own names, of which the first that GGUF's table knows."""
    for way in tables[0].candidates(path):
        if len(way) == 1 and not way[0].views:
            first, *others = tables[1].candidates(way[0].disk)
            if others and len(first) == 1:
                return first[0]
    raise ConfigError(f"GGUF has no name for {path}", "write compressed-tensors instead: --scheme int4 or int8")


def _number_format(one: Stored, plain: Plain, formats: Sequence[str], head_formats: Sequence[str]) -> str:
    role = plain.role(one.path)
    if len(one.shape) < 2 or role in (None, "router"):
        return "F32"
    is_head = role == "head" or (role == "embedding" and plain.model.config.tie_word_embeddings)
    return next(name for name in (head_formats if is_head else formats) if one.shape[-1] % gguf_blocks.SIZES[name][0] == 0)


def _refuse_scales(plain: Plain, fill: Fill) -> None:
    """What need not be there and is: scales of the cache. They are read as the rest, and have no name in GGUF."""
    optional = [one for one in plain.stored if one.default is not None]
    found = [one.path for one in optional if fill.is_stored(one.path)]
    if found:
        raise ConfigError(f"GGUF has no name for {found[0]}", "write compressed-tensors instead: --scheme int4 or int8")
    fill.fill([Stored(one.path, one.shape, torch.empty(one.shape), default=one.default) for one in optional])


def _encoded(tensor: _Tensor, fill: Fill, importance: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The tensor's bytes."""
    whole = torch.empty(tensor.shape)
    for one, views in tensor.parameters:
        parameter = torch.empty(one.shape)
        fill.fill([Stored(one.path, one.shape, parameter)])
        put(whole, views, parameter)
    if tensor.number_format == "F32":
        return whole
    # an expert each, or the one weight: the columns are its own, whatever the order of its rows
    pieces = whole.view(len(tensor.parameters), -1, tensor.shape[-1])
    elements, size_bytes = gguf_blocks.SIZES[tensor.number_format]
    out = torch.empty(*pieces.shape[:2], tensor.shape[-1] // elements * size_bytes, dtype=torch.uint8)
    step = max(1, CHUNK_ELEMENTS // tensor.shape[-1])
    with Threads() as threads:
        for (one, _), numbers, encoded in zip(tensor.parameters, pieces, out, strict=True):
            columns = importance.get(one.path.removesuffix(".weight"))
            runs = zip(numbers.split(step), encoded.split(step), strict=True)
            threads.run(partial(_encode, run, place, tensor.number_format, columns) for run, place in runs)
    return out


def _encode(numbers: torch.Tensor, out: torch.Tensor, number_format: str, importance: torch.Tensor | None) -> None:
    out.copy_(blocks.encode(numbers, number_format, importance))


def _header(file: Path, keys: dict[str, Any], tensors: Sequence[_Tensor]) -> GgufHeader:
    """What the file's header will be, for reading it before it is there. Rope factors are read from the beginning of `file`."""
    entries = {tensor.name: GgufTensor(tensor.name, tensor.number_format, tensor.shape, 0, tensor.size_bytes) for tensor in tensors}
    metadata = {key: np.array(value) if isinstance(value, list) else value for key, value in keys.items()}
    return GgufHeader(file, 3, 32, metadata, entries)


class _Kept(NamedTuple):
    """A value of a GGUF source with its type there, and that of its elements."""

    value: Any
    kind: container.GGUFValueType
    of: container.GGUFValueType | None


def _description(config: Config, index: Index) -> dict[str, Any]:
    """What the file says beside the configuration: its name, its tokenizer, what ends generation and how it is sampled."""
    if index.kind == "gguf":
        return _kept(index.path)
    model = config.model
    found: dict[str, Any] = {"general.type": "model", "general.name": Path(model.path).resolve().name}
    found |= gguf_vocabulary.metadata(Path(model.tokenizer_path), model.vocab_size)
    for word, key in (("bos", "bos"), ("pad", "padding")):
        token = model.hf_config.get(f"{word}_token_id")
        if isinstance(token, int) and 0 <= token < model.vocab_size:
            found.setdefault(f"tokenizer.ggml.{key}_token_id", token)
    own = found.get("tokenizer.ggml.eos_token_id")
    ends = dict.fromkeys([*([] if own is None else [own]), *model.eos_token_ids])
    found |= {f"tokenizer.ggml.{key}_token_id": token for key, token in zip(("eos", "eot", "eom"), ends, strict=False)}
    words = {"temperature": "temp", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "repetition_penalty": "penalty_repeat"}
    return found | {f"general.sampling.{words[word]}": value for word, value in model.default_sampling.items() if word in words}


def _kept(file: Path) -> dict[str, _Kept]:
    """A GGUF source's own words, in its own types; those of its architecture and of its parts are said anew."""
    found = {}
    reader = container.GGUFReader(file)
    architecture = bytes(reader.fields["general.architecture"].parts[-1]).decode()
    for name, one in reader.fields.items():
        is_own = name in _OWN or name.startswith(("GGUF.", "split.", f"{architecture}."))
        if is_own or len(one.types) > 2:
            continue
        kind, of = one.types[0], one.types[-1]
        # strings as bytes: a token need not be valid UTF-8
        values = [bytes(one.parts[at]) if of == container.GGUFValueType.STRING else one.parts[at].tolist()[0] for at in one.data]
        is_array = kind == container.GGUFValueType.ARRAY
        if values or not is_array:
            found[name] = _Kept(values if is_array else values[0], kind, of if is_array else None)
    return found


def _typed(key: str, value: Any) -> tuple[Any, container.GGUFValueType, container.GGUFValueType | None]:
    """With the type that llama.cpp reads the key in."""
    kinds = container.GGUFValueType
    if isinstance(value, list):
        of = {bool: kinds.BOOL, str: kinds.STRING, float: kinds.FLOAT32, int: kinds.INT32}[type(value[0])]
        return value, kinds.ARRAY, of
    if key == "general.sampling.top_k":
        return int(value), kinds.INT32, None
    if isinstance(value, bool):
        return value, kinds.BOOL, None
    if isinstance(value, str):
        return value, kinds.STRING, None
    return (int(value), kinds.UINT32, None) if isinstance(value, int) else (float(value), kinds.FLOAT32, None)
