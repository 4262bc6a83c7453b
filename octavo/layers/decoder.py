"""A plain decoder: embedding, layers of attention and feed-forward around one residual, norm, head. Variants replace a layer's parts.

Each sublayer ends by adding to the residual and norming the sum for the next one, so that a layer is entered with its input already normed:
the last thing a layer does is its successor's first norm.
"""

from typing import Any, ClassVar

import torch
from torch import nn

from octavo.attention.batch import Batch
from octavo.checkpoint.names import Row, Skip
from octavo.config.schema import DecoderConfig
from octavo.device.arena import Arena
from octavo.layers.attention import Attention, SelfAttention
from octavo.layers.embedding import Embedding, Head
from octavo.layers.mlp import GatedMLP
from octavo.layers.norm import RMSNorm
from octavo.layers.rope import Rope, Ropes

# other names of the scales of the cache, by those who calibrate them; what is calibrated beside them is of no use here
CACHE_SCALES: tuple[Row | Skip, ...] = (
    *(
        Row(f"model.layers.{{i}}.self_attn.{part}_proj.{name}", f"model.layers.{{i}}.self_attn.{part}_scale")
        for part in ("k", "v")
        for name in (f"{part}_scale", "output_scale")
    ),
    *(
        Skip(f"model.layers.{{i}}.self_attn.{name}", "queries and probabilities stay in the model's format")
        for name in ("q_scale", "prob_scale", "q_proj.q_scale", "q_proj.output_scale")
    ),
)


class DecoderLayer(nn.Module):
    """Attention and feed-forward, each before a norm. A variant overrides `make_*` or, where its order differs, forward."""

    def __init__(self, config: Any, index: int, rope: Rope) -> None:
        super().__init__()
        self.self_attn = self.make_attention(config, index, rope)
        self.input_layernorm = self.make_norm(config)
        self.post_attention_layernorm = self.make_norm(config)
        self.add_feed_forward(config)

    def make_attention(self, config: Any, index: int, rope: Rope) -> SelfAttention:
        return SelfAttention(config, rope, config.windows[index])

    def make_norm(self, config: Any) -> RMSNorm:
        return RMSNorm(config.hidden_size, config.rms_norm_eps)

    def add_feed_forward(self, config: Any) -> None:
        self.mlp = GatedMLP(config.hidden_size, config.intermediate_size, config.hidden_act)

    def feed_forward(self, x: torch.Tensor, arena: Arena) -> None:
        """x [tokens, hidden] is replaced by the feed-forward's output."""
        self.mlp(x, x, arena)

    def forward(self, x: torch.Tensor, residual: torch.Tensor, next_norm: RMSNorm, batch: Batch, arena: Arena) -> None:
        """x [tokens, hidden], normed for this layer, becomes the input of the one behind it; residual takes what this layer adds."""
        self.self_attn(x, x, batch, arena)
        self.post_attention_layernorm.add(x, residual, x)
        self.feed_forward(x, arena)
        next_norm.add(x, residual, x)


class Decoder(nn.Module):
    """What checkpoints call `model`: everything but the head."""

    def __init__(self, config: Any, layer_class: type[DecoderLayer]) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, is_head=config.tie_word_embeddings)
        self.ropes = Ropes(config.ropes, config.max_length)
        layers = tuple(layer_class(config, index, self.ropes.of(rope)) for index, rope in enumerate(config.ropes))
        self.layers = nn.ModuleList(layers)
        self.in_order = layers  # the same once more, under their own type
        self.norm = layers[0].make_norm(config)

    def forward(self, batch: Batch, arena: Arena) -> torch.Tensor:
        x = arena.empty(batch.num_tokens, self.embed_tokens.size, dtype=self.embed_tokens.dtype)
        residual = arena.empty(batch.num_tokens, self.embed_tokens.size, dtype=self.embed_tokens.dtype)
        self.embed_tokens(residual, batch.tokens)
        norms = [layer.input_layernorm for layer in self.in_order]
        norms[0](x, residual)
        for layer, next_norm in zip(self.in_order, [*norms[1:], self.norm], strict=True):
            layer(x, residual, next_norm, batch, arena)
        return x


class CausalLM(nn.Module):
    """A decoder and its head. A model file sets `layer_class` and, where the disk has other names, `names`."""

    layer_class: ClassVar[type[DecoderLayer]] = DecoderLayer

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.names: tuple[Row | Skip, ...] = CACHE_SCALES
        self.model = Decoder(config, self.layer_class)
        if config.tie_word_embeddings:
            self.names += (Skip("lm_head.weight", "the head is the embedding", same_as="model.embed_tokens.weight"),)
        else:
            self.lm_head = Head(config.vocab_size, config.hidden_size)

    def forward(self, batch: Batch, arena: Arena) -> torch.Tensor:
        """The hidden state of each token behind the last norm, [tokens, hidden], in the arena until the caller's scope ends."""
        planned: set[int] = set()
        for attention in self.attention_layers().values():
            if attention.group not in planned:
                planned.add(attention.group)
                attention.plan(batch, arena)
        hidden: torch.Tensor = self.model(batch, arena)
        return hidden

    def logits(self, hidden: torch.Tensor, token_indices: torch.Tensor | None, arena: Arena) -> torch.Tensor:
        """float32 [n, vocab] of the tokens of the batch that token_indices (int32 [n]) names, or of all, in the arena."""
        n = hidden.shape[0] if token_indices is None else token_indices.shape[0]
        out = arena.empty(n, self.config.vocab_size, dtype=torch.float32)
        head = self.model.embed_tokens.head if self.config.tie_word_embeddings else self.lm_head
        if token_indices is None:
            head(out, hidden)
            return out
        with arena.scope():
            rows = arena.empty(n, hidden.shape[1], dtype=hidden.dtype)
            if not hidden.is_meta:  # there torch would load sympy for it, and keep 34 MiB
                torch.index_select(hidden, 0, token_indices, out=rows)
            head(out, rows)
        return out

    def attention_layers(self) -> dict[str, Attention]:
        """Every layer that keeps state, under its name."""
        return {f"model.layers.{index}.self_attn": layer.self_attn.attention for index, layer in enumerate(self.model.in_order)}
