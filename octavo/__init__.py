"""octavo: an inference and serving engine for large language models."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "LLM": "octavo.frontend.llm",
    "AsyncLLM": "octavo.frontend.async_llm",
    "SamplingParams": "octavo.protocol.sampling_params",
    "BeamSearchParams": "octavo.protocol.sampling_params",
    "RequestOutput": "octavo.protocol.outputs",
    "CompletionOutput": "octavo.protocol.outputs",
    "Options": "octavo.config.options",
}
__all__ = ["__version__", *_WHERE]

if TYPE_CHECKING:
    from octavo.config.options import Options as Options
    from octavo.frontend.async_llm import AsyncLLM as AsyncLLM
    from octavo.frontend.llm import LLM as LLM
    from octavo.protocol.outputs import CompletionOutput as CompletionOutput
    from octavo.protocol.outputs import RequestOutput as RequestOutput
    from octavo.protocol.sampling_params import BeamSearchParams as BeamSearchParams
    from octavo.protocol.sampling_params import SamplingParams as SamplingParams


def __getattr__(name: str) -> Any:
    """Names are found when they are first used, so that `import octavo` costs nothing."""
    if name in _WHERE:
        import importlib

        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'octavo' has no attribute {name!r}")
