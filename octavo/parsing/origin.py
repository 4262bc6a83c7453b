"""Origin: which models write a format, what shows that a model is one of them, and where the format can be looked up. A table's ORIGIN."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """models: for the reader. sources: where the format was taken from.

    templates: what a chat template of such a model contains: one of these groups, each text of the group. without: what it does not
    contain. model_types: types (config.json) that write this whatever their template says, or that have none.
    """

    models: str
    sources: tuple[str, ...]
    templates: tuple[tuple[str, ...], ...] = ()
    without: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()

    def fits(self, template: str) -> bool:
        """Whether the chat template is one of this format's."""
        return any(all(text in template for text in group) for group in self.templates) and not any(t in template for t in self.without)
