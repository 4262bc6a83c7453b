"""Tokenizer: text to token ids and back, for one model. Safe to use from several threads.

Text that spells a special token is that token in `encode`, as in other tokenizers, and stays text in `encode_ordinary` and, where it came
from a message, in `encode_rendered`.
"""

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from octavo.errors import RequestError
from octavo.text import chat_template as templates
from octavo.text import code_renderer, folder_tokenizer, gguf_tokenizer, tekken_tokenizer
from octavo.text.pieces import Spelling, spelling_of
from octavo.text.rendered import STAND_IN, Controls, Rendered
from octavo.text.source import TokenizerSource

LONG_TEXT = 8_192  # characters


class Tokenizer:
    """A `tokenizers` tokenizer, with the names of its special tokens and its chat template.

    renderer: the file in octavo/text/renderers that makes prompts of conversations in the template's stead.
    """

    def __init__(self, source: TokenizerSource, name_or_path: str = "", renderer: str | None = None) -> None:
        self.backend = source.backend
        self.name_or_path = name_or_path
        self.chat_template = source.chat_template
        self.special_tokens_map = dict(source.special)
        self.extra_special_tokens = list(source.extra_special)
        self.renderer = renderer
        self.format = source.format
        self.spelling: Spelling | None = spelling_of(self.backend)
        self._bytes: dict[int, bytes] = {}
        self._guarded: Backend | None = None
        self._lock = threading.Lock()

    @classmethod
    def load(cls, path: str | Path, renderer: str | None = None) -> "Tokenizer":
        """The tokenizer of a folder or of a .gguf file. Raises CheckpointError or UnsupportedModelError."""
        if Path(path).is_file():
            source = gguf_tokenizer.read(path)
        elif renderer == "mistral":
            source = tekken_tokenizer.read(path)
        else:
            source = folder_tokenizer.read(path)
        return cls(source, str(path), renderer)

    @classmethod
    def from_folder(cls, path: str | Path) -> "Tokenizer":
        """The tokenizer of a folder, in whichever of the two forms it is there; tokenizer.json before tekken.json."""
        is_tekken = tekken_tokenizer.is_only_form(path)
        return cls.load(path, "mistral" if is_tekken else None)

    @classmethod
    def from_gguf(cls, path: str | Path) -> "Tokenizer":
        return cls(gguf_tokenizer.read(path), str(path))

    # ids and tokens

    @cached_property
    def vocab_size(self) -> int:
        """Tokens without the added ones; the model's own vocabulary may be larger than all of them."""
        return self.backend.get_vocab_size(with_added_tokens=False)

    @cached_property
    def _size(self) -> int:
        return max(self.get_vocab().values(), default=-1) + 1

    def __len__(self) -> int:
        """Highest token id + 1."""
        return self._size

    def get_vocab(self) -> dict[str, int]:
        vocabulary: dict[str, int] = self.backend.get_vocab(with_added_tokens=True)
        return vocabulary

    @cached_property
    def special_ids(self) -> frozenset[int]:
        return frozenset(index for index, token in self.backend.get_added_tokens_decoder().items() if token.special)

    @cached_property
    def added_ids(self) -> frozenset[int]:
        """Tokens beside the vocabulary proper: the special ones, and others that a text is cut at."""
        return frozenset(self.backend.get_added_tokens_decoder())

    @property
    def added_tokens(self) -> dict[int, tuple[str, bool]]:
        """The tokens that stand beside the vocabulary proper: id -> text, and whether it is special."""
        return {index: (token.content, token.special) for index, token in self.backend.get_added_tokens_decoder().items()}

    @property
    def all_special_ids(self) -> list[int]:
        return sorted(self.special_ids)

    @property
    def all_special_tokens(self) -> list[str]:
        return [self.backend.id_to_token(index) or "" for index in self.all_special_ids]

    def is_special(self, token_id: int) -> bool:
        return token_id in self.special_ids

    def _named(self, name: str) -> str | None:
        return self.special_tokens_map.get(name)

    def _named_id(self, name: str) -> int | None:
        text = self._named(name)
        return None if text is None else self.token_to_id(text)

    bos_token = property(lambda self: self._named("bos_token"))
    eos_token = property(lambda self: self._named("eos_token"))
    pad_token = property(lambda self: self._named("pad_token"))
    unk_token = property(lambda self: self._named("unk_token"))
    bos_token_id = property(lambda self: self._named_id("bos_token"))
    eos_token_id = property(lambda self: self._named_id("eos_token"))
    pad_token_id = property(lambda self: self._named_id("pad_token"))
    unk_token_id = property(lambda self: self._named_id("unk_token"))

    @cached_property
    def adds_bos(self) -> bool:
        """Whether `encode` puts bos first."""
        return self.bos_token_id is not None and self.encode("a")[:1] == [self.bos_token_id]

    def id_to_token(self, token_id: int) -> str | None:
        """The token as the vocabulary spells it; None outside the vocabulary."""
        token: str | None = self.backend.id_to_token(token_id) if 0 <= token_id < 2**32 else None
        return token

    def token_to_id(self, token: str) -> int | None:
        index: int | None = self.backend.token_to_id(token)
        return index

    def convert_ids_to_tokens(self, ids: int | Sequence[int], skip_special_tokens: bool = False) -> Any:
        """One token for an int, a list for a sequence; None outside the vocabulary."""
        if isinstance(ids, int):
            return self.id_to_token(ids)
        return [self.id_to_token(int(index)) for index in ids if not (skip_special_tokens and index in self.special_ids)]

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """One id for a string, a list for a sequence; the unknown token's id (or None) for what is no token."""
        if isinstance(tokens, str):
            index = self.token_to_id(tokens)
            return self.unk_token_id if index is None else index
        return [self.convert_tokens_to_ids(token) for token in tokens]

    # text to ids

    def encode(self, text: str, add_special_tokens: bool = True, *, truncate: int | None = None) -> list[int]:
        """Token ids of a text. truncate: keep only the last so many."""
        ids = _ids(self.backend, text, add_special_tokens)
        return ids[-truncate:] if truncate else ids

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        return [encoding.ids for encoding in self.backend.encode_batch(list(texts), add_special_tokens=add_special_tokens)]

    def encode_ordinary(self, text: str) -> list[int]:
        """Token ids of a text in which nothing is special: "<|im_end|>" is ten characters."""
        ids = self.encode(text, add_special_tokens=False)
        return ids if self.special_ids.isdisjoint(ids) else _ids(self._guard(), text)

    def encode_rendered(self, rendered: Rendered) -> list[int]:
        """Token ids of a rendered chat: the template's own special tokens are special, those that came with a message are text."""
        pieces = rendered.pieces
        return self._encode_piece(rendered) if len(pieces) == 1 else [index for piece in pieces for index in self._encode_piece(piece)]

    def _encode_piece(self, rendered: Rendered) -> list[int]:
        if not rendered.is_marked:
            return self.encode(rendered.text, add_special_tokens=False)
        guarded = rendered.with_control(lambda match: f"{STAND_IN}{match[0]}{STAND_IN}")
        return _ids(self._guard(), guarded)

    @cached_property
    def controls(self) -> Controls:
        """The texts of the special tokens."""
        return Controls(self.all_special_tokens)

    def _guard(self) -> Backend:
        """A copy in which every special token answers only to its text between two noncharacters. Made when first needed."""
        with self._lock:
            if self._guarded is None:
                self._guarded = Backend.from_str(_renamed(self.backend.to_str()))
            return self._guarded

    def encode_bad_words(self, words: Iterable[str]) -> list[list[int]]:
        """The token sequences to keep from being completed: each word as it stands, and as it stands after a space.

        Raises RequestError for a word that is no token at all.
        """
        sequences: list[list[int]] = []
        for word in words:
            plain, spaced = self.encode_ordinary(word), self.encode_ordinary(f" {word.lstrip(' ')}")
            if not plain:
                raise RequestError(f"bad_words: {word!r} is no token of this model", "leave it away", "bad_words")
            bare = self.encode_ordinary(f"\n{word}")[len(self.encode_ordinary("\n")) :]  # without the space that begins a text
            sequences.extend(ids for ids in (plain, spaced, bare) if ids and ids not in sequences)
        return sequences

    # ids to text

    def decode(self, ids: int | Sequence[int], skip_special_tokens: bool = False, spaces_between_special_tokens: bool = True) -> str:
        """The text of token ids. What is outside the vocabulary has none."""
        ids = [ids] if isinstance(ids, int) else [int(index) for index in ids]
        if skip_special_tokens:
            ids = [index for index in ids if index not in self.special_ids]
        if self.spelling is not None:
            text = b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")
            return text.removeprefix(" ") if self.spelling.strips_first_space else text
        ids = [index for index in ids if self.id_to_token(index) is not None]
        if skip_special_tokens or spaces_between_special_tokens:
            return str(self.backend.decode(ids, skip_special_tokens=False))
        return " ".join(self._runs(ids))

    def _runs(self, ids: list[int]) -> Iterable[str]:
        """Special tokens side by side joined without a space, and the text between them."""
        start = 0
        for end in range(1, len(ids) + 1):
            if end == len(ids) or (ids[end] in self.special_ids) != (ids[start] in self.special_ids):
                run, start = ids[start:end], end
                special = run[0] in self.special_ids
                yield "".join(self.convert_ids_to_tokens(run)) if special else self.backend.decode(run, skip_special_tokens=False)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token's text; empty outside the vocabulary."""
        data = self._bytes.get(token_id)
        if data is None:
            token = self.id_to_token(token_id)
            if token is None:
                data = b""
            elif self.spelling is not None:
                data = self.spelling.bytes_of(token)
            else:
                data = self.backend.decode([token_id], skip_special_tokens=False).encode("utf-8")
            self._bytes[token_id] = data
        return data

    def token_text(self, token_id: int) -> str:
        """The text of one token alone; torn bytes are U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    # chat

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tokenize: bool = True,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        content_format: str = "auto",
        trust_special_tokens_in_content: bool = False,
        **variables: Any,
    ) -> list[int] | str:
        """A conversation as the model reads it: token ids, or text if not `tokenize`. Raises RequestError."""
        rendered = self.render_chat(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            documents=documents,
            chat_template=chat_template,
            content_format=content_format,
            trust_special_tokens_in_content=trust_special_tokens_in_content,
            variables=variables,
        )
        return self.encode_rendered(rendered) if tokenize else rendered.text

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        content_format: str = "auto",
        trust_special_tokens_in_content: bool = False,
        variables: Mapping[str, Any] | None = None,
        tool_choice: Any = None,
        response_format: Any = None,
    ) -> Rendered:
        """A conversation rendered by `chat_template`, else by the tokenizer's own renderer or template. Raises RequestError.

        `variables` go to the template. tool_choice, response_format: as the request has them, for formats that tell the model.
        """
        given: dict[str, Any] = {
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
            "tools": tools,
            "documents": documents,
            "variables": variables,
            "controls": None if trust_special_tokens_in_content else self.controls,
        }
        if self.renderer is not None and chat_template is None:
            given |= {"tool_choice": tool_choice, "response_format": response_format, "format_facts": self.format}
            return code_renderer.render(self.renderer, messages, **given)
        source = templates.select(chat_template or self.chat_template, wants_tools=bool(tools), wants_documents=bool(documents))
        template = templates.compile_template(source)
        return template.render(messages, content_format=content_format, special_tokens=self.special_tokens_map, **given)

    def __call__(self, text: str | Sequence[str], add_special_tokens: bool = True) -> dict[str, Any]:
        """{"input_ids": ..., "attention_mask": ...} of a text, or of several."""
        if isinstance(text, str):
            ids = self.encode(text, add_special_tokens)
            return {"input_ids": ids, "attention_mask": [1] * len(ids)}
        batch = self.encode_batch(text, add_special_tokens)
        return {"input_ids": batch, "attention_mask": [[1] * len(ids) for ids in batch]}


def _ids(backend: Backend, text: str, add_special_tokens: bool = False) -> list[int]:
    """Token ids. Only the call for many texts lets other threads run meanwhile, which a long one takes seconds of."""
    if len(text) <= LONG_TEXT:
        ids: list[int] = backend.encode(text, add_special_tokens=add_special_tokens).ids
    else:
        ids = backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
    return ids


def _renamed(state: str) -> str:
    """A tokenizer's JSON in which each special token bears its text between two stand-ins, under its old id."""
    tokenizer = json.loads(state)
    names = {}
    for token in tokenizer["added_tokens"]:
        if token["special"]:
            names[token["content"]] = token["content"] = f"{STAND_IN}{token['content']}{STAND_IN}"
            token["normalized"] = False
    model = tokenizer["model"]
    if "merges" in model:
        model["merges"] = [merge for merge in model["merges"] if names.keys().isdisjoint((*_parts(merge), "".join(_parts(merge))))]
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(token, token): index for token, index in vocabulary.items()}
    elif isinstance(vocabulary, list):
        model["vocab"] = [[names.get(token, token), score] for token, score in vocabulary]
    if (unknown := model.get("unk_token")) in names:
        model["unk_token"] = names[unknown]
    tokenizer["post_processor"] = None
    return json.dumps(tokenizer, ensure_ascii=False)


def _parts(merge: str | list[str]) -> list[str]:
    return merge.split(" ") if isinstance(merge, str) else merge
