"""StepPlan, StepMasks, StepResult: the three messages in which the control plane and the device plane meet.

A row is a request's stable place in the worker. It is named by (row, epoch): a row number is used again by a later request under
a higher epoch, and whatever arrives under an old epoch is dropped. Everything per row is an int32 column held as bytes
(protocol/columns.py), so that a step of 1,000 rows is encoded and decoded in 0.1 ms.
"""

from typing import Any

import msgspec

from octavo.protocol.pooling_params import PoolingParams
from octavo.protocol.sampling_params import SamplingParams

# token_sources of a StepPlan: where the last token of a row's span comes from; a value >= 0 is the number of the step whose sample of
# this same row it is (unknown when the plan is made, known to the worker when it is run)
STORED = -1  # the worker has every token of the span already (from NewRow, or sampled in an earlier step whose result was confirmed)
VALUE = -2  # the last token of the span is the row's entry in token_values


class MediaReference(msgspec.Struct, array_like=True, frozen=True):
    """Where an encoded image, audio clip or video stands among the row's tokens."""

    hash: str
    kind: str
    offset: int
    count: int


class NewRow(msgspec.Struct, array_like=True):
    """A row that begins (a new request, or one that resumes after preemption), with all that is told only once."""

    row: int
    epoch: int
    request_id: str
    token_ids: bytes  # int32: the prompt and whatever was generated before a preemption
    num_prompt_tokens: int  # the first so many of token_ids are the prompt
    computed: int  # the first so many tokens are in the cache already (a prefix hit)
    # one int32 column a cache group; entry i is the block of tokens i*size .. (i+1)*size, 0 = none; a group of recurrent state has one
    # entry, its live state
    block_tables: list[bytes]
    sampling: SamplingParams | None = None
    pooling: PoolingParams | None = None
    seed: int = 0  # 64 bit; with a position it gives the row's random numbers
    stop_ids: list[int] = []  # suppressed while fewer than min_tokens are generated: end-of-sequence and stop_token_ids
    embeddings: bytes | None = None  # prompt embeddings, [tokens, hidden], instead of token ids
    media: list[MediaReference] = []
    adapter: int = 0  # slot of the LoRA adapter; 0 = none
    adapter_facts: dict[str, Any] | None = None
    connector: bytes | None = None


class GroupChange(msgspec.Struct, array_like=True):
    """What changes in one cache group before the step runs; in the order zeroings, copies, snapshot moves."""

    append_rows: bytes = b""  # indices into StepPlan.rows
    append_counts: bytes = b""
    append_blocks: bytes = b""  # flat: append_counts[i] blocks for append_rows[i], put at the end of its table
    zeroings: bytes = b""  # blocks whose content must be zero before use (recurrent state)
    copy_sources: bytes = b""
    copy_destinations: bytes = b""
    # recurrent groups: copy the row's live state to a snapshot block, or a snapshot to the live state, after (save) or before
    # (restore) the step's tokens of that row
    save_rows: bytes = b""  # indices into StepPlan.rows
    save_blocks: bytes = b""
    restore_rows: bytes = b""
    restore_blocks: bytes = b""


class AdapterLoad(msgspec.Struct, array_like=True, frozen=True):
    slot: int
    name: str
    path: str


class StepPlan(msgspec.Struct, array_like=True):
    """One forward of the batch, as the scheduler decided it. Columns have one entry a row that takes part."""

    step: int
    new_rows: list[NewRow] = []
    ended_rows: bytes = b""  # row numbers whose request ended or was preempted; applied before new_rows
    rows: bytes = b""
    epochs: bytes = b""
    # position of the first token of the row's span; where the token source is a step that verifies drafts and whose result was not known,
    # as if all of them were accepted: the span then really starts where that step's sample stands
    starts: bytes = b""
    counts: bytes = b""  # tokens in the span, drafts included
    samples: bytes = b""  # 1 if the span's last token gets a sample (the row has caught up), else 0
    token_sources: bytes = b""  # STORED, VALUE or a step number
    token_values: bytes = b""
    draft_counts: bytes = b""  # the last so many tokens of the span are drafts to verify ...
    drafts: bytes = b""  # ... flat; -1 = the worker's own proposal of the step before
    groups: list[GroupChange] = []
    media_to_encode: list[MediaReference] = []
    media_to_free: list[str] = []
    adapter_loads: list[AdapterLoad] = []
    common_prefixes: bytes = b""  # one entry a group: the first so many blocks are the same in every row
    padded_rows: int = 0  # run as if there were so many rows (graphs, data parallel lockstep); 0 = no padding
    padded_tokens: int = 0
    awaits_masks: bool = False  # a StepMasks of the same step follows and must be applied before sampling
    connector: bytes | None = None


class StepMasks(msgspec.Struct, array_like=True):
    """What may be sampled in a step whose forward is already running: grammar masks, forced tokens."""

    step: int
    rows: bytes = b""  # row numbers that have a mask
    words: int = 0  # 32-bit words of one mask: ceil(vocabulary / 32)
    masks: bytes = b""  # [rows, words] bits, 1 = allowed, lowest bit first
    forced_rows: bytes = b""  # row numbers whose next token is given
    forced_tokens: bytes = b""


class LogprobColumns(msgspec.Struct, array_like=True):
    """Log-probabilities of some positions, flat. Of each position the first entry is the token that stands there."""

    counts: bytes = b""  # entries of each position
    ids: bytes = b""
    values: bytes = b""  # float32
    ranks: bytes = b""  # rank of each position's own token, 1 = most likely: one entry a position


class PromptLogprobChunk(msgspec.Struct, array_like=True):
    row: int
    epoch: int
    position: int  # of the first token described; the token at position 0 has no log-probability
    logprobs: LogprobColumns


NOT_FINITE = "the model's logits are not finite numbers (nan or infinity)"  # a RowError's message that statistics count


class RowError(msgspec.Struct, array_like=True, frozen=True):
    row: int
    epoch: int
    message: str


class StepTimings(msgspec.Struct, array_like=True):
    """Seconds on the worker's clock."""

    started: float = 0.0
    ended: float = 0.0
    forward_s: float = 0.0
    sample_s: float = 0.0


class StepResult(msgspec.Struct, array_like=True):
    """What one step gave, in the order of the plan's rows."""

    step: int
    rows: bytes = b""
    epochs: bytes = b""
    token_counts: bytes = b""  # tokens gained by each row: 0 for a chunk in the middle, 1, or 1 + accepted drafts
    tokens: bytes = b""  # flat
    logprob_rows: bytes = b""  # indices into rows, one for each position in `logprobs`
    logprobs: LogprobColumns | None = None
    prompt_logprobs: list[PromptLogprobChunk] = []
    draft_counts: bytes = b""  # drafts proposed for the next step, flat in `drafts`
    drafts: bytes = b""
    pooled: list[tuple[int, list[int], bytes]] = []  # index into rows, shape, float32 values
    errors: list[RowError] = []  # rows that failed alone
    finished_sends: list[str] = []
    finished_receives: list[str] = []
    failed_receives: list[str] = []
    invalid_blocks: bytes = b""
    failure: str | None = None  # the whole step failed: nothing of it may be used
    extras: dict[str, bytes] = {}
    timings: StepTimings | None = None
