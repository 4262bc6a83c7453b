"""attention in bf16 throughout, a coded cache decoded to it: products of pairs by the instruction made for them, sums in float32."""

import torch

from octavo.ops.attention import Facts
from octavo.ops.cpu import attention_paged, features


class Implementation(attention_paged.PagedAttention):
    """Paged attention by dpbf16ps."""

    @staticmethod
    def how(facts: Facts) -> str:
        return "dot"

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        if features.level() != "avx512bf16":
            return "the CPU has no avx512_bf16"
        kept = facts.layout.format
        if facts.dtype != torch.bfloat16 or (kept.is_plain and kept.code != "bfloat16"):
            return f"query in {facts.dtype} and cache in {kept.name} are not both bfloat16"
        return attention_paged.refuses(facts)
