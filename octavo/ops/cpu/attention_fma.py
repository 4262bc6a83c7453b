"""attention by float32 multiply-adds, whatever the CPU: pages in float32, or in bf16 and widened as they are read.

A coded cache is decoded to the query's format.
"""

import torch

from octavo.ops.attention import Facts
from octavo.ops.cpu import attention_paged


class Implementation(attention_paged.PagedAttention):
    """Paged attention by multiply-adds."""

    refuses = staticmethod(attention_paged.refuses)

    @staticmethod
    def how(facts: Facts) -> str:
        kept = facts.layout.format
        dtype = facts.layout.dtype if kept.is_plain else facts.dtype
        return "single" if dtype == torch.float32 else "pairs"
