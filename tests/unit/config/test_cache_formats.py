"""The number format of the cache: what may be typed, what a checkpoint says, and which layers are skipped."""

from typing import Any

import pytest

from octavo.config.cache_formats import FORMATS, TYPED, check_skipped, decide, format_of_layer
from octavo.config.options import Options, check
from octavo.config.resolve import decide_cache
from octavo.errors import ConfigError
from tests.configs import make_model_config
from tests.unit.config.test_decisions import MACHINE


def decided(dtype: str = "bfloat16", quantization: dict[str, Any] | None = None, **options: Any) -> tuple[str, list[str]]:
    reasons: list[str] = []
    model = make_model_config(dtype=dtype, hf_config={"quantization_config": quantization} if quantization else {})
    return decide_cache(Options(**options), model, MACHINE, reasons).dtype, reasons


def test_every_name_that_can_be_typed_is_decided() -> None:
    for name in TYPED:
        kept = FORMATS.get(name)
        dtype = name if kept is not None and kept.is_plain else "bfloat16"
        assert decided(dtype, kv_cache_dtype=name)[0] == {"auto": "bfloat16", "fp8": "fp8_e4m3"}.get(name, name)


@pytest.mark.parametrize(("name", "why"), [("fp8_inc", "never|another accelerator"), ("fp8_ds_mla", "MLA"), ("ultraquant_4bit", "awaits")])
def test_other_names_of_vllm_are_refused_by_name(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"kv_cache_dtype '{name}': .*({why})"):
        check(Options(kv_cache_dtype=name))
    with pytest.raises(ConfigError, match="did you mean fp8"):
        check(Options(kv_cache_dtype="fp8_e4m"))


def test_auto_is_what_the_checkpoint_was_calibrated_for() -> None:
    scheme = {"kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}}
    name, reasons = decided(quantization=scheme)
    assert name == "fp8_e4m3"
    assert any("kv_cache_dtype = fp8_e4m3: the checkpoint has scales" in reason for reason in reasons)
    assert decided(quantization=scheme, kv_cache_dtype="bfloat16")[0] == "bfloat16"
    assert decided(quantization={"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"})[0] == "fp8_e4m3"
    assert decided(quantization={"quantization": {"kv_cache_quant_algo": "NVFP4"}})[0] == "nvfp4"
    assert decided(quantization={"quant_method": "fp8", "kv_cache_scheme": None})[0] == "bfloat16"


def test_skipped_layers() -> None:
    def names(skipped: list[str]) -> list[str]:
        return [format_of_layer("fp8_e4m3", "bfloat16", skipped, layer, layer % 2 == 1).name for layer in range(4)]

    fp8, plain = "fp8_e4m3", "bfloat16"
    assert names([]) == [fp8] * 4
    assert names(["0", "3"]) == [plain, fp8, fp8, plain]
    assert names(["sliding_window"]) == [fp8, plain, fp8, plain]
    assert names(["sliding_window", "2"]) == [fp8, plain, plain, plain]
    with pytest.raises(ConfigError, match="'first' is neither the number of a layer nor sliding_window"):
        decided(kv_cache_dtype="fp8", kv_cache_dtype_skip_layers=["first"])
    with pytest.raises(ConfigError, match="there is no layer 30"):
        check_skipped(["29", "30"], 30)


def test_a_plain_format_of_another_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="kv_cache_dtype float16 differs from the model's bfloat16"):
        decided(kv_cache_dtype="float16")
    assert decide("auto", "float32", {}, []).name == "float32"
