"""The chat templates of other projects' collection."""

from tests.text.conftest import llama_cpp_models

__all__ = ["llama_cpp_models"]
