"""A scripted engine and a tiny tokenizer: what the front end says of an engine whose every token is known."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from octavo.config.config import Config
from octavo.errors import EngineDeadError
from octavo.protocol.columns import pack, pack_floats, unpack
from octavo.protocol.messages import EngineFacts, EngineOutput, EngineOutputs, EngineRequest, EngineStats, FinishReason, RequestEvent
from octavo.protocol.step import LogprobColumns
from octavo.text.tokenizer import Tokenizer
from tests import configs

TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
SPECIAL = ["<|end|>", "<|start|>"]
MERGES = [("l", "l"), ("ll", "o"), ("h", "e"), ("he", "llo")]
MAX_MODEL_LEN = 256


def write_tokenizer(folder: Path) -> Path:
    """A byte-level BPE tokenizer: every byte is a token, "hello" is one too, emojis are torn."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *("".join(pair) for pair in MERGES)]
    backend = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=MERGES))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": TEMPLATE, "model_max_length": 256}))
    return folder


def make_config(tokenizer: Tokenizer, **changes: Any) -> Config:
    """A configuration for the scripted engine; `changes` are fields of any part."""
    scripted: dict[str, Any] = {
        "name": "scripted",
        "served_names": ["scripted", "other-name"],
        "path": "",
        "tokenizer_path": tokenizer.name_or_path,
        "max_model_len": MAX_MODEL_LEN,
        "vocab_size": len(tokenizer),
        "eos_token_ids": [tokenizer.eos_token_id],
        "skip_tokenizer_init": False,
    }
    return configs.make_config(**{**scripted, **changes})


class Running:
    """One request in the scripted engine."""

    def __init__(self, request: EngineRequest, script: Sequence[int]) -> None:
        self.request = request
        self.script = script
        self.made: list[int] = []


class ScriptedEngine:
    """Answers each request with the tokens that `script` gives for it, `per_step` at a time, then with the end token for ever."""

    def __init__(self, tokenizer: Tokenizer, script: Callable[[EngineRequest], str | Sequence[int]] | str, per_step: int = 1) -> None:
        self.tokenizer = tokenizer
        self.script = script
        self.per_step = per_step
        self.running: dict[str, Running] = {}
        self.added: list[EngineRequest] = []
        self.aborted: list[str] = []
        self.fails: dict[str, str] = {}  # prefix of a request's id -> error
        self.refusal: str | None = None  # why no request is let in
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def facts(self, config: Config) -> EngineFacts:
        return EngineFacts(
            max_model_len=config.model.max_model_len,
            block_size=config.cache.block_size,
            num_blocks=64,
            cache_tokens=1024,
            max_concurrency=4.0,
            cache_bytes=1 << 20,
            weights_bytes=1 << 20,
            arena_bytes=0,
            runtime_bytes=0,
            core_pid=0,
        )

    def add(self, request: EngineRequest) -> None:
        self.added.append(request)
        answer = self.script(request) if callable(self.script) else self.script
        ids = self.tokenizer.encode(answer, add_special_tokens=False) if isinstance(answer, str) else answer
        self.running[request.request_id] = Running(request, ids)

    def abort(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            self.aborted.append(request_id)
            self.running.pop(request_id, None)

    def step(self) -> EngineOutputs:
        """Some tokens for each running request."""
        outputs = [self._advance(each) for each in list(self.running.values())]
        for output in outputs:
            if output.finish_reason is not None:
                del self.running[output.request_id]
        stats = EngineStats(
            num_running=len(self.running), generation_tokens=sum(len(o.token_ids) for o in outputs), step_tokens=[len(outputs)]
        )
        return EngineOutputs(outputs=outputs, stats=stats, time_s=time.monotonic())

    def _advance(self, each: Running) -> EngineOutput:
        request, sampling = each.request, each.request.sampling
        assert sampling is not None
        assert sampling.max_tokens is not None
        if (refusal := self.refusal) is not None:
            return EngineOutput(request.request_id, finish_reason=FinishReason.ERROR, error=refusal)
        if error := next((e for name, e in self.fails.items() if request.request_id.startswith(name)), None):
            events = [RequestEvent("queued", time.monotonic())]
            return EngineOutput(request.request_id, finish_reason=FinishReason.ERROR, error=error, events=events)
        is_first = not each.made
        output = EngineOutput(request.request_id)
        end = self.tokenizer.eos_token_id
        if sampling.max_tokens == 0:
            output.finish_reason = FinishReason.LENGTH
        for _ in range(self.per_step if sampling.max_tokens else 0):
            token = each.script[len(each.made)] if len(each.made) < len(each.script) else end
            each.made.append(token)
            output.token_ids.append(token)
            if token in request.eos_token_ids:
                output.finish_reason = FinishReason.STOP
            elif token in (sampling.stop_token_ids or []):
                output.finish_reason, output.stop_reason = FinishReason.STOP, token
            elif len(each.made) >= sampling.max_tokens:
                output.finish_reason = FinishReason.LENGTH
            if output.finish_reason is not None:
                break
        if sampling.logprobs is not None:
            output.logprobs = self.logprobs(output.token_ids, sampling.logprobs)
        if is_first:
            output.num_cached_tokens = 0
            output.events = [RequestEvent("queued", time.monotonic()), RequestEvent("scheduled", time.monotonic())]
            if sampling.prompt_logprobs is not None:
                prompt = unpack(request.token_ids).tolist()
                half = 1 + len(prompt) // 2  # in two chunks, as a chunked prompt gives them
                for start, part in ((1, prompt[1:half]), (half, prompt[half:])):
                    if part:
                        output.prompt_logprobs.append((start, self.logprobs(part, sampling.prompt_logprobs)))
        return output

    def logprobs(self, tokens: Sequence[int], count: int) -> LogprobColumns:
        """The token itself at -0.5 and rank 1, then its neighbours in the vocabulary at -1.5, -2.5, ..."""
        counts, ids, values = [], [], []
        count = len(self.tokenizer) if count == -1 else count
        for token in tokens:
            entries = [token, *([token] if count else []), *((token + k) % len(self.tokenizer) for k in range(1, count))]
            counts.append(len(entries))
            ids += entries
            values += [-0.5, *(-0.5 - k for k in range(len(entries) - 1))]
        return LogprobColumns(pack(counts), pack(ids), pack_floats(values), pack([1] * len(counts)))


class ScriptedClient:
    """The blocking client of a scripted engine."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine = engine
        self.is_alive = True
        self.is_shut_down = False
        self.before_step: Callable[[], None] | None = None

    def start(self, config: Config) -> EngineFacts:
        return self.engine.facts(config)

    def add(self, request: EngineRequest) -> None:
        self.engine.add(request)

    def abort(self, request_ids: list[str]) -> None:
        self.engine.abort(request_ids)

    def outputs(self, timeout_s: float | None = None) -> EngineOutputs | None:
        if self.before_step is not None:
            self.before_step()
        assert self.engine.running, "nothing runs, and somebody waits for outputs"
        return self.engine.step()

    def outputs_until_now(self) -> list[EngineOutputs]:
        return []

    def call(self, method: str, *arguments: Any) -> Any:
        self.engine.calls.append((method, arguments))
        return True

    def shutdown(self) -> None:
        self.is_shut_down = True
        self.is_alive = False


class AsyncScriptedClient:
    """The same for an event loop. `gate` can hold the engine back; `kill` is its death."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine = engine
        self.gate = asyncio.Event()
        self.gate.set()
        self.steps: int | None = None  # so many more steps, then the gate closes
        self.is_shut_down = False
        self._news = asyncio.Event()
        self._death: EngineDeadError | None = None

    async def start(self, config: Config) -> EngineFacts:
        return self.engine.facts(config)

    async def add(self, request: EngineRequest) -> None:
        if self._death is not None:
            raise self._death
        self.engine.add(request)
        self._news.set()

    async def abort(self, request_ids: list[str]) -> None:
        self.engine.abort(request_ids)

    async def outputs(self) -> EngineOutputs:
        while True:
            await self.gate.wait()
            if self._death is not None:
                raise self._death
            if self.engine.running:
                break
            self._news.clear()
            await self._news.wait()
        if self.steps is not None:
            self.steps -= 1
            if self.steps <= 0:
                self.gate.clear()
        await asyncio.sleep(0)
        return self.engine.step()

    def allow(self, steps: int) -> None:
        self.steps = steps
        self.gate.set()

    def kill(self) -> None:
        self._death = EngineDeadError("the engine core process was killed by signal 9")
        self.gate.set()
        self._news.set()

    async def call(self, method: str, *arguments: Any) -> Any:
        self.engine.calls.append((method, arguments))
        return True

    async def shutdown(self) -> None:
        self.is_shut_down = True
