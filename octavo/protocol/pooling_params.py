"""PoolingParams: how hidden states become an embedding, a class or a score."""

from typing import Any

import msgspec


class PoolingParams(msgspec.Struct, omit_defaults=True):
    """Parameters of a pooling request. The worker of a generating model refuses them by name."""

    task: str | None = None
    use_activation: bool | None = None
    dimensions: int | None = None
    step_tag_id: int | None = None
    returned_token_ids: list[int] | None = None
    skip_reading_prefix_cache: bool | None = None
    extra_kwargs: dict[str, Any] | None = None
