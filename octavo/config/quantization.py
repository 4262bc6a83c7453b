"""Quantization: the scheme of a model's weights, from what was typed and from what its configuration says; what contradicts is refused."""

from collections.abc import Mapping
from typing import Any

from octavo import plugins
from octavo.config.options import Options
from octavo.errors import ConfigError
from octavo.logging import get_logger

logger = get_logger(__name__)

# what users may type for a quant_method that checkpoints call otherwise
_ALSO_CALLED = {
    "auto_awq": "awq",
    "awq_marlin": "awq",
    "auto_gptq": "gptq",
    "gptq_marlin": "gptq",
    "compressed_tensors": "compressed-tensors",
    "gpt_oss_mxfp4": "mxfp4",
    "modelopt_fp4": "modelopt",
    "modelopt_mixed": "modelopt",
    "modelopt_mxfp8": "modelopt",
}
# schemes that are made while a plain checkpoint is loaded; the others are only read
ONLINE = (
    "fp8_per_tensor",
    "fp8_per_block",
    "int8",
    "int8_token",
    "int8_per_channel_weight_only",
    "int4",
    "mxfp8",
    "nvfp4",
    "bitsandbytes",
    "online",
)
_READ_TOO = ("mxfp8", "bitsandbytes")
# of those that are only read, the one that a plain checkpoint can be made instead
_INSTEAD = {"mxfp4": "nvfp4", "modelopt": "nvfp4", "deepseek_v4_fp8": "fp8_per_block"}


def stored_settings(hf_config: Mapping[str, Any]) -> dict[str, Any]:
    """quantization_config of config.json; empty where the weights are plain. Raises ConfigError if it is no table."""
    found = hf_config.get("quantization_config")
    if found is not None and not isinstance(found, dict):
        raise ConfigError(f"quantization_config in config.json is {found!r}, not a table of keys", "fetch the model again")
    return found or {}


def stored_method(hf_config: Mapping[str, Any]) -> str | None:
    """The quant_method that the checkpoint names; None where its weights are plain, or it does not say."""
    settings = stored_settings(hf_config)
    method, producer = settings.get("quant_method"), settings.get("producer")
    if method is None and isinstance(producer, dict) and producer.get("name") == "modelopt":
        return "modelopt"
    if method is not None and not isinstance(method, str):
        raise ConfigError(f"quantization_config: quant_method is {method!r}, not a name", "fetch the model again")
    return method


def decide_quantization(options: Options, hf_config: Mapping[str, Any], reasons: list[str], is_gguf: bool = False) -> str | None:
    """The scheme's file in octavo/quant/schemes; None: plain numbers, or GGUF, whose header tells. Raises ConfigError for one that is
    unknown, or that the checkpoint contradicts.
    """
    typed = _ALSO_CALLED.get(options.quantization or "", options.quantization)
    if typed is not None and plugins.file_name(typed) not in (*_schemes(), "gguf"):
        raise _unknown("--quantization", typed, _schemes())
    if is_gguf or typed == "gguf":
        _check_gguf(options, typed, is_gguf)
        return None
    settings, stored = stored_settings(hf_config), stored_method(hf_config)
    if options.quantization_config:
        if settings:
            fact = f"--quantization-config is for checkpoints that are quantized while loading, and this one is in {stored!r}"
            raise ConfigError(fact, "leave it out: the checkpoint tells")
        typed = typed or "online"
    if not settings:
        return _plain(options, typed, reasons)
    if stored is None and typed is None:
        raise ConfigError("quantization_config in config.json has no quant_method", "name it with --quantization")
    name = plugins.file_name(str(typed if stored is None else stored))
    if name not in _read():
        where = "--quantization" if stored is None else "the checkpoint's quantization_config"
        raise _unknown(where, str(typed if stored is None else stored), _read())
    is_deepseek = name == "fp8" and str(hf_config.get("model_type")).startswith("deepseek_v4")
    found = "deepseek_v4_fp8" if is_deepseek else name  # one quant_method for two layouts
    if typed is not None and plugins.file_name(typed) not in (name, found):
        fact = f"--quantization {options.quantization}, but the checkpoint is in {stored!r}"
        raise ConfigError(fact, "leave --quantization out: the checkpoint tells")
    if options.dtype != "auto":
        reasons.append(
            f"dtype = {options.dtype}: of activations and plain weights; the checkpoint's {name} weights keep their codes and scales"
        )
    return found


def _check_gguf(options: Options, typed: str | None, is_gguf: bool) -> None:
    """Raise ConfigError where GGUF is what was typed or what there is, and not both."""
    if options.quantization_config or (is_gguf and typed not in (None, "gguf")):
        asked = "--quantization-config" if options.quantization_config else f"--quantization {options.quantization}"
        raise ConfigError(f"{asked}, but the checkpoint is a GGUF file, whose header says what each weight is in", "leave it out")
    if not is_gguf:
        raise ConfigError("--quantization gguf, but the checkpoint is no GGUF file", "leave it out, or name a .gguf file as the model")


def _plain(options: Options, typed: str | None, reasons: list[str]) -> str | None:
    """The scheme for a checkpoint of plain numbers."""
    if typed is None:
        return None
    name = plugins.file_name(typed)
    if name == "fp8":
        logger.warning("--quantization fp8 is deprecated for a plain checkpoint; use --quantization fp8_per_tensor, which is what is done")
        reasons.append("quantization = fp8_per_tensor: the checkpoint is plain, and --quantization is fp8")
        return "fp8_per_tensor"
    if name not in ONLINE:
        fact = (
            f"--quantization {options.quantization} needs a checkpoint in {typed}, and this one has no quantization_config in config.json"
        )
        instead = _INSTEAD.get(name, "int4")
        raise ConfigError(fact, f"--quantization {instead} quantizes a plain checkpoint while it is loaded; octavo quantize writes one")
    return name


def _schemes() -> list[str]:
    return [name for name in plugins.names("quant.schemes") if name != "unquantized"]


def _read() -> list[str]:
    """The schemes that a checkpoint can be in."""
    return [name for name in _schemes() if (name not in ONLINE or name in _READ_TOO) and name != "gguf"]


def _unknown(where: str, name: str, known: list[str]) -> ConfigError:
    return ConfigError(f"{where} asks for {name!r}, a number format that octavo does not read", f"known: {', '.join(known)}")
