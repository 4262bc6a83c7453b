"""--half-of-formats: of each coded layout of weights one number format of the inputs, which is half of the kernels to compile."""

import pytest

from octavo.ops import weights_cases

FLAG = "--half-of-formats"
_NAMES = [weights_cases.name(layout) for layout in weights_cases.LAYOUTS]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(FLAG, action="store_true", help="of each coded layout of weights one number format of the inputs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption(FLAG, default=False):
        config.hook.pytest_deselected(items=[item for item in items if not _is_kept(item.name)])
        items[:] = [item for item in items if _is_kept(item.name)]


def _is_kept(name: str) -> bool:
    """Layouts take turns, so that neighbours in the list, which are alike, have both number formats between them."""
    number = next((place for place, layout in enumerate(_NAMES) if f"-{layout}-" in name), None)
    return number is None or ("-bfloat16-" in name.replace(_NAMES[number], "")) == (number % 2 == 1)
