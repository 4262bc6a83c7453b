"""What to do about a cache that is too small: each remedy names a value that is enough."""

import math

SLACK_BYTES = 32 * 1024**2  # by so much the runtime differs from one start to the next


def raise_utilization(wanted_bytes: int, free_bytes: int, total_bytes: int) -> str:
    """For an instance that needs wanted_bytes in all, on a device of total_bytes of which it can have free_bytes."""
    share = math.ceil((wanted_bytes + SLACK_BYTES) / total_bytes * 100) / 100
    if share > 1:
        return "choose a smaller model or a machine with more memory"
    raised = f"raise --gpu-memory-utilization to at least {share:.2f} (on a CPU it is the share of the machine's memory)"
    if share * total_bytes <= free_bytes:
        return raised
    return f"stop other processes that use the memory and {raised}, or choose a smaller model"


def raise_cache_bytes(cache_bytes: int) -> str:
    return f"raise --kv-cache-memory-bytes to at least {cache_bytes}"


def raise_num_blocks(num_blocks: int) -> str:
    return f"raise --num-gpu-blocks-override to at least {num_blocks}"
