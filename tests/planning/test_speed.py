"""The roofline: what binds when, prompts in chunks, prefixes, and a steady state in which as many requests end as come."""

import msgspec
import pytest

from octavo.config.options import Options
from octavo.planning import calibrate_terms, hardware, plan, speed
from octavo.planning.calibrate_terms import Terms
from octavo.planning.plan import Plan
from octavo.planning.speed import ASSUMED, Roofline, serve
from octavo.planning.topology import Topology
from octavo.planning.workload import Workload

TERMS = Terms(
    step=1e-3,
    layer=2e-5,
    row=5e-5,
    score=1e-9,
    number=1e-10,
    attention=1e-11,
    prompt_attention=1e-12,
    weight=[1e-10, 1e-10, 2e-10, 5e-10, 2e-9],
)


@pytest.fixture(scope="module")
def small() -> Plan:
    return plan.make(Options(model="Llama-3.1-8B", max_model_len=16384), hardware.parse("h100"), Topology())


@pytest.fixture
def roofline(small: Plan) -> Roofline:
    return Roofline(small)


def test_one_row_is_bound_by_reading_the_weights(roofline: Roofline, small: Plan) -> None:
    step = roofline.decode(1, 128)
    assert step.binds == "memory"
    table = small.config.model.vocab_size * 4096
    read = 2 * (small.parameters - table) + 128 * small.bytes_per_token
    assert step.memory_s == pytest.approx(read / (3.35e12 * ASSUMED["gpu"].memory), rel=1e-3)
    assert step.seconds == step.memory_s + step.overhead_s


def test_many_rows_and_prompts_are_bound_by_products(roofline: Roofline, small: Plan) -> None:
    assert roofline.decode(1024, 1).binds == "products"
    step = roofline.step(8192, 1, 4096)
    assert step.binds == "products"
    layers = small.parameters - 2 * small.config.model.vocab_size * 4096
    attention = 2 * 2 * 8192 * 4096 * 32 * 4096
    assert step.products_s == pytest.approx((2 * 8192 * layers + attention) / (989e12 * ASSUMED["gpu"].products), rel=5e-3)


def test_steps_grow_with_rows_and_tokens_a_second_with_them(roofline: Roofline) -> None:
    steps = [roofline.decode(rows, 1000).seconds for rows in (1, 8, 32, 128)]
    assert steps == sorted(steps)
    rates = [rows / seconds for rows, seconds in zip((1, 8, 32, 128), steps, strict=True)]
    assert rates == sorted(rates)


def test_a_prompt_is_computed_in_chunks(roofline: Roofline) -> None:
    parts = roofline.step(8192, 1, 4096).seconds + roofline.step(1808, 1, 8192 + 904).seconds
    assert roofline.prefill_s(10_000) == parts
    assert roofline.prefill_s(10_000, 8192) == roofline.step(1808, 1, 8192 + 904).seconds


def test_a_known_prefix_is_whole_blocks_and_never_the_last_token(roofline: Roofline, small: Plan) -> None:
    assert roofline.cached(Workload(prompt=1000, prefix=0.5)) == 496
    assert roofline.cached(Workload(prompt=1024, prefix=1.0)) == 1008
    assert roofline.cached(Workload(prompt=1000)) == 0
    cache = msgspec.structs.replace(small.config.cache, prefix_caching=False)
    off = msgspec.structs.replace(small, config=msgspec.structs.replace(small.config, cache=cache))
    assert Roofline(off).cached(Workload(prompt=1000, prefix=0.5)) == 0


def test_a_known_prefix_shortens_the_first_token_and_raises_what_is_done(roofline: Roofline) -> None:
    without, half = (serve(roofline, Workload(prompt=8000, output=200, prefix=share)) for share in (0.0, 0.5))
    assert half.first_token_s < without.first_token_s
    assert half.requests_per_s > without.requests_per_s


@pytest.mark.parametrize("rate", [0.01, 0.5, 2.0, 5.0])
def test_as_many_requests_end_as_come(roofline: Roofline, rate: float) -> None:
    served = serve(roofline, Workload(prompt=2000, output=200, rate=rate))
    assert not served.is_saturated
    assert served.limit == "rate"
    assert served.requests_per_s == pytest.approx(rate, rel=1e-3)
    assert served.output_tokens_per_s == pytest.approx(rate * 200, rel=1e-3)
    # Little: those that run are those that come times the time that each runs
    assert served.running == pytest.approx(rate * served.between_tokens_s * 200, rel=1e-3)


def test_time_is_used_up_by_steps_and_prompts(roofline: Roofline) -> None:
    workload = Workload(prompt=2000, output=200, rate=4.0)
    served = serve(roofline, workload)
    low = int(served.running)
    step = roofline.decode(low, 2100).seconds
    step += (served.running - low) * (roofline.decode(low + 1, 2100).seconds - step)
    # in a second: so many steps, and the prompts of so many requests
    assert step / served.between_tokens_s + 4.0 * roofline.prefill_s(2000) == pytest.approx(1.0, rel=1e-3)


def test_more_than_can_be_done_is_told(roofline: Roofline) -> None:
    most = serve(roofline, Workload(prompt=2000, output=200))
    flood = serve(roofline, Workload(prompt=2000, output=200, rate=1000.0))
    assert not most.is_saturated
    assert flood.is_saturated
    assert flood.requests_per_s == pytest.approx(most.requests_per_s)
    assert flood.running == most.running


def test_the_cache_limits_how_many_run(roofline: Roofline, small: Plan) -> None:
    long = serve(roofline, Workload(prompt=15_000, output=1384))
    assert long.limit == "cache"
    assert long.running == pytest.approx(small.max_concurrency, rel=1e-3)
    short = serve(roofline, Workload(prompt=16, output=16))
    assert short.limit == "max_num_seqs"
    assert short.running == small.config.scheduler.max_num_seqs


def test_replicas_share_what_comes(small: Plan) -> None:
    two = msgspec.structs.replace(small, topology=Topology(data=2))
    alone = serve(Roofline(small), Workload(prompt=2000, output=200, rate=2.0))
    both = serve(Roofline(two), Workload(prompt=2000, output=200, rate=4.0))
    assert both.running == pytest.approx(alone.running)
    assert both.requests_per_s == pytest.approx(2 * alone.requests_per_s)


def test_calibrated_terms_count_in_place_of_shares(small: Plan) -> None:
    measured = msgspec.structs.replace(ASSUMED["cpu"], measured=TERMS, source="measured")
    roofline = Roofline(small, measured)
    stage = roofline.stages[0]
    for tokens, rows, context in ((1, 1, 100), (32, 32, 1000), (128, 128, 10), (2048, 1, 1024)):
        step = roofline.step(tokens, rows, context)
        assert step.seconds == pytest.approx(calibrate_terms.predict(TERMS, stage, tokens, rows, context))
    assert roofline.decode(1, 100).binds == "memory"
    assert roofline.step(2048, 1, 1024).binds == "products"


def test_a_card_that_is_not_here_is_assumed(small: Plan) -> None:
    assert speed.reached(small) == ASSUMED["gpu"]
