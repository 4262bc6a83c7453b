"""Every recorded answer of canitoolcall is parsed right, whole and however the stream is cut."""

from canitoolcall.checks import run_checks
from canitoolcall.chunking import DEFAULT_STRATEGIES, split
from canitoolcall.fixtures import Fixture, load_fixtures
from canitoolcall.pytest_plugin import assert_conforms, family_for
from canitoolcall.results import Observation, Status

from tests.parsing.recordings import in_characters, model_of, parse, pieces_of


def test_recorded_answer(canitoolcall_fixture: Fixture) -> None:
    pieces = pieces_of(canitoolcall_fixture)
    special = [piece for piece in pieces if piece.token_id in model_of(canitoolcall_fixture)[0]]
    whole = parse(canitoolcall_fixture, [pieces])
    assert_conforms(canitoolcall_fixture, whole)
    streams = {strategy.id: parse(canitoolcall_fixture, split(pieces, strategy, special)) for strategy in DEFAULT_STRATEGIES}
    rows = run_checks(canitoolcall_fixture, family_for(canitoolcall_fixture), Observation(whole, streams))
    assert parse(canitoolcall_fixture, in_characters(pieces)) == whole
    assert [row for row in rows if row.status is not Status.PASS] == []


def test_all_of_them_run() -> None:
    assert len(load_fixtures(None)) == 469
    assert len(DEFAULT_STRATEGIES) == 8
