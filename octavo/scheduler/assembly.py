"""Assembly: the grants of a step as they are made, and then as the columns of a StepPlan."""

from array import array
from collections.abc import Sequence

from octavo.kvcache.cache import Written
from octavo.protocol.step import STORED, GroupChange, NewRow, StepPlan
from octavo.scheduler.request import Request

OWN_PROPOSAL = -1  # a draft that only the worker knows


def pack(values: list[int]) -> bytes:
    """An int32 column; for lists twice as fast as numpy."""
    return array("i", values).tobytes()


class Changes:
    """What changes in one cache group, as lists."""

    __slots__ = ("append_blocks", "append_counts", "append_rows", "restore_blocks", "restore_rows", "save_blocks", "save_rows", "zeroings")

    def __init__(self) -> None:
        self.append_rows: list[int] = []
        self.append_counts: list[int] = []
        self.append_blocks: list[int] = []
        self.zeroings: list[int] = []
        self.save_rows: list[int] = []
        self.save_blocks: list[int] = []
        self.restore_rows: list[int] = []
        self.restore_blocks: list[int] = []

    def packed(self) -> GroupChange:
        return GroupChange(**{name: pack(values) for name in self.__slots__ if (values := getattr(self, name))})


class Step:
    """One step: the lists that become columns, and afterwards what is remembered of it until its result comes.

    serial: counts all steps. number: what the worker is told, which fits in an int32.
    written: of each request (by epoch) the blocks that this step makes findable.
    """

    def __init__(self, serial: int, number: int, num_groups: int) -> None:
        self.serial = serial
        self.number = number
        self.requests: list[Request] = []
        self.epochs: list[int] = []
        self.counts: list[int] = []
        self.samples: list[int] = []
        self.draft_counts: list[int] = []
        self.has_preempted = False
        self.written: list[tuple[int, list[Written]]] = []
        self.row_column = self.epoch_column = b""
        self._rows: list[int] = []
        self._starts: list[int] = []
        self._sources: list[int] = []
        self._drafts: list[int] = []
        self._new_rows: list[NewRow] = []
        self._groups = [Changes() for _ in range(num_groups)]

    def add(self, request: Request, position: int, granted: int, old_columns: int, growing: Sequence[int]) -> None:
        """Count a grant, from `position` on, as planned.

        old_columns: of the request's tables before it was taken, negative for a new row; growing: groups with a block a column.
        """
        total = request.known + request.pending
        end = position + granted
        index = len(self._rows)
        drafts = end - total if end > total else 0
        is_sample = end >= total and not request.only_reads
        self.requests.append(request)
        self._rows.append(request.row)
        self.epochs.append(request.epoch)
        self._starts.append(position)
        self.counts.append(granted)
        self.samples.append(is_sample)
        self._sources.append(request.sampled_step if is_sample and request.pending else STORED)
        self.draft_counts.append(drafts)
        if drafts:
            self._drafts += request.proposals[:drafts] or [OWN_PROPOSAL] * drafts
        tables = request.tables
        if tables.columns > old_columns >= 0:
            for group in growing:
                change = self._groups[group]
                change.append_rows.append(index)
                change.append_counts.append(tables.columns - old_columns)
                change.append_blocks += tables.blocks[group][old_columns:]
        if tables.saves or tables.restores or tables.zeroings:
            self._move_states(request, index)
        request.planned = end
        request.outstanding += 1
        if is_sample:
            request.pending += 1 + drafts
            request.sampled_step = self.number
        if request.proposals:
            request.proposals = []

    def add_row(self, request: Request, computed: int) -> None:
        """Tell the worker all about a request that begins or resumes; after its grant was taken."""
        message, sampling = request.message, request.sampling
        self._new_rows.append(
            NewRow(
                row=request.row,
                epoch=request.epoch,
                request_id=request.id,
                token_ids=request.tokens.tobytes(),
                num_prompt_tokens=request.num_prompt,
                computed=computed,
                block_tables=[pack(blocks) for blocks in request.tables.blocks],
                sampling=sampling,
                pooling=message.pooling,
                seed=message.seed,
                stop_ids=[*message.eos_token_ids, *(sampling.stop_token_ids or ())],
            )
        )

    def plan(self, ended_rows: list[int]) -> StepPlan:
        self.row_column, self.epoch_column = pack(self._rows), pack(self.epochs)
        return StepPlan(
            step=self.number,
            new_rows=self._new_rows,
            ended_rows=pack(ended_rows),
            rows=self.row_column,
            epochs=self.epoch_column,
            starts=pack(self._starts),
            counts=pack(self.counts),
            samples=pack(self.samples),
            token_sources=pack(self._sources),
            token_values=bytes(4 * len(self._rows)),
            draft_counts=pack(self.draft_counts),
            drafts=pack(self._drafts),
            groups=[change.packed() for change in self._groups],
            common_prefixes=bytes(4 * len(self._groups)),
        )

    def _move_states(self, request: Request, index: int) -> None:
        tables = request.tables
        for group, block in tables.zeroings:
            self._groups[group].zeroings.append(block)
        for group, block in tables.restores:
            self._groups[group].restore_rows.append(index)
            self._groups[group].restore_blocks.append(block)
        for group, block in tables.saves:
            self._groups[group].save_rows.append(index)
            self._groups[group].save_blocks.append(block)
        tables.zeroings, tables.restores, tables.saves = [], [], []
