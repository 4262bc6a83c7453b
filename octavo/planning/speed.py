"""Speed: a roofline. A step takes the longer of its products and its reading, then what is sent; each term is shown."""

import math
from typing import Literal

import msgspec

from octavo.kvcache.plan import blocks_for, plan_cache
from octavo.planning import calibrate_file, calibrate_terms, communication, work
from octavo.planning.calibrate_terms import TOKENS, Terms
from octavo.planning.hardware import Hardware
from octavo.planning.plan import Plan
from octavo.planning.work import Work
from octavo.planning.workload import Workload

Term = Literal["products", "memory", "communication", "overhead"]

# the number format in which inputs are multiplied, by scheme; others multiply decoded weights with inputs as they are
_MULTIPLIED_IN = {
    "fp8": "fp8",
    "fp8_per_tensor": "fp8",
    "fp8_per_block": "fp8",
    "deepseek_v4_fp8": "fp8",
    "int8": "int8",
    "int8_token": "int8",
    "modelopt": "fp8",
    "mxfp8": "fp8",
    "nvfp4": "fp4",
}


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of a card's figures that kernels reach, and the seconds that a step takes beside them. source: how they are known.

    measured: the seconds of each part of a step, which then count in place of the shares.
    """

    products: float
    memory: float
    communication: float
    step_s: float
    source: str
    measured: Terms | None = None


ASSUMED = {
    "gpu": Efficiency(
        products=0.6,
        memory=0.75,
        communication=0.7,
        step_s=1e-3,
        source="assumed: 60 % of products, 75 % of memory, 70 % of links, 1 ms a step",
    ),
    "cpu": Efficiency(
        products=0.8, memory=0.7, communication=1.0, step_s=2e-3, source="assumed: 80 % of products, 70 % of memory, 2 ms a step"
    ),
}


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of all pipeline stages, one behind the other. Seconds."""

    products_s: float
    memory_s: float
    communication_s: float
    overhead_s: float

    @property
    def seconds(self) -> float:
        return max(self.products_s, self.memory_s) + self.communication_s + self.overhead_s

    @property
    def binds(self) -> Term:
        terms: dict[Term, float] = {
            "products": self.products_s if self.products_s >= self.memory_s else 0.0,
            "memory": self.memory_s if self.memory_s > self.products_s else 0.0,
            "communication": self.communication_s,
            "overhead": self.overhead_s,
        }
        return max(terms, key=lambda term: terms[term])


class Roofline:
    """A plan's speed. Of one replica, unless it says otherwise."""

    def __init__(self, plan: Plan, efficiency: Efficiency | None = None) -> None:
        self.plan = plan
        self.hardware: Hardware = plan.hardware
        self.efficiency = efficiency or reached(plan)
        self.stages: list[Work] = [work.of(plan.config, rank, plan.topology) for rank in plan.ranks]
        quantization = plan.config.model.quantization
        self.multiplied_in = _multiplied_in(quantization, plan.config.model.hf_config)

    def step(self, tokens: int, rows: int, context: float) -> Step:
        """A step that computes so many tokens, of which so many rows sample; each token sees `context` others, each row's cache is read."""
        if self.efficiency.measured is not None:
            return self._measured_step(self.efficiency.measured, tokens, rows, context)
        card, reached, topology = self.hardware.card, self.efficiency, self.plan.topology
        is_shared_out = topology.prefill_context > 1 and tokens > rows
        own = -(-tokens // topology.prefill_context) if is_shared_out else tokens
        replicas = topology.data if topology.is_expert_parallel else 1
        products = memory = sent = 0.0
        for stage in self.stages:
            weights = 2.0 * stage.products(own, rows, replicas) / card.rate(self.multiplied_in)
            # devices that share a request's cache each have all their heads over a share of it: the products are as many
            attention = 2.0 * stage.attention_products(own, context) / card.rate("bf16")
            products += (weights + attention) / reached.products
            read = stage.weight_bytes(own, rows, replicas) + stage.cache_bytes(rows, context) / topology.decode_context
            memory += read / (card.bytes_per_s * reached.memory)
            collectives = communication.of_a_step(stage, topology, self.hardware, tokens, rows)
            sent += sum(each.seconds for each in collectives) / reached.communication
        return Step(products_s=products, memory_s=memory, communication_s=sent, overhead_s=reached.step_s)

    def _measured_step(self, terms: Terms, tokens: int, rows: int, context: float) -> Step:
        """From a calibration. The time for weights and attention goes to what binds, by the time that either would take alone."""
        stage = self.stages[0]
        found = calibrate_terms.weights(stage, tokens, rows)
        features = calibrate_terms.features(stage, tokens, rows, context)
        attention = terms.attention * features["attention"] + terms.prompt_attention * features["prompt_attention"]
        whole = sum(terms.weights_s(*each) for each in found) + attention
        read = sum(terms.weights_s(count, 1) for count, _ in found)
        multiplied = sum(count * times * terms.weight[-1] / TOKENS[-1] for count, times in found)
        is_read = read > multiplied
        return Step(
            products_s=min(multiplied, whole) if is_read else whole,
            memory_s=whole if is_read else min(read, whole),
            communication_s=0.0,
            overhead_s=terms.seconds(features) - attention,
        )

    def decode(self, rows: int, context: float) -> Step:
        """One token for each of so many requests, each with a context of so many."""
        return self.step(rows, rows, context)

    def prefill_s(self, prompt: int, cached: int = 0) -> float:
        """Seconds for a prompt alone, in chunks, of which `cached` tokens need no computing."""
        chunk = self.plan.config.scheduler.max_num_batched_tokens
        seconds, done = 0.0, cached
        while done < prompt:
            count = min(chunk, prompt - done)
            seconds += self.step(count, 1, done + count / 2).seconds
            done += count
        return seconds

    def most_rows(self, context: float) -> float:
        """How many requests of that length run at a time on a replica: as many as its cache has room for, and the scheduler takes."""
        plan, topology = self.plan, self.plan.topology
        chunk, length = plan.config.scheduler.max_num_batched_tokens, -(-math.ceil(context) // topology.decode_context)
        room = math.inf
        for each, rank in zip(plan.rooms, plan.ranks, strict=True):
            least = plan_cache(rank.states, plan.config.cache.block_size, 0, num_blocks_override=2)
            room = min(room, (each.num_blocks - 1) / blocks_for(least, length, chunk))
        return min(max(0.0, room), plan.config.scheduler.max_num_seqs)

    def cached(self, workload: Workload) -> int:
        """Tokens of a prompt that need no computing: the whole blocks of its known part, and never its last token."""
        config = self.plan.config.cache
        if not config.prefix_caching:
            return 0
        known = min(workload.prompt - workload.computed_prompt, workload.prompt - 1)
        return known // config.block_size * config.block_size


def reached(plan: Plan) -> Efficiency:
    """What this machine was measured to reach, where it is what the plan is for; else what is assumed."""
    assumed = ASSUMED[plan.hardware.card.kind]
    if plan.hardware.card.kind != "cpu" or plan.topology.ranks > 1 or (calibration := calibrate_file.load()) is None:
        return assumed
    name = plan.config.model.quantization or plan.config.model.dtype
    if name in calibration.terms:
        return msgspec.structs.replace(assumed, measured=calibration.terms[name], source=calibration.source)
    remedy = f"--calibrate --quantization {name}" if plan.config.model.quantization else f"--calibrate --dtype {name}"
    said = f"; this machine's calibration has no weights in {name}, which octavo plan {remedy} measures"
    return msgspec.structs.replace(assumed, source=assumed.source + said)


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What clients of a workload see, by the roofline. Rates are of all replicas.

    running: requests at a time on one replica. limit: what keeps it from being more where more is asked for. first_token_s: for a prompt
    that need not wait for its turn, as all do where it is saturated.
    """

    running: float
    is_saturated: bool  # more is asked for than can be computed
    limit: Literal["rate", "cache", "max_num_seqs"]
    requests_per_s: float
    output_tokens_per_s: float
    first_token_s: float
    between_tokens_s: float
    binds: Term


def serve(roofline: Roofline, workload: Workload) -> Served:
    """A steady state: requests come evenly, and as many end (Little's law: running = rate x time that each runs). Each step computes a
    token of every request, and a share of the prompts that came meanwhile. Prefixes that requests share take their room in the cache once
    for each, so there may be room for more than is counted.
    """
    plan = roofline.plan
    room = roofline.most_rows(workload.prompt + workload.output)
    most = max(1.0, room)
    rate = None if workload.rate is None else workload.rate / plan.replicas
    running = most if rate is None else _running(roofline, workload, rate, most)
    between = _between_s(roofline, workload, running)
    done = running / (between * workload.output)
    is_saturated = rate is not None and done < rate * 0.999
    cached = roofline.cached(workload)
    step = roofline.decode(max(1, round(running)), workload.prompt + workload.output / 2)
    chunk = plan.config.scheduler.max_num_batched_tokens - round(running)
    steps = -(-(workload.prompt - cached) // max(1, chunk))
    is_full = rate is None or is_saturated
    by_rows = most >= plan.config.scheduler.max_num_seqs
    return Served(
        running=running,
        is_saturated=is_saturated,
        limit="rate" if not is_full else "max_num_seqs" if by_rows else "cache",
        requests_per_s=done * plan.replicas,
        output_tokens_per_s=done * workload.output * plan.replicas,
        # others' tokens are computed in the steps of its prompt
        first_token_s=roofline.prefill_s(workload.prompt, cached) + steps * step.seconds,
        between_tokens_s=between,
        binds=step.binds,
    )


def _between_s(roofline: Roofline, workload: Workload, running: float) -> float:
    """Seconds between two tokens of a request, when so many run: a step of decoding, and the prompts' share of time beside it."""
    decode = _decode_s(roofline, running, workload.prompt + workload.output / 2)
    return decode + running / workload.output * roofline.prefill_s(workload.prompt, roofline.cached(workload))


def _decode_s(roofline: Roofline, running: float, context: float) -> float:
    """A step of decoding for a number of requests that need not be whole, as it is one on average."""
    low = max(1, math.floor(running))
    below = roofline.decode(low, context).seconds
    return below if running <= low else below + (running - low) * (roofline.decode(low + 1, context).seconds - below)


def _running(roofline: Roofline, workload: Workload, rate: float, most: float) -> float:
    """How many run at a time when so many come a second: the number at which as many end."""
    low, high = 0.0, most
    for _ in range(60):
        middle = (low + high) / 2
        if middle / (_between_s(roofline, workload, middle) * workload.output) < rate:
            low = middle
        else:
            high = middle
    return high


def _multiplied_in(quantization: str | None, hf_config: dict[str, object]) -> str:
    if quantization == "compressed_tensors":
        return _of_compressed_tensors(hf_config)
    return _MULTIPLIED_IN.get(quantization or "", "bf16")


def _of_compressed_tensors(hf_config: dict[str, object]) -> str:
    """Inputs are coded where the checkpoint says how."""
    found = hf_config.get("quantization_config")
    groups = found.get("config_groups") if isinstance(found, dict) else None
    for group in (groups or {}).values():
        inputs = group.get("input_activations") if isinstance(group, dict) else None
        if inputs:
            bits, kind = inputs.get("num_bits"), inputs.get("type")
            return {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "fp4"}.get((bits, kind), "bf16")
    return "bf16"
