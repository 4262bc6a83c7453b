"""Stop strings: the same end whatever the cuts, and never more held back than could still become a stop."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.text.stop_strings import StopMatch, StopStrings


def run(stops: list[str], pieces: list[str], **options: object) -> tuple[str, list[str], StopMatch | None]:
    stopper = StopStrings(stops, **options)  # type: ignore[arg-type]
    sent = []
    for piece in pieces:
        sent.append(stopper.add(piece))
        if stopper.match:
            return "".join(sent), sent, stopper.match
    sent.append(stopper.finish())
    return "".join(sent), sent, stopper.match


def naive(stops: list[str], text: str, include: bool) -> tuple[str, str | None]:
    """The end by looking at each beginning of the text in turn."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


@settings(max_examples=500, deadline=None, derandomize=True)
@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=4),
    pieces=st.lists(st.text("abc", max_size=5), max_size=8),
    include=st.booleans(),
)
def test_any_cut_gives_the_same_end(stops: list[str], pieces: list[str], include: bool) -> None:
    text, sent, match = run(stops, pieces, include_in_output=include)
    want, stop = naive(stops, "".join(pieces), include)
    assert text == want
    assert (match.stop if match else None) == stop
    if match:
        assert match.text_length == len(text)
        assert match.num_tokens == len(sent)
        assert naive(stops, "".join(pieces[: len(sent) - 1]), include)[1] is None


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3), pieces=st.lists(st.text("abc", max_size=3), max_size=8)
)
def test_the_least_is_held_back(stops: list[str], pieces: list[str]) -> None:
    stopper, sent, seen, borders = StopStrings(stops), "", "", [0]
    for piece in pieces:
        sent, seen = sent + stopper.add(piece), seen + piece
        if stopper.match:
            return
        begun = max((n for stop in stops for n in range(1, len(stop)) if seen.endswith(stop[:n])), default=0)
        assert len(sent) == (max(b for b in borders if b <= len(seen) - begun) if begun else len(seen))
        borders.append(len(seen))


def test_a_stop_across_tokens_is_not_sent_in_part() -> None:
    text, sent, match = run(["DEFGHIJ"], ["ABCD", "EFG", "HIJK"])
    assert sent == ["", "", "ABC"]
    assert text == "ABC"
    assert match == StopMatch("DEFGHIJ", 3, 3)


def test_a_token_is_sent_whole_or_not_at_all() -> None:
    _, sent, _ = run(["k>x"], ["ab", "<think>", "y", "<think>", "xy"])
    assert sent == ["ab", "", "<think>y", "", "<thin"]


def test_a_long_stop_delays_nothing() -> None:
    _, sent, _ = run(["x" * 200], ["one ", "two ", "three"])
    assert sent[:3] == ["one ", "two ", "three"]


def test_a_beginning_that_comes_to_nothing_is_sent_at_the_end() -> None:
    assert run(["stop"], ["a", "st", "o"]) == ("asto", ["a", "", "", "sto"], None)


def test_the_stop_can_be_kept() -> None:
    text, _, match = run(["\n\n"], ["a\n", "\nb"], include_in_output=True)
    assert (text, match) == ("a\n\n", StopMatch("\n\n", 2, 3))


def test_the_first_complete_stop_wins() -> None:
    assert run(["abcdef", "cd"], ["abcdef"])[0] == "ab"
    assert run(["d", "bcd"], ["abcd"])[0] == "a"


@pytest.mark.parametrize(("min_tokens", "want"), [(0, "a"), (1, "a"), (2, "a.b"), (3, "a.b.c"), (4, "a.b.c.d")])
def test_no_stop_before_min_tokens(min_tokens: int, want: str) -> None:
    assert run(["."], ["a.", "b.", "c.", "d"], min_tokens=min_tokens)[0] == want


def test_min_tokens_lets_a_stop_straddle_it() -> None:
    assert run(["<end>"], ["x<en", "d>y"], min_tokens=2)[0] == "x"
    assert run(["ab"], ["ab", "ab", "c"], min_tokens=2) == ("ab", ["ab", ""], StopMatch("ab", 2, 2))
    assert run(["ab"], ["ab", "c"], min_tokens=2) == ("abc", ["ab", "c", ""], None)
    assert run(["aba"], ["aba", "ba"], min_tokens=2) == ("ab", ["", "ab"], StopMatch("aba", 2, 2))


def test_a_stop_that_the_flush_completes() -> None:
    stopper = StopStrings(["\ufffd"])
    assert stopper.add("a") == "a"
    assert stopper.finish("\ufffd") == ""
    assert stopper.match == StopMatch("\ufffd", 1, 1)
