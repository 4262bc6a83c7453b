"""Work: operations and bytes of a step on one device, from the weights that its meta model has and the states that its layers keep."""

import math

import msgspec
from torch import nn

from octavo.config.config import Config
from octavo.layers.experts import PlainExperts
from octavo.layers.moe import MoE
from octavo.layers.weight import Weight
from octavo.loading.build import bare, build_meta
from octavo.planning.ranks import Rank
from octavo.planning.topology import Topology


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Of one device of a pipeline stage. Products in multiply-adds; bytes are of weights as they lie in memory.

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
    group, stage = topology.group(), range(*rank.layers)
    model, finished = bare(config, group), build_meta(config, "cpu", group).model
    is_last = rank.layers[1] == len(model.attention_layers())
    is_tied = model.config.tie_word_embeddings
    products = dict.fromkeys(("dense", "experts", "head", "none"), 0)
    sizes = dict(products)
    for path, module in model.named_modules():
        products[_use(path, stage, is_last, is_tied)] += _products(module)
    # as it will lie: what is quantized while loading is not read as it is stored
    for path, module in finished.named_modules():
        if isinstance(module, Weight | PlainExperts):
            sizes[_use(path, stage, is_last, is_tied)] += sum(p.numel() * p.dtype.itemsize for p in module.parameters())
    mixtures = [module for module in model.modules() if isinstance(module, MoE)]
    held = mixtures[0].num_held if mixtures else 1
    states = [layer for index, layer in enumerate(model.attention_layers().values()) if index in stage]
    alike: dict[tuple[int, int, int], int] = {}
    for layer in states:
        key = (layer.num_heads * layer.head_dim, layer.spec().bytes_per_token, layer.window)
        alike[key] = alike.get(key, 0) + 1
    return Work(
        layers=len(stage),
        is_last=is_last,
        hidden=model.config.hidden_size,
        vocabulary=config.model.sampled_ids,
        dense_products=products["dense"],
        dense_bytes=sizes["dense"],
        expert_products=products["experts"] // held,
        expert_bytes=sizes["experts"] // held,
        experts=held if mixtures else 0,
        num_experts=mixtures[0].num_experts if mixtures else 0,
        num_chosen=mixtures[0].num_chosen if mixtures else 0,
        head_products=products["head"],
        head_bytes=sizes["head"],
        heads=[(width * count, size * count, window) for (width, size, window), count in alike.items()],
    )


def _use(path: str, stage: range, is_last: bool, is_tied: bool) -> str:
    """What a weight is multiplied with: all tokens, those that chose it, rows that sample; or nothing in this stage."""
    number = next((int(word) for word in path.split(".") if word.isdecimal()), None)
    if number is None:
        is_table = "embed_tokens" in path and not is_tied
        return "head" if is_last and not is_table else "none"
    if number not in stage:
        return "none"
    return "experts" if "experts" in path.split(".") else "dense"


def _products(module: nn.Module) -> int:
    """Multiply-adds of a token with what the module itself holds."""
    if isinstance(module, Weight):
        return sum(module.rows) * module.columns
    if isinstance(module, PlainExperts):
        return sum(math.prod(parameter.shape) for parameter in module.parameters())
    return 0
