"""Real GGUF files that mix number formats inside a fused layer: tensors stay in their blocks, and one call multiplies with all parts."""

from pathlib import Path

import pytest
import torch

from octavo import environment
from octavo.checkpoint import gguf
from octavo.checkpoint import index as checkpoint_index
from octavo.config.config import Config
from octavo.config.options import Options
from octavo.config.resolve import resolve
from octavo.layers.choices import Choices
from octavo.layers.linear import FusedLinear
from octavo.layers.stored import stored_parameters
from octavo.layers.weight import Weight
from octavo.loading.build import _scheme, bare, build_meta, pieces
from octavo.loading.fill import Fill
from octavo.loading.finish import finish
from octavo.loading.quantize import quantize
from octavo.ops.weights import Blocks
from tests.tolerances import ATOL, RTOL

pytestmark = [pytest.mark.model]
# model -> the formats of q, k and v in its first layer
FILES = {"Qwen2.5-Coder-0.5B-Instruct": ("Q5_0", "Q5_0", "Q8_0"), "gemma-3-270m": ("Q5_0", "Q5_0", "Q8_0")}
PARTS = ("attn_q", "attn_k", "attn_v")


@pytest.fixture(params=list(FILES))
def file(request: pytest.FixtureRequest) -> Path:
    models = environment.test_models()
    found = None if models is None else models / request.param / f"{request.param}.gguf"
    if found is None or not found.exists():
        pytest.skip(f"OCTAVO_TEST_MODELS has no {request.param}")
    return found


def config_of(file: Path, dtype: str = "bfloat16") -> Config:
    return resolve(Options(model=str(file), dtype=dtype, max_model_len=512, skip_tokenizer_init=True))


def test_every_matrix_stays_in_its_blocks(file: Path) -> None:
    """Of each number format as many bytes as the file has, and nothing beside them but vectors and tables of positions."""
    tensors = gguf.read_header(file).tensors.values()
    on_disk: dict[str, int] = {}
    for tensor in tensors:
        on_disk[tensor.type] = on_disk.get(tensor.type, 0) + tensor.size_bytes
    vectors = on_disk.pop("F32")
    model = build_meta(config_of(file)).model
    in_memory: dict[str, int] = {}
    for module in model.modules():
        if isinstance(module, Weight):
            assert isinstance(module.layout, Blocks), module.pieces
            kept = sum(tensor.numel() * tensor.dtype.itemsize for tensor in module.tensors)
            in_memory[module.layout.number_format] = in_memory.get(module.layout.number_format, 0) + kept
    assert in_memory == on_disk
    assert len(on_disk) > 3
    assert build_meta(config_of(file)).weights_bytes - sum(on_disk.values()) < vectors + 2 * 512 * 256 * 4


@pytest.mark.slow
def test_parts_of_several_formats_are_one_call(file: Path) -> None:
    """q, k and v of the first layer, as the gguf package reads them."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    config = config_of(file, "float32")
    model = bare(config)
    scheme = _scheme(config, model)
    path, layer = next((path, piece) for path, piece in pieces(model) if path.endswith("layers.0"))
    with Fill(checkpoint_index.read(config.model.path), model.names) as fill:
        quantize(layer, scheme, torch.device("cpu"), path)
        fill.fill(stored_parameters(layer, path))
    finish(layer, Choices(torch.float32))
    fused = next(module for name, module in layer.named_modules() if isinstance(module, FusedLinear) and len(module.parts) == 3)
    theirs = {tensor.name: tensor for tensor in GGUFReader(file).tensors}
    mixed = [theirs[f"blk.0.{part}.weight"] for part in PARTS]
    assert tuple(tensor.tensor_type.name for tensor in mixed) == FILES[file.stem]
    assert len(fused.products.each) == 2
    numbers = torch.cat([torch.from_numpy(dequantize(tensor.data, tensor.tensor_type)) for tensor in mixed])
    biases = [theirs.get(f"blk.0.{part}.bias") for part in PARTS]
    bias = torch.cat([torch.from_numpy(one.data.copy()) for one in biases if one is not None] or [torch.zeros(len(numbers))])
    x = torch.randn(5, fused.in_size, generator=torch.Generator().manual_seed(1))
    out = torch.empty(5, fused.out_size)
    fused(out, x)
    torch.testing.assert_close(out, x @ numbers.t() + bias, atol=ATOL["float32"] * float(numbers.abs().max()) * 10, rtol=RTOL["float32"])
