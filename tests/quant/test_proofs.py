"""The table of formats: every format has a row, and every row is as near to its oracle as the format allows."""

import pytest

from octavo.ops import gguf_blocks
from octavo.quant import online
from tests.quant import proofs
from tests.quant.test_oracles import LAST_BIT
from tests.tolerances import RTOL

PRODUCTS = list(proofs.activations())
EXACT = [*proofs.checkpoints(), *proofs.made_while_loading(), *proofs.gguf()]


@pytest.mark.parametrize("proof", EXACT, ids=lambda proof: f"{proof.method}-{proof.name}".replace(" ", "-"))
def test_numbers_are_those_of_the_oracle(proof: proofs.Proof) -> None:
    assert proof.difference <= LAST_BIT.get(proof.name, 0.0)


@pytest.mark.parametrize("proof", PRODUCTS, ids=lambda proof: proof.name)
def test_products_are_those_of_the_oracle(proof: proofs.Proof) -> None:
    assert proof.difference <= RTOL["float32"] / 100  # integers are added exactly: what is left is one rounding


def test_nothing_is_left_out() -> None:
    named = {proof.method for proof in EXACT}
    methods = (
        "awq",
        "bitsandbytes",
        "compressed-tensors",
        "fp8",
        "fp8 (deepseek_v4)",
        "gptq",
        "modelopt",
        "mxfp4",
        "mxfp8",
        "torchao",
        "gguf",
    )
    assert named - {""} == set(methods)
    assert {proof.name for proof in EXACT if proof.method == ""} == set(online.BY_NAME)
    blocks = {name for name, (count, _) in gguf_blocks.SIZES.items() if count > 1}
    assert {proof.name for proof in EXACT if proof.method == "gguf"} == blocks & set(gguf_blocks.FORMATS)
    assert {proof.name for proof in PRODUCTS} == {"int8_static", "int8_token", "int8_group"}
