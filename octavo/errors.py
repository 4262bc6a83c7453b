"""Errors: what a user can cause, as the fact and, where there is one, a hint that says what to do."""


class OctavoError(Exception):
    """A fault with a remedy. `str()` gives the fact and the hint; `fact` and `hint` give them apart."""

    def __init__(self, fact: str, hint: str | None = None) -> None:
        super().__init__(fact if hint is None else f"{fact}\nhint: {hint}")
        self.fact = fact
        self.hint = hint

    def __reduce__(self) -> tuple[type, tuple[str, str | None]]:
        return type(self), (self.fact, self.hint)


class ConfigError(OctavoError, ValueError):
    """An option, or a combination of options, that cannot be."""


class ModelNotFoundError(OctavoError, FileNotFoundError):
    """No model of that name here or on the hub, or no right to read it."""


class UnsupportedModelError(OctavoError, ValueError):
    """An architecture, or a key of its configuration, that octavo does not know."""


class CheckpointError(OctavoError, ValueError):
    """A model's files are not what they should be: missing, truncated, wrongly shaped or unused tensors."""


class MemoryPlanError(OctavoError, ValueError):
    """What was asked for does not fit in the memory of the device."""


class RequestError(OctavoError, ValueError):
    """One request is wrong. `parameter` names the field; the request is refused and nothing else is touched."""

    def __init__(self, fact: str, hint: str | None = None, parameter: str | None = None) -> None:
        super().__init__(fact, hint)
        self.parameter = parameter

    def __reduce__(self) -> tuple[type, tuple[str, str | None, str | None]]:  # type: ignore[override]
        return type(self), (self.fact, self.hint, self.parameter)


class OverloadedError(OctavoError, RuntimeError):
    """No room in the queue now; the same request may succeed later."""


class GenerationError(OctavoError, RuntimeError):
    """The engine failed on one request; the others go on."""


class EngineDeadError(OctavoError, RuntimeError):
    """The engine's process has ended; no request can be answered until it is started again."""
