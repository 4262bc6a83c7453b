"""Grammars of the engine core: compiled on threads, once for all requests that ask for the same; the tables are made when first needed."""

import threading
from collections import OrderedDict
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

import numpy as np

from octavo import plugins
from octavo.config.config import Config
from octavo.errors import RequestError
from octavo.grammar.backend import Backend, Matcher
from octavo.grammar.constraint import Constraint, Tables
from octavo.grammar.grammar import FIELD, grammar_of
from octavo.grammar.thinking import Thinking
from octavo.grammar.vocabulary import SpecialTexts, Vocabulary, special_texts
from octavo.logging import get_logger
from octavo.protocol.messages import EngineRequest
from octavo.protocol.sampling_params import StructuredOutputsParams
from octavo.protocol.step import StepMasks
from octavo.scheduler.assembly import Step
from octavo.scheduler.masks import MaskMaker
from octavo.text.tokenizer import Tokenizer

logger = get_logger(__name__)

MOST_KEPT = 256  # compiled grammars
THREADS = 2


class Grammars:
    """Makes constraints, for the scheduler. Only begin(), masks() and wait() are called from the loop."""

    def __init__(self, config: Config, tokenizer: Tokenizer | None = None) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="octavo-grammar")
        self._pending: set[Future[Constraint]] = set()
        self._lock = threading.Lock()
        self._tools: _Tools | None = None
        self._compiled: OrderedDict[bytes, Matcher] = OrderedDict()

    def begin(self, message: EngineRequest, room: int) -> Future[Constraint] | None:
        """The constraint of a request that may gain `room` tokens; None if it asks for none. The future raises RequestError."""
        sampling = message.sampling
        if sampling is None:
            return None
        is_budgeted = sampling.thinking_token_budget is not None and message.reasoning is not None
        if sampling.structured_outputs is None and not is_budgeted:
            return None
        future = self._threads.submit(self._make, message, room)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future

    def masks(self, step: Step) -> StepMasks:
        tools = self._tools
        if tools is None:  # no constraint was ever made
            return StepMasks(step.number)
        return tools.masks.make(step)

    def wait(self, timeout_s: float) -> None:
        """Until some constraint is made, or the time is over."""
        pending = list(self._pending)
        if pending:
            wait(pending, timeout_s, FIRST_COMPLETED)

    def shutdown(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- on the threads

    def _make(self, message: EngineRequest, room: int) -> Constraint:
        sampling = message.sampling
        assert sampling is not None
        tools, asked, config = self._ready_tools(), sampling.structured_outputs, self._config.grammar
        matcher, is_json = (None, False) if asked is None else self._matcher(tools, asked)
        thinking = None
        if message.reasoning is not None and (asked is None or not config.enable_in_reasoning):
            thinking = Thinking(message.reasoning, sampling.thinking_token_budget, tools.tables.tokens, matcher is not None)
        closes = config.close_at_max_tokens and matcher is not None and not message.tells_allowed  # a search sees one token of many
        try:
            made = Constraint(tools.tables, matcher, thinking, is_json=is_json, room=room if closes else None)
        except ValueError as error:
            raise RequestError(f"structured_outputs: {error}", "raise max_tokens", "max_tokens") from None
        for token in _given(message):
            made.accept(token)
        return made

    def _matcher(self, tools: "_Tools", asked: StructuredOutputsParams) -> tuple[Matcher, bool]:
        """One at the beginning, a copy of what was compiled once, and whether it is of one JSON document."""
        grammar = grammar_of(asked, self._config.grammar, tools.specials)
        key = grammar.key
        with self._lock:
            compiled = self._compiled.get(key)
            if compiled is not None:
                self._compiled.move_to_end(key)
                return compiled.copy(), grammar.is_json
        compiled = tools.backend.compile(grammar)
        first = np.zeros(tools.tables.words, np.int32)
        compiled.copy().fill(first)
        if not first.any():
            raise RequestError(f"{FIELD}.{grammar.kind}: no text obeys this grammar in the vocabulary of the model", parameter=FIELD)
        with self._lock:
            self._compiled[key] = compiled
            while len(self._compiled) > MOST_KEPT:
                self._compiled.popitem(last=False)
            return compiled.copy(), grammar.is_json

    def _ready_tools(self) -> "_Tools":
        with self._lock:
            if self._tools is None:
                tokenizer = self._tokenizer or Tokenizer.load(self._config.model.tokenizer_path)
                self._tools = _Tools(vocabulary_of(tokenizer, self._config), self._config.grammar.backend)
            return self._tools


class _Tools:
    """What is made of the vocabulary."""

    def __init__(self, vocabulary: Vocabulary, backend: str) -> None:
        self.backend: Backend = plugins.load("grammar.backends", backend).Backend(vocabulary)
        self.tables = Tables(vocabulary)
        self.specials = SpecialTexts(vocabulary.specials)
        self.masks = MaskMaker(vocabulary.words, self.backend.fill_all)


def vocabulary_of(tokenizer: Tokenizer, config: Config) -> Vocabulary:
    """A tokenizer's tokens as bytes, as many as the model can sample."""
    count = min(config.model.vocab_size, len(tokenizer))
    return Vocabulary(
        tokens=[tokenizer.token_bytes(index) for index in range(count)],
        specials={text: index for text, index in special_texts(tokenizer.added_tokens).items() if index < count},
        eos_token_ids=[token for token in config.model.eos_token_ids if token < count],
        encode=tokenizer.encode_ordinary,
    )


def _given(message: EngineRequest) -> list[int]:
    """The output that the prompt ends with."""
    return list(memoryview(message.token_ids).cast("i")[len(message.token_ids) // 4 - message.num_given :]) if message.num_given else []
