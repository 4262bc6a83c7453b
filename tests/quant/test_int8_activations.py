"""W8A8: int8 weights times int8 activations, of plain checkpoints and of compressed-tensors', by token and by stored scales."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from octavo.errors import CheckpointError, ConfigError
from octavo.loading.build import build_meta
from octavo.loading.finish import resident_bytes
from octavo.ops.linear import INT8, Facts, Reference
from octavo.ops.op import choose
from tests.models.driver import Driver
from tests.quant.checkpoints import TOKENS, Written, check_cuts, configured, weights_of, write
from tests.tolerances import ATOL, RTOL

INPUT_SCALE = 0.03


def encode(path: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    scale = weight.abs().amax(1, keepdim=True) / 127
    codes = (weight / scale).round().to(torch.int8)
    return {"weight": codes, "weight_scale": scale}, codes.float() * scale


def encode_static(path: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The parts of a fused layer have scales of their own."""
    tensors, numbers = encode(path, weight)
    return tensors | {"input_scale": torch.tensor([INPUT_SCALE + 0.001 * (len(path) % 7)])}, numbers


def encode_tensor(path: str, weight: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    scale = weight.abs().amax() / 127
    codes = (weight / scale).round().to(torch.int8)
    return {"weight": codes, "weight_scale": scale.reshape(1)}, codes.float() * scale


def settings(weights_by: str = "channel", **activations: Any) -> dict[str, Any]:
    weights = {"num_bits": 8, "type": "int", "strategy": weights_by, "symmetric": True, "dynamic": False}
    inputs = {"num_bits": 8, "type": "int", "strategy": "token", "symmetric": True, "dynamic": True} | activations
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"], "config_groups": {"group_0": group}}


DYNAMIC = settings()
GROUPED = settings(strategy="group", group_size=64)
STATIC = settings() | {
    "config_groups": {
        "group_0": settings(dynamic=False)["config_groups"]["group_0"]
        | {"input_activations": {"num_bits": 8, "type": "int", "strategy": "tensor", "symmetric": True, "dynamic": False}}
    }
}


def transformers_logits(written: Written, group: int) -> torch.Tensor:
    """Of transformers' model of the same numbers, with the inputs of its linear layers rounded to steps by a hook, in plain torch."""
    model = transformers.AutoModelForCausalLM.from_pretrained(written.plain, dtype=torch.float32).eval()
    stored = load_file(written.folder / "model.safetensors")

    def rounded(path: str) -> Any:
        static = stored.get(f"{path}.input_scale")

        def hook(module: torch.nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
            x = inputs[0].unflatten(-1, (-1, group)) if group else inputs[0]
            scale = x.abs().amax(-1, keepdim=True) / 127 if static is None else static
            return (((x / scale).round().clamp(-128, 127) * scale).view(inputs[0].shape),)

        return hook

    for path, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and path != "lm_head":
            module.register_forward_pre_hook(rounded(path))
    with torch.no_grad():
        logits: torch.Tensor = model(torch.tensor([TOKENS])).logits[0]
    return logits


def check(written: Written, scheme: str, group: int) -> None:
    """Numbers bit for bit; logits those of transformers with rounded inputs; alone = in a batch; planned = loaded bytes."""
    slow = Driver(configured(written.folder, scheme, mode="reference"))
    coded = weights_of(slow.model)
    assert len(coded) == 14
    for path, numbers in coded.items():
        assert torch.equal(numbers, written.numbers[path].float()), path
    exact = transformers_logits(written, group)
    for dtype in ("float32", "bfloat16"):
        ours = Driver(configured(written.folder, scheme, dtype))
        assert "cpu.linear_int8" in ours.built.choices["linear"]
        logits = ours.step([(ours.sequence(), TOKENS)])[0]
        if dtype == "float32":
            # an input that lies between two codes may round either way: such a step is no more than bfloat16's
            torch.testing.assert_close(logits, exact, atol=ATOL["bfloat16"], rtol=RTOL["bfloat16"])
            assert (logits - exact).abs().median() < ATOL["float32"]
        together = ours.step([(ours.sequence(), TOKENS[:3]), (ours.sequence(), TOKENS), (ours.sequence(), TOKENS[4:])])[1]
        assert torch.equal(together, logits)
        assert build_meta(ours.config).weights_bytes == ours.built.weights_bytes == resident_bytes(ours.model)


@pytest.mark.parametrize(
    ("encoder", "config"),
    [(encode, DYNAMIC), (encode, GROUPED), (encode_static, STATIC), (encode_tensor, settings("tensor"))],
    ids=["token", "group", "static", "tensor"],
)
def test_checkpoints_of_compressed_tensors(tmp_path: Path, encoder: Any, config: dict[str, Any]) -> None:
    written = write(tmp_path, encoder, config)
    check(written, "compressed_tensors", 64 if config is GROUPED else 0)
    check_cuts(written, "compressed_tensors")


@pytest.mark.parametrize(("scheme", "config"), [("int8", GROUPED), ("int8_token", DYNAMIC)])
def test_a_plain_checkpoint_gives_what_the_written_one_does(tmp_path: Path, scheme: str, config: dict[str, Any]) -> None:
    written = write(tmp_path, encode, config)
    ours, stored = Driver(configured(tmp_path / "source", scheme)), Driver(configured(written.folder, "compressed_tensors"))
    logits = ours.step([(ours.sequence(), TOKENS)])[0]
    assert torch.equal(logits, stored.step([(stored.sequence(), TOKENS)])[0])


def test_experts(tmp_path: Path) -> None:
    written = write(tmp_path, encode, DYNAMIC, "mixtral")
    ours = Driver(configured(written.folder, "compressed_tensors"))
    slow = Driver(configured(written.folder, "compressed_tensors", mode="reference"))
    logits = ours.step([(ours.sequence(), TOKENS)])[0]
    torch.testing.assert_close(logits, slow.step([(slow.sequence(), TOKENS)])[0], atol=ATOL["bfloat16"], rtol=RTOL["bfloat16"])
    together = ours.step([(ours.sequence(), TOKENS[:3]), (ours.sequence(), TOKENS), (ours.sequence(), TOKENS[4:])])[1]
    assert torch.equal(together, logits)


def test_static_products_are_those_of_compressed_tensors() -> None:
    """x, its scale, codes and the product that the package's fake quantization gives; made by fixtures/make_int8_activations.py."""
    made = load_file(Path(__file__).parent / "fixtures" / "activations" / "int8_static.safetensors")
    rows, columns = made["codes"].shape
    facts = Facts(in_features=columns, out_features=rows, dtype=torch.float32, layout=INT8, activation="int8_static")
    weight = (made["codes"].view(torch.uint8), made["weight_scale"], made["input_scale"])
    for implementation in (choose("linear", facts).implementation, Reference(facts)):
        out = torch.empty(len(made["x"]), rows)
        implementation(out, made["x"], implementation.pack(weight, facts))
        torch.testing.assert_close(out, made["product"], atol=ATOL["float32"], rtol=RTOL["float32"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"symmetric": False}, r"layers\.0.*asymmetric int8 activations"),
        ({"strategy": "tensor", "dynamic": True}, "dynamic int8 activations by tensor"),
        ({"strategy": "channel", "dynamic": False}, "static int8 activations by channel"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build_meta(configured(write(tmp_path, encode, settings(**changes)).folder, "compressed_tensors"))


@pytest.mark.parametrize("scale", [0.0, -0.5, float("nan")])
def test_an_input_scale_that_cannot_be_names_its_tensor(tmp_path: Path, scale: float) -> None:
    def encode_wrong(path: str, weight: torch.Tensor) -> Any:
        tensors, numbers = encode_static(path, weight)
        if path.endswith("layers.1.mlp.down_proj"):
            tensors["input_scale"] = torch.tensor([scale])
        return tensors, numbers

    with pytest.raises(CheckpointError, match=r"layers\.1\.mlp\.down_proj"):
        Driver(configured(write(tmp_path, encode_wrong, STATIC).folder, "compressed_tensors"))


def test_a_missing_input_scale_is_listed(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"layers\.0\.self_attn\.q_proj\.input_scale is missing"):
        Driver(configured(write(tmp_path, encode, STATIC).folder, "compressed_tensors"))
