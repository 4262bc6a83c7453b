"""Formats: how this engine's model writes its reasoning and its calls, settled once, when model and tokenizer are known."""

from octavo.config.config import ModelConfig
from octavo.logging import get_logger
from octavo.parsing import catalog
from octavo.parsing.catalog import Kind
from octavo.text.tokenizer import Tokenizer

logger = get_logger(__name__)

NONE = ("none", "")  # what is typed to have no format


def settle(kind: Kind, typed: str | None, model: ModelConfig, tokenizer: Tokenizer | None) -> str | None:
    """The format that an option means for a model; the log says why. typed: None = you choose. Raises ConfigError for an unknown name."""
    if typed in NONE or tokenizer is None:
        return None
    template = tokenizer.chat_template
    text = "\n".join(template.values()) if isinstance(template, dict) else template
    choice = catalog.settle(kind, typed or "auto", template=text, model_type=model.model_type)
    option = catalog.FLAGS[kind].removeprefix("--").replace("-", "_")
    logger.info("%s = %s: %s", option, choice.name or "none", choice.reason)
    return choice.name


def check(kind: Kind, typed: str | None, plugin: str) -> None:
    """Add the operator's own file, and see that the name is one, before anything is loaded. Raises ConfigError."""
    if plugin:
        catalog.add_file(kind, plugin)
    if typed not in (None, "auto", *NONE):
        catalog.settle(kind, typed)
