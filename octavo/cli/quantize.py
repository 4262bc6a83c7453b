"""octavo quantize SRC DST: a plain checkpoint, written again in fewer bits."""

from typing import Any

from octavo import environment, logging, plugins
from octavo.cli.parser import Parser
from octavo.config.options import Options

SCHEMES = ("int8", "int8_token", "int8_per_channel_weight_only", "fp8_per_tensor", "int4")
DTYPES = ("auto", "bfloat16", "float16", "float32")


def parser() -> Parser:
    """The command line of `octavo quantize`."""
    result = Parser(
        prog="octavo quantize",
        description="Quantize the linear layers of a plain checkpoint and write it as a compressed-tensors checkpoint, which octavo, "
        "transformers and vLLM read. Embedding, head and routers stay as they are.",
    )
    result.add_argument("source", metavar="SRC", help="a folder of safetensors files, a hub id or a catalog name")
    result.add_argument("destination", metavar="DST", help="the folder to write, which must not be there")
    result.add_argument("--scheme", required=True, help=f"{', '.join(SCHEMES)}; int8 and int8_token code activations too (W8A8)")
    result.add_argument("--group-size", type=int, metavar="SIZE", help="columns that share a scale in int4 (default: 32)")
    result.add_argument("--dtype", default="auto", choices=DTYPES, help="what numbers are rounded to first (default: as the model runs)")
    result.add_argument("--hf-token", metavar="TOKEN", help="for a hub id")
    return result


def run(argv: list[str]) -> int:
    typed: dict[str, Any] = vars(parser().parse_args(argv))
    logging.configure(environment.logging_level(), "quantize")
    from octavo.config.resolve import resolve

    config = resolve(Options(model=typed["source"], dtype=typed["dtype"], hf_token=typed["hf_token"]))
    done = plugins.load("loading", "write").write(config, typed["destination"], typed["scheme"], typed["group_size"])
    saved = f"{done.read_bytes / 1e6:.1f} MB became {done.written_bytes / 1e6:.1f} MB"
    print(f"{typed['destination']}: {done.num_coded} weights in {typed['scheme']}, {done.num_plain} tensors as they were; {saved}")
    return 0
