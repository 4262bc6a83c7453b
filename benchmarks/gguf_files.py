"""GGUF files of one model in BF16, Q8_0 and Q4_K: a GGUF file's numbers rounded to bfloat16, and those quantized by llama.cpp.

    python -m benchmarks.gguf_files SOURCE.gguf FOLDER [--tied]

Needs the packages gguf and llama-cpp-python. The numbers are those of a folder of safetensors that was made of SOURCE.gguf in bfloat16;
--tied is for a folder whose embedding is its head, where the file holds both.
"""

import argparse
from pathlib import Path
from typing import Any

import gguf
import torch

from octavo.bench import llama_cpp

_WRITTEN = {"general.architecture", "general.file_type", "general.quantization_version"}  # by the writer itself


def plain(source: Path, destination: Path, tied: bool) -> None:
    """The file in BF16; vectors stay in float32, as llama.cpp wants them."""
    reader: Any = gguf.GGUFReader(source)
    writer: Any = gguf.GGUFWriter(destination, reader.fields["general.architecture"].contents())
    writer.add_file_type(llama_cpp.FILE_TYPES["BF16"])
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key not in _WRITTEN:
            kinds = field.types
            writer.add_key_value(key, field.contents(), kinds[0], sub_type=kinds[-1] if kinds[0] == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        if tied and tensor.name == "token_embd.weight":
            continue
        name = "token_embd.weight" if tied and tensor.name == "output.weight" else tensor.name
        numbers = torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy()).to(torch.bfloat16)
        shape = [int(size) for size in reversed(tensor.shape)]
        if len(shape) == 1:
            writer.add_tensor(name, numbers.float().numpy().reshape(shape))
        else:
            data = numbers.reshape(shape).view(torch.uint8).numpy()
            writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tied", action="store_true")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    files = {kind: arguments.folder / f"{arguments.source.stem}-{kind}.gguf" for kind in ("BF16", "Q8_0", "Q4_K")}
    plain(arguments.source, files["BF16"], arguments.tied)
    for kind in ("Q8_0", "Q4_K"):
        llama_cpp.quantize(files["BF16"], files[kind], kind)
    for kind, file in files.items():
        print(f"{kind:<5} {file.stat().st_size / 1e6:8.1f} MB  {file}")


if __name__ == "__main__":
    main()
