"""octavo: an inference and serving engine for large language models."""

from typing import Any

__version__ = "0.1.0"

# the types of these names are in __init__.pyi: importing them here, even for a type checker only, would tie every room to the highest
_WHERE = {
    "LLM": "octavo.frontend.llm",
    "AsyncLLM": "octavo.frontend.async_llm",
    "SamplingParams": "octavo.protocol.sampling_params",
    "BeamSearchParams": "octavo.protocol.sampling_params",
    "StructuredOutputsParams": "octavo.protocol.sampling_params",
    "RequestOutput": "octavo.protocol.outputs",
    "CompletionOutput": "octavo.protocol.outputs",
    "Options": "octavo.config.options",
}
__all__ = ["__version__", *_WHERE]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """Names are found when they are first used, so that `import octavo` costs nothing."""
    if name in _WHERE:
        import importlib

        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'octavo' has no attribute {name!r}")
