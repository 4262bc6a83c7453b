"""Threads of the pool that share a core are moved apart where there is room."""

import os
import threading
import time

import pytest
import torch

from octavo.ops.cpu.team import Team, moves

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not let processes choose cores")


def test_whoever_shares_a_core_moves_to_a_free_one() -> None:
    me, cores = os.getpid(), os.sched_getaffinity(0)
    first = min(cores)
    others = sorted(cores - {first})
    expected = [(me, others[0], cores)] if others else []
    assert moves([me, first, me, first]) == expected
    assert moves([me, first, 0, 0]) == [], "one that did not run shares nothing"
    everyone = [number for core in sorted(cores) for number in (me, core)]
    assert moves(everyone) == []
    assert moves([*everyone, me, first]) == [], "no core is free"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_a_crowded_team_is_spread_and_bound_to_nothing() -> None:
    found: list[object] = []

    def work() -> None:
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})
        torch.set_num_threads(2)
        team = Team()
        team.keep_apart()  # the pool's threads begin, where this one is
        for thread in (0, team._told[2]):
            os.sched_setaffinity(thread, cores)
        seen = set()
        end = time.monotonic() + 20  # other processes may have the other core meanwhile
        while time.monotonic() < end:
            team._last = 0.0
            team.keep_apart()
            seen.add(len({team._told[1], team._told[3]}))
            if 2 in seen:
                break
        found.append(seen)
        found.append([os.sched_getaffinity(team._told[0]), os.sched_getaffinity(team._told[2])] == [cores, cores])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert 2 in found[0]  # type: ignore[operator]
    assert found[1] is True
