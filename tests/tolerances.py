"""Tolerances: the one table. A test that needs a wider one has found a fault."""

# largest absolute difference of logits, and of op outputs of magnitude about 1, against a float32 reference
ATOL = {"float32": 1e-4, "bfloat16": 5e-2, "float16": 1e-2}
# relative part, for outputs that are much larger than 1
RTOL = {"float32": 1e-4, "bfloat16": 2e-2, "float16": 4e-3}
