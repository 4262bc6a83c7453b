"""--workload: what may be written, and what is refused."""

import pytest

from octavo.errors import ConfigError
from octavo.planning.workload import Workload, parse


def test_a_workload_is_read() -> None:
    assert parse("in=8000,out=1000,rate=10,prefix=0.5") == Workload(prompt=8000, output=1000, rate=10.0, prefix=0.5)
    assert parse(" in=8k , out=1") == Workload(prompt=8000, output=1)
    assert parse("rate=0.1").rate == 0.1
    assert Workload().rate is None


def test_what_is_known_of_a_prompt_need_not_be_computed() -> None:
    assert parse("in=1000,prefix=0.25").computed_prompt == 750
    assert parse("in=1000,prefix=1").computed_prompt == 1


REFUSED = "in in= in=x speed=3 in=0 out=-1 rate=0 prefix=1.5 prefix=-0.1 rate=nan rate=inf in=1;out=2 in=1.5"


@pytest.mark.parametrize("text", REFUSED.split())
def test_what_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--workload"):
        parse(text)
