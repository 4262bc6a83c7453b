"""Tiny models run on one thread: a team would wait more than it computes."""

from tests.models.conftest import threads  # noqa: F401
