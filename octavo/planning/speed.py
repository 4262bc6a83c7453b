"""Speed: a roofline. A step takes the longer of its products and its reading, then what is sent; each term is shown."""

from typing import Literal

import msgspec

from octavo.planning import communication, work
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
    """Shares of a card's figures that kernels reach, and the seconds that a step takes beside them. source: how they are known."""

    products: float
    memory: float
    communication: float
    step_s: float
    row_s: float = 0.0  # more for each row of a step
    source: str


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
        self.efficiency = efficiency or ASSUMED[plan.hardware.card.kind]
        self.stages: list[Work] = [work.of(plan.config, rank, plan.topology) for rank in plan.ranks]
        quantization = plan.config.model.quantization
        self.multiplied_in = _multiplied_in(quantization, plan.config.model.hf_config)

    def step(self, tokens: int, rows: int, context: float) -> Step:
        """A step that computes so many tokens, of which so many rows sample; each token sees `context` others, each row's cache is read."""
        card, reached = self.hardware.card, self.efficiency
        share = self.plan.topology.decode_context
        products = memory = sent = 0.0
        for stage in self.stages:
            weights = 2.0 * stage.products(tokens, rows) / card.rate(self.multiplied_in)
            attention = 2.0 * stage.attention_products(tokens, context) / share / card.rate("bf16")
            products += (weights + attention) / reached.products
            read = stage.weight_bytes(tokens * self._tokens_of_experts, rows) + stage.cache_bytes(rows, context) / share
            memory += read / (card.bytes_per_s * reached.memory)
            collectives = communication.of_a_step(stage, self.plan.topology, self.hardware, tokens)
            sent += sum(each.seconds for each in collectives) / reached.communication
        return Step(products_s=products, memory_s=memory, communication_s=sent, overhead_s=reached.step_s + rows * reached.row_s)

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
        plan = self.plan
        return min(plan.tightest.max_concurrency * plan.config.model.max_model_len / context, plan.config.scheduler.max_num_seqs)

    @property
    def _tokens_of_experts(self) -> int:
        """Replicas whose tokens meet at the experts of one device."""
        return self.plan.topology.data if self.plan.topology.is_expert_parallel else 1


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What clients of a workload see, by the roofline. Rates are of all replicas."""

    running: float  # requests at a time on one replica
    is_saturated: bool  # more is asked for than can be computed, or the cache has room for
    requests_per_s: float
    output_tokens_per_s: float
    first_token_s: float
    between_tokens_s: float
    binds: Term


def serve(roofline: Roofline, workload: Workload) -> Served:
    """A steady state: requests come evenly, and each step computes a share of the prompts that have come beside a token of each request."""
    plan = roofline.plan
    most = roofline.most_rows(workload.prompt + workload.output)
    most = max(1.0, most)
    rate = None if workload.rate is None else workload.rate / plan.replicas
    running = most if rate is None else _running(roofline, workload, rate, most)
    between = _between_s(roofline, workload, running)
    done = running / (between * workload.output)
    is_saturated = rate is not None and done < rate * 0.999
    prefill = roofline.prefill_s(workload.prompt, workload.prompt - workload.computed_prompt)
    step = roofline.decode(max(1, round(running)), workload.prompt + workload.output / 2)
    return Served(
        running=running,
        is_saturated=is_saturated,
        requests_per_s=done * plan.replicas,
        output_tokens_per_s=done * workload.output * plan.replicas,
        first_token_s=prefill + step.seconds,
        between_tokens_s=between,
        binds=step.binds,
    )


def _between_s(roofline: Roofline, workload: Workload, running: float) -> float:
    """Seconds between two tokens of a request, when so many run: a step of decoding, and the prompts' share of time beside it."""
    rows = max(1, round(running))
    decode = roofline.decode(rows, workload.prompt + workload.output / 2).seconds
    prefill = roofline.prefill_s(workload.prompt, workload.prompt - workload.computed_prompt)
    return decode + running / workload.output * prefill


def _running(roofline: Roofline, workload: Workload, rate: float, most: float) -> float:
    """How many run at a time when so many come a second: the number at which as many end."""
    low, high = 0.0, most
    for _ in range(40):
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
