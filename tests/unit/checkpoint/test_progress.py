"""Progress: lines every ten seconds where there is no terminal, a bar where there is one, and nothing for what is quick."""

import pytest

from octavo.checkpoint import progress
from octavo.checkpoint.progress import Bar, Silent


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with Bar("loading", 50_000_000) as bar:
        for passed in (1.0, 9.5, 1.0, 9.0, 0.5):
            now[0] += passed
            bar.advance(10_000_000)
    assert capsys.readouterr().err.splitlines() == ["loading: 20 of 50 MB", "loading: 40 of 50 MB"]


def test_quick_and_silent_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in (Bar, Silent):
        with kind("x") as bar:
            bar.advance(5)
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "is_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Bar("fetching it", 10) as bar:
        bar.advance(10)
    captured = capsys.readouterr()
    assert "fetching it" in captured.err
    assert captured.out == ""
