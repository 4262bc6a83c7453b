"""Servers: each engine's own, started as its users start it, and the load of the workload upon it."""

import asyncio
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import workload
from benchmarks.children import EngineFailed, Family
from benchmarks.measures import Lane
from benchmarks.peers import Peers
from octavo.bench.http_client import Address, Client
from octavo.bench.load import Outcome, Sender
from octavo.bench.load import run as run_load
from octavo.bench.options import ServeOptions
from octavo.bench.sample import Sample

NAME = "bench"  # that the model is served under
WARM_UP = 99  # seed of requests that are not counted
SLOTS = 32


class Server:
    """A server that has answered a first request; seconds_to_first_token: since its process was started."""

    def __init__(self, lane: Lane, model: Path, peers: Peers, threads: int, vocabulary: int, log: Path, limit_s: float) -> None:
        self._tokens = workload.Tokens(vocabulary)
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        began = time.perf_counter()
        self.family = Family(command(lane, model, peers, port, threads), peers.variables(lane.engine, threads), log)
        try:
            self._wait(limit_s)
        except BaseException:
            self.family.end()
            raise
        self.seconds_to_first_token = time.perf_counter() - began

    def load(self, clients: int, seed: int) -> dict[str, Any]:
        """The shared-prefix load with that many clients: counts, and milliseconds of all requests for pooling."""
        return self._measured(self._tokens.shared(workload.num_requests(clients), seed), clients)

    def offline(self) -> dict[str, Any]:
        """The requests of the offline workload, all at once over HTTP."""
        requests = self._tokens.offline()
        value = self._measured(requests, len(requests))
        return {"tokens_s": value["tokens_s"], "seconds": value["seconds"], "over": "HTTP"}

    def warm_up(self) -> None:
        self._measured(self._tokens.shared(4, WARM_UP), 2)

    def end(self) -> None:
        self.family.end()

    def _measured(self, requests: Sequence[workload.Request], clients: int) -> dict[str, Any]:
        outcomes, seconds = asyncio.run(_send(self.url, requests, clients))
        failed = [outcome.error for outcome in outcomes if not outcome.is_success]
        if failed:
            raise EngineFailed(f"{len(failed)} of {len(outcomes)} requests failed: {failed[0]}")
        count = sum(output for _, output in requests)
        told = [outcome.num_output for outcome in outcomes if outcome.num_output is not None]
        if told and sum(told) != count:
            raise EngineFailed(f"{sum(told)} tokens came where {count} were asked for")
        ttft = [round(1e3 * outcome.ttft_s, 2) for outcome in outcomes]
        itl = [round(1e3 * gap, 2) for outcome in outcomes for gap in outcome.itl_s]
        return {"tokens_s": count / seconds, "seconds": seconds, "ttft_ms": ttft, "itl_ms": itl}

    def _wait(self, limit_s: float) -> None:
        """Ask for one token until it comes."""
        body = {"model": NAME, "prompt": self._tokens.single(32), "max_tokens": 1, "temperature": 0}
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if not self.family.is_alive:
                raise EngineFailed(f"the server ended: {self.family.last_words()}")
            try:
                request = urllib.request.Request(
                    f"{self.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
                )
                with urllib.request.urlopen(request, timeout=max(1.0, end - time.monotonic())) as reply:
                    json.load(reply)
                return
            except urllib.error.HTTPError as error:
                if error.code != 503:  # loading
                    raise EngineFailed(f"the server answered {error.code}: {error.read()[:300].decode(errors='replace')}") from None
            except (OSError, ValueError):
                pass
            time.sleep(0.02)
        raise EngineFailed(f"the server gave no token within {limit_s:.0f} s")


def command(lane: Lane, model: Path, peers: Peers, port: int, threads: int) -> list[str]:
    """How users start it, with as many requests at once as the load has."""
    where = ["--host", "127.0.0.1", "--port", str(port)]
    python = peers.python(lane.engine)
    names = ["--served-model-name", NAME, "--max-model-len", "4096", "--max-num-seqs", "64"]
    if lane.engine == "octavo":
        cache = ["--kv-cache-memory-bytes", str(1 << 30), "--cpu-threads", str(threads)]
        return [python, "-m", "octavo.cli.main", "serve", str(model), *where, *names, *cache, "--dtype", "bfloat16"]
    if lane.engine == "vllm":
        return [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), *where, *names, "--dtype", "bfloat16"]
    if lane.engine == "llama.cpp":
        room = ["--ctx-size", str(SLOTS * 1024), "--parallel", str(SLOTS), "--threads", str(threads), "--threads-batch", str(threads)]
        return [str(peers.llama_cpp_binaries() / "llama-server"), "--model", str(model), *where, *room]
    raise EngineFailed(f"{lane.engine} has no server here")


async def _send(url: str, requests: Sequence[workload.Request], clients: int) -> tuple[list[Outcome], float]:
    options = ServeOptions(max_concurrency=clients, ignore_eos=True, temperature=0.0, request_timeout_sec=300)
    samples = [Sample(prompt, len(prompt), output) for prompt, output in requests]
    client = Client(Address(url), {})
    try:
        done = await run_load(Sender(client, options, NAME), samples, [0.0] * len(samples), options)
    finally:
        await client.close()
    return done.outcomes, done.seconds


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
