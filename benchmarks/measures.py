"""Measures: what is measured of whom, and which two are compared."""

from dataclasses import dataclass

from benchmarks import workload


@dataclass(frozen=True, order=True)
class Lane:
    """One engine with the weights in one number format."""

    engine: str
    format: str

    def __str__(self) -> str:
        return f"{self.engine} {self.format}"


@dataclass(frozen=True)
class Measure:
    """asks: what a driver is asked, one after the other. pairs: octavo's lane -> those that it is compared with. kind: who measures.

    limit_s: after which an ask has failed.
    """

    title: str
    asks: tuple[str, ...]
    roofs: tuple[str, ...]
    pairs: dict[Lane, tuple[Lane, ...]]
    kind: str = "driver"
    unit: str = "tokens_s"
    limit_s: float = 200.0

    def lanes(self) -> list[Lane]:
        """Each once, octavo's first and the others between them."""
        return list(dict.fromkeys(lane for own, others in self.pairs.items() for lane in (own, *others)))


def _own(number_format: str) -> Lane:
    return Lane("octavo", number_format)


_BF16 = (Lane("vllm", "bf16"), Lane("openvino", "bf16"), Lane("llama.cpp", "BF16"), Lane("transformers", "bf16"))
_INT8 = (Lane("openvino", "int8"), Lane("ctranslate2", "int8"))
_OFFLINE = (Lane("vllm", "bf16"), Lane("openvino", "bf16"))
CONTEXTS = (1024, 2048, 4096, 8192, 16384, 32768)

MEASURES: dict[str, Measure] = {
    "decode": Measure(
        "decode, one request",
        ("decode",),
        ("read",),
        {
            _own("bf16"): _BF16,
            _own("Q8_0"): (Lane("llama.cpp", "Q8_0"), *_INT8),
            _own("Q4_0"): (Lane("llama.cpp", "Q4_0"), Lane("onnxruntime", "int4")),
        },
    ),
    "prefill": Measure(
        "prefill, one prompt",
        ("prefill-512", "prefill-2048"),
        ("bf16", "int8"),
        {_own("bf16"): _BF16, _own("w8a8"): (_own("bf16"), *_INT8)},
    ),
    "offline": Measure(
        "64 requests at once",
        ("offline",),
        ("read", "bf16", "int8"),
        {_own("bf16"): _OFFLINE, _own("w8a8"): (*_OFFLINE, Lane("openvino", "int8"), Lane("llama.cpp", "Q4_0"), _own("bf16"))},
        limit_s=400.0,
    ),
    "serve": Measure(
        "server, shared prefix",
        tuple(f"clients-{clients}" for clients in workload.CLIENTS),
        (),
        {_own("bf16"): (Lane("vllm", "bf16"),), _own("Q4_0"): (Lane("llama.cpp", "Q4_0"),)},
        kind="server",
    ),
    "start": Measure(
        "first token after the start of a server",
        ("start",),
        (),
        {_own("bf16"): (Lane("vllm", "bf16"),), _own("Q4_0"): (Lane("llama.cpp", "Q4_0"),)},
        kind="start",
        unit="seconds",
        limit_s=400.0,
    ),
    "context": Measure(
        "decode after a long context",
        tuple(f"context-{length}" for length in CONTEXTS),
        ("read",),
        {_own("bf16"): (Lane("llama.cpp", "BF16"),), _own("Q4_0"): (Lane("llama.cpp", "Q4_0"),)},
        unit="seconds_token",
        limit_s=400.0,
    ),
}
NAMES = (*MEASURES, "planning")


def asks(measure: Measure, longest: int) -> list[str]:
    """Without contexts that the model does not have."""
    return [ask for ask in measure.asks if not ask.startswith("context-") or int(ask.partition("-")[2]) <= longest]
