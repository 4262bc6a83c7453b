"""Routing of a mixture of experts in one pass over each token's logits."""

import torch

from octavo.ops.cpu import compile, features, pool, vectors
from octavo.ops.moe_route import Facts

_MOST_EXPERTS = 4096


def build(num_experts, top_k, renormalize, lanes):
    """Units are tokens."""
    load, load_part, store = vectors.load("float32", lanes), vectors.load_part("float32", lanes), vectors.store("float32", lanes)
    splat, exp, stack, single = vectors.splat(lanes), vectors.exp, vectors.stack((num_experts + lanes) * 4), vectors.single
    int64s, int32s, floats = vectors.int64s, vectors.int32s, vectors.floats
    zero, used, one = single(0.0), single(-1.0), single(1.0)

    def tokens(begin, end, arguments):
        a = int64s(arguments)
        space = stack()
        shares = floats(space)
        for token in range(begin, end):
            row = a[2] + token * a[3]
            logits = floats(row)
            largest = logits[0]
            for i in range(1, num_experts):
                largest = max(largest, logits[i])
            shift = splat(largest)
            i = 0
            while i + lanes <= num_experts:
                store(space + i * 4, exp(load(row + i * 4) - shift))
                i += lanes
            store(space + i * 4, exp(load_part(row + i * 4, num_experts - i) - shift))
            total = zero
            for i in range(num_experts):
                total += shares[i]
            weights, ids = floats(a[0] + token * top_k * 4), int32s(a[1] + token * top_k * 4)
            chosen = zero
            for place in range(top_k):
                best, share = 0, used
                for i in range(num_experts):
                    if shares[i] > share:
                        best, share = i, shares[i]
                ids[place] = best
                weights[place] = shares[best]
                chosen += shares[best]
                shares[best] = used
            factor = one / (chosen if renormalize else total)
            if total != total:  # a nan was never chosen, but must be seen
                factor = total
            for place in range(top_k):
                weights[place] *= factor

    return tokens


class Implementation:
    """See the reference; a token whose logits hold a nan gets nan weights and ids in range."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._kernel = compile.kernel(build, facts.num_experts, facts.top_k, facts.renormalize, features.lanes())
        self._arguments = pool.Arguments(4)

    @staticmethod
    def refuses(facts: Facts) -> str | None:
        if facts.num_experts > _MOST_EXPERTS:
            return f"{facts.num_experts} experts are more than {_MOST_EXPERTS}"
        return None

    def __call__(self, weights: torch.Tensor, ids: torch.Tensor, logits: torch.Tensor) -> None:
        self._arguments.set(weights.data_ptr(), ids.data_ptr(), logits.data_ptr(), logits.stride(0) * 4)
        self._kernel(logits.shape[0], 16, self._arguments)
