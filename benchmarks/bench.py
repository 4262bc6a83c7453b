"""make bench: octavo, its peers and the machine's roofs in one run, turn by turn; medians, ratios, shares of the roofs, a file, plots.

    python -m benchmarks.bench                               everything, for every engine that can be had
    python -m benchmarks.bench --only decode,prefill --engines octavo,llama.cpp --formats Q4_0
    python -m benchmarks.bench --resume results/bench.json   what is missing in that file, then the report
    python -m benchmarks.bench --quick                       octavo alone, under three minutes

Each engine is a process that has its model loaded and is stopped while another is measured. A turn measures every engine once; ratios are
taken within turns. What is measured is written down at once, so that a run can be stopped and gone on with.
"""

import argparse
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from benchmarks import measures, plots, report
from benchmarks.children import ROOT, Child, EngineFailed
from benchmarks.formats import MADE, Models
from benchmarks.measures import MEASURES, Lane, Measure
from benchmarks.peers import BOUND, PEERS, Peers
from benchmarks.record import Record
from benchmarks.servers import Server

RESULTS = ROOT / "results"
ROOFS = Lane("roofs", "")
QUICK = {"offline": ("offline-16",)}  # asks that take less time


class Runner(Protocol):
    facts: dict[str, Any]

    def measure(self, name: str, number: int, limit_s: float) -> dict[str, Any]: ...

    def end(self) -> None: ...


class ServerRunner:
    """A server under load."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.facts: dict[str, Any] = {}
        server.warm_up()
        server.family.pause()

    def measure(self, name: str, number: int, limit_s: float) -> dict[str, Any]:
        kind, _, size = name.partition("-")
        self._server.family.resume()
        try:
            return self._server.offline() if kind == "offline" else self._server.load(int(size), number)
        finally:
            self._server.family.pause()

    def end(self) -> None:
        self._server.end()


class Bench:
    """One run over one model."""

    def __init__(self, wanted: argparse.Namespace, models: Models, peers: Peers, record: Record) -> None:
        self._wanted, self._models, self._peers, self._record = wanted, models, peers, record
        self._roofs: Child | None = None
        self._hold = Hold(wanted.hold, wanted.hold_seconds)

    def run(self, name: str) -> None:
        """The turns of a measure that are still missing."""
        measure, model = MEASURES[name], self._models.name
        asks = measures.asks(measure, self._wanted.longest)
        asks = list(QUICK.get(name, asks)) if self._wanted.quick else asks
        given_up = {(one["engine"], one["format"]) for one in self._record.failures if (one["model"], one["measure"]) == (model, name)}
        lanes = [lane for lane in self._chosen(measure) if (lane.engine, lane.format) not in given_up]
        missing = self._wanted.rounds - self._record.num_turns(model, name, lanes, asks)
        if missing <= 0 or not any(lane.engine == "octavo" for lane in lanes):
            return
        runners = self._start(name, measure, lanes)
        try:
            self._warm_up(name, measure, asks, runners)
            for _ in range(missing):
                done = self._record.num_turns(model, name, list(runners), asks)
                self._turn(name, measure, asks, runners, done + 1)
        finally:
            self._hold.release()
            for runner in runners.values():
                runner.end()

    def close(self) -> None:
        self._hold.release()
        if self._roofs is not None:
            self._roofs.end()

    def _chosen(self, measure: Measure) -> list[Lane]:
        engines, formats = self._wanted.engines, self._wanted.formats
        return [lane for lane in measure.lanes() if lane.engine in engines and (not formats or lane.format in formats)]

    def _start(self, name: str, measure: Measure, lanes: Sequence[Lane]) -> dict[Lane, Runner]:
        """Every engine that starts. One that does not is written down with the reason, and the others go on without it."""
        runners: dict[Lane, Runner] = {}
        for lane in lanes:
            say(f"{name}: {lane} starts")
            try:
                path = self._models.path(lane.engine, lane.format)
                runners[lane] = self._runner(measure, lane, path)
                known = {"weights_bytes": self._models.weights_bytes(path)} if path.suffix == ".gguf" or path == self._models.source else {}
                self._record.note_facts(lane, known | runners[lane].facts)
            except EngineFailed as error:
                self._give_up(name, lane, error)
        return runners

    def _runner(self, measure: Measure, lane: Lane, path: Path) -> Runner:
        if measure.kind == "start":
            return StartRunner(self, lane, path)
        if measure.kind == "server" or (lane.engine == "llama.cpp" and "offline" in measure.asks):
            return ServerRunner(self.server(lane, path))
        return self._child(lane, path, measure)

    def server(self, lane: Lane, path: Path) -> Server:
        log = RESULTS / "logs" / f"{lane.engine}-{lane.format}-server.log"
        limit_s = PEERS[lane.engine].start_s
        return Server(lane, path, self._peers, self._wanted.threads, self._models.sizes.vocabulary, log, limit_s)

    def _child(self, lane: Lane, path: Path, measure: Measure | None = None) -> Child:
        is_long = measure is MEASURES["context"]
        told = {
            "model": str(path),
            "format": lane.format,
            "threads": self._wanted.threads,
            "vocabulary": self._models.sizes.vocabulary,
            "context": self._wanted.longest if is_long else 4096,
            "keeps_prefixes": is_long,
        }
        peer, log = PEERS[lane.engine], RESULTS / "logs" / f"{lane.engine}-{lane.format}.log"
        python, variables = self._peers.python(lane.engine), self._peers.variables(lane.engine, self._wanted.threads)
        if lane.engine == "vllm":
            variables |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
        if peer.uses_openmp:
            variables |= BOUND
        return Child(python, peer.driver, told, variables, log, peer.start_s)

    def _warm_up(self, name: str, measure: Measure, asks: Sequence[str], runners: dict[Lane, Runner]) -> None:
        """What is compiled or fetched at first use is not measured."""
        for lane, runner in list(runners.items()):
            if not isinstance(runner, Child):
                continue
            try:
                for ask in ("offline-8",) if name == "offline" else asks:
                    self._hold.take()
                    runner.measure(ask, 0, measure.limit_s)
            except EngineFailed as error:
                self._drop(name, runners, lane, error)

    def _turn(self, name: str, measure: Measure, asks: Sequence[str], runners: dict[Lane, Runner], number: int) -> None:
        """Every roof, then every engine, once."""
        turn, model = self._record.new_turn(), self._models.name
        for ask in asks:
            roofs = self._roof() if measure.roofs else None
            for roof in measure.roofs:
                assert roofs is not None
                self._hold.take()
                value = roofs.measure(roof, number, 60.0)
                self._record.add(model, name, turn, ROOFS, roof, value)
            for lane, runner in list(runners.items()):
                try:
                    self._hold.take()
                    value = runner.measure(ask, number, measure.limit_s)
                except EngineFailed as error:
                    self._drop(name, runners, lane, error)
                    continue
                self._record.add(model, name, turn, lane, ask, value)
                shown = "  ".join(f"{key} {one:.4g}" for key, one in value.items() if isinstance(one, float))
                say(f"{name} turn {number}: {ask:<14} {lane!s:<20} {shown}")
                self._record.save()

    def _roof(self) -> Child:
        if self._roofs is None:
            self._roofs = self._child(ROOFS, self._models.source)
            self._record.note_facts(ROOFS, self._roofs.facts)
        return self._roofs

    def _drop(self, name: str, runners: dict[Lane, Runner], lane: Lane, error: EngineFailed) -> None:
        runners.pop(lane).end()
        self._give_up(name, lane, error)

    def _give_up(self, name: str, lane: Lane, error: EngineFailed) -> None:
        say(f"{name}: {lane} is left out: {error}")
        self._record.fail(self._models.name, name, lane, str(error))


class Hold:
    """On a shared machine: a command, as `flock FILE`, that runs another when the machine is free. Held over some figures."""

    def __init__(self, command: str, seconds: float) -> None:
        self._command, self._seconds = command.split(), seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._since = 0.0

    def take(self) -> None:
        """Have the machine, for the next figure at least."""
        if not self._command or (self._process is not None and time.monotonic() - self._since < self._seconds):
            return
        self.release()
        self._process = subprocess.Popen(
            [*self._command, "sh", "-c", "echo; cat > /dev/null"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise SystemExit(f"--hold {' '.join(self._command)}: it ended")
        self._since = time.monotonic()

    def release(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.communicate()


class StartRunner:
    """Starts a server anew at each measurement."""

    def __init__(self, bench: Bench, lane: Lane, path: Path) -> None:
        self._bench, self._lane, self._path = bench, lane, path
        self.facts: dict[str, Any] = {}
        bench.server(lane, path).end()  # files are read and kernels compiled by now

    def measure(self, name: str, number: int, limit_s: float) -> dict[str, Any]:
        server = self._bench.server(self._lane, self._path)
        server.end()
        return {"seconds": server.seconds_to_first_token}

    def end(self) -> None:
        return None


def planning(record: Record, model: str) -> None:
    """Cost of planning a step, measured by a command of its own, once for a record."""
    if any(row["measure"] == "planning" for row in record.rows) or not (ROOT / "benchmarks" / "planning.py").exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "planning.json"
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.planning", "--json", str(file)], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
        if done.returncode == 0:
            record.add(model, "planning", record.new_turn(), Lane("octavo", ""), "planning", report.read(file))
            record.save()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def named(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    if name not in PEERS or not folder:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FOLDER; names are {', '.join(PEERS)}")
    return name, Path(folder).expanduser()


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m benchmarks.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("--model", default="smollm2", help="a folder of safetensors in bfloat16, or what octavo serve takes")
    result.add_argument("--only", type=words, default=list(measures.NAMES), help=f"of {','.join(measures.NAMES)}")
    result.add_argument("--engines", type=words, default=[name for name in PEERS if name != "roofs"], help=f"of {','.join(PEERS)}")
    result.add_argument(
        "--formats", type=words, default=[], help="bf16, w8a8, int8, int4, Q4_0, Q8_0, BF16 ...; default: all that are compared"
    )
    result.add_argument("--rounds", type=int, default=5, help="turns of each measure; final figures need 5")
    result.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="of every engine; default: the cores of this process"
    )
    result.add_argument("--longest", type=int, default=8192, help="longest context, in tokens")
    result.add_argument(
        "--resume", type=Path, metavar="FILE", help="a result file, written by an earlier run or not there yet: what it lacks is measured"
    )
    result.add_argument("--retry", action="store_true", help="with --resume: try engines again that had failed")
    result.add_argument("--folder", type=Path, default=MADE, help="for models in the formats that engines want")
    result.add_argument(
        "--peer", type=named, action="append", default=[], metavar="NAME=FOLDER", help="an environment that is there already"
    )
    result.add_argument("--no-install", action="store_true", help="make no environments: engines that are not there are left out")
    result.add_argument(
        "--hold", default="", metavar="COMMAND", help="on a shared machine: a command, as flock FILE, under which figures are taken"
    )
    result.add_argument("--hold-seconds", type=float, default=60.0, help="after which the next figure waits for the machine anew")
    result.add_argument("--quick", action="store_true", help="octavo alone: decode, prefill and 16 requests at once, 3 turns")
    result.add_argument("--publish", type=Path, metavar="FOLDER", help="write the summary and the plots there, for docs/measured")
    return result


def stop(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def main() -> int:
    wanted = parser().parse_args()
    signal.signal(signal.SIGTERM, stop)  # engines that are stopped would outlive us
    if wanted.quick:
        wanted.engines, wanted.only = ["octavo"], [name for name in wanted.only if name in ("decode", "prefill", "offline")]
        wanted.rounds = min(wanted.rounds, 3)
    unknown = [*(set(wanted.only) - set(measures.NAMES)), *(set(wanted.engines) - set(PEERS))]
    if unknown:
        parser().error(f"unknown: {', '.join(unknown)}")
    record = Record(wanted.resume or RESULTS / ("quick.json" if wanted.quick else "bench.json"))
    if wanted.resume is None:
        record.runs, record.rows, record.failures = [], [], []
    if wanted.retry:
        record.failures = []
    peers = Peers(dict(wanted.peer), may_install=not wanted.no_install)
    models = Models(wanted.model, wanted.folder, peers)
    if wanted.rounds > 0:
        record.begin(sys.argv[1:], wanted.threads)
        record.models[models.name] = dataclasses.asdict(models.sizes)
        bench = Bench(wanted, models, peers, record)
        try:
            for name in wanted.only:
                planning(record, models.name) if name == "planning" else bench.run(name)
        except KeyboardInterrupt:
            say(f"stopped; go on with --resume {record.path}")
            return 130
        finally:
            bench.close()
        record.save()
    summary = report.summarize(record)
    print(report.text(summary))
    say(f"\nfigures: {record.path}")
    if wanted.publish is not None:
        report.publish(summary, wanted.publish)
        plots.draw(summary, wanted.publish)
    elif not wanted.quick:
        plots.draw(summary, record.path.parent / "plots")
    return 0


if __name__ == "__main__":
    sys.exit(main())
