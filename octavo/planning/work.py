"""Work: operations and bytes of a step on one device, from the weights that its meta model has and the states that its layers keep."""

import math
from collections.abc import Iterator

import msgspec

from octavo.config.config import Config
from octavo.layers.decoder import CausalLM
from octavo.layers.moe import MoE
from octavo.layers.weight import Weight
from octavo.loading.build import bare
from octavo.planning.ranks import Rank
from octavo.planning.topology import Topology


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Of one device of a pipeline stage. Products in multiply-adds; bytes are of weights as they are stored.

    A layer's experts: of each token's num_chosen, those that this device has, on average over tokens that choose evenly.
    """

    layers: int
    is_last: bool  # of the pipeline's stages
    hidden: int
    vocabulary: int
    dense_products: int  # a token
    dense_bytes: int
    expert_products: int  # of one expert of every layer
    expert_bytes: int
    experts: int  # that this device has of a layer, whole or a slice of each
    num_experts: int  # of a layer of the model
    num_chosen: int
    head_products: int  # a row that samples
    head_bytes: int
    heads: list[tuple[int, int, int]]  # layers alike: (heads x head_dim x layers, bytes of cache a token, window or 0)

    def products(self, tokens: int, rows: int, replicas: int = 1) -> float:
        """Multiply-adds with weights, for a step of so many tokens of which so many rows sample. replicas: that meet at the experts."""
        share = replicas * self.num_chosen * self.experts / self.num_experts if self.num_experts else 0.0
        return tokens * (self.dense_products + share * self.expert_products) + rows * self.head_products

    def weight_bytes(self, tokens: int, rows: int, replicas: int = 1) -> float:
        """Weights that are read: of experts those that at least one token chooses."""
        return self.dense_bytes + self.chosen_experts(tokens * replicas) * self.expert_bytes + (self.head_bytes if rows else 0)

    def chosen_experts(self, tokens: int) -> float:
        """Of this device's experts of a layer, how many at least one of so many tokens chooses, when each chooses evenly and by itself."""
        return self.experts * (1.0 - (1.0 - self.num_chosen / self.num_experts) ** tokens) if self.num_experts else 0.0

    def attention_products(self, tokens: int, context: float) -> float:
        """Multiply-adds of queries with keys and of probabilities with values, when each token sees so many on average."""
        return sum(2.0 * tokens * width * (min(context, window) if window else context) for width, _, window in self.heads)

    def cache_bytes(self, rows: int, context: float) -> float:
        """Cache that is read, once for each row."""
        return sum(rows * size * (min(context, window) if window else context) for _, size, window in self.heads)


def of(config: Config, rank: Rank, topology: Topology) -> Work:
    """The work of the stage that a rank is of."""
    model = bare(config, topology.group())
    stage = range(*rank.layers)
    dense = expert = head = (0, 0)
    for path, weight in _weights(model):
        number = next((int(word) for word in path.split(".") if word.isdecimal()), None)
        size = (sum(weight.rows) * weight.columns, sum(p.numel() * p.dtype.itemsize for p in weight.parameters()))
        if number is None:
            is_table = "embed_tokens" in path and not model.config.tie_word_embeddings
            head = head if is_table or rank.layers[1] != len(model.attention_layers()) else (head[0] + size[0], head[1] + size[1])
        elif number in stage and ".experts." in path:
            expert = (expert[0] + size[0], expert[1] + size[1])
        elif number in stage:
            dense = (dense[0] + size[0], dense[1] + size[1])
    mixtures = [module for module in model.modules() if isinstance(module, MoE)]
    plain = _plain_experts(model, stage)
    expert = (expert[0] + plain[0], expert[1] + plain[1])
    held = mixtures[0].num_held if mixtures else 1
    states = [layer for index, layer in enumerate(model.attention_layers().values()) if index in stage]
    alike: dict[tuple[int, int, int], int] = {}
    for layer in states:
        key = (layer.num_heads * layer.head_dim, layer.spec().bytes_per_token, layer.window)
        alike[key] = alike.get(key, 0) + 1
    return Work(
        layers=len(stage),
        is_last=rank.layers[1] == len(model.attention_layers()),
        vocabulary=config.model.sampled_ids,
        hidden=model.config.hidden_size,
        dense_products=dense[0],
        dense_bytes=dense[1],
        expert_products=expert[0] // held,
        expert_bytes=expert[1] // held,
        experts=held if mixtures else 0,
        num_experts=mixtures[0].num_experts if mixtures else 0,
        num_chosen=mixtures[0].num_chosen if mixtures else 0,
        head_products=head[0],
        head_bytes=head[1],
        heads=[(width * count, size * count, window) for (width, size, window), count in alike.items()],
    )


def _weights(model: CausalLM) -> Iterator[tuple[str, Weight]]:
    for path, module in model.named_modules():
        if isinstance(module, Weight):
            yield path, module


def _plain_experts(model: CausalLM, stage: range) -> tuple[int, int]:
    """Experts that lie in two runs, which are no Weight."""
    numbers = size = 0
    for path, parameter in model.named_parameters():
        if path.endswith((".experts.gate_up", ".experts.down")) and int(path.split(".")[2]) in stage:
            numbers += math.prod(parameter.shape)
            size += parameter.numel() * parameter.dtype.itemsize
    return numbers, size
