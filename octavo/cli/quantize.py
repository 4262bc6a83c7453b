"""octavo quantize SRC DST: a plain checkpoint, written again in fewer bits."""

from pathlib import Path
from typing import Any

from octavo import environment, logging, plugins
from octavo.cli.parser import Parser
from octavo.config.options import Options

FOLDERS = ("int8", "int8_token", "int8_static", "int8_per_channel_weight_only", "fp8_per_tensor", "int4")
FILES = ("bf16", "q4_0", "q8_0", "q4_k")
DTYPES = ("auto", "bfloat16", "float16", "float32")


def parser() -> Parser:
    """The command line of `octavo quantize`."""
    result = Parser(
        prog="octavo quantize",
        description="Quantize a plain checkpoint. Schemes named by integers and floats write a folder in the format of compressed-tensors, "
        "which octavo reads, and transformers with the compressed-tensors package: linear layers are coded, embedding, head and routers "
        "stay as they are. bf16, q8_0, q4_0 and q4_k write one GGUF file with its tokenizer, which octavo and llama.cpp read.",
    )
    result.add_argument("source", metavar="SRC", help="a folder of safetensors files, a plain GGUF file, a hub id or a catalog name")
    result.add_argument("destination", metavar="DST", help="the folder, or the .gguf file, to write, which must not be there")
    result.add_argument(
        "--scheme",
        required=True,
        help=f"{', '.join(FOLDERS)}; int8, int8_token and int8_static code activations too (W8A8); or GGUF's {', '.join(FILES)}",
    )
    result.add_argument("--group-size", type=int, metavar="SIZE", help="columns that share a scale in int4 (default: 32)")
    result.add_argument(
        "--calibration",
        metavar="FILE",
        help="a text that the model reads first: int8_static takes the scales of activations from it, q4_0 and q4_k what matters most",
    )
    result.add_argument(
        "--dtype",
        default="auto",
        choices=DTYPES,
        help="what numbers are rounded to first (default: as the model runs; for GGUF not at all)",
    )
    result.add_argument("--hf-token", metavar="TOKEN", help="for a hub id")
    return result


def run(argv: list[str]) -> int:
    typed: dict[str, Any] = vars(parser().parse_args(argv))
    logging.configure(environment.logging_level(), "quantize")
    from octavo.config.resolve import resolve

    destination, scheme, text = typed["destination"], typed["scheme"], typed["calibration"]
    writer = plugins.load("loading", "write")
    # before a model is fetched
    name = writer.check(scheme, Path(destination).expanduser(), typed["group_size"], text is not None)
    dtype = "float32" if typed["dtype"] == "auto" and name in FILES else typed["dtype"]
    config = resolve(Options(model=typed["source"], dtype=dtype, hf_token=typed["hf_token"]))

    def calibrate() -> Any:
        runs = resolve(Options(model=config.model.path, dtype=typed["dtype"]))
        return plugins.load("worker", "calibrate").calibrate(runs, text)

    done = writer.write(config, destination, scheme, typed["group_size"], None if text is None else calibrate)
    saved = f"{done.read_bytes / 1e6:.1f} MB became {done.written_bytes / 1e6:.1f} MB"
    print(f"{destination}: {done.num_coded} weights in {scheme}, {done.num_plain} tensors as they were; {saved}")
    return 0
