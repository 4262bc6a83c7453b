"""Pre-tokenizers: where byte-level BPE may not merge, by the name that a GGUF file gives under tokenizer.ggml.pre.

Each is a list of patterns (Oniguruma syntax), applied one after another: a match is a piece of its own, and so is what lies between
matches. Source of the patterns: the tokenizer.json of the models that the names stand for; where that one is built of other parts
(digits apart, punctuation apart), the same rule as a pattern.
"""

from dataclasses import dataclass

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_ASCII_MARK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _words(digits: str, *, letter: str = r"\p{L}", mark: str = r"[^\s\p{L}\p{N}]", after: str = r"[\r\n]*") -> str:
    """The pattern of cl100k and its descendants: contractions, words with one leading mark, digits, marks, spaces."""
    return rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?{letter}+|{digits}| ?{mark}+{after}|{_SPACES}"


def _cased(digits: str, ending: str, *, exclude: str = "", after: str = r"[\r\n/]*") -> str:
    """The pattern of o200k and its descendants: a word also ends where lower case turns into upper case."""
    upper, lower = f"[{_UPPER}{exclude}]", f"[{_LOWER}{exclude}]"
    lead = r"[^\r\n\p{L}\p{N}]?"
    return rf"{lead}{upper}*{lower}+{ending}|{lead}{upper}+{lower}*{ending}|{digits}| ?[^\s\p{{L}}\p{{N}}]+{after}|{_SPACES}"


_LLAMA3 = _words(r"\p{N}{1,3}")
_QWEN2 = _words(r"\p{N}")
_GPT4O = _cased(r"\p{N}{1,3}", f"{_CONTRACTION}?")
_DEEPSEEK3 = rf"{_ASCII_MARK}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
_NOT_HAN = r"&&[^\p{Han}]"
_DEEPSEEK_LETTERS = (
    r"A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹ"
    r"ℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_DIGITS_APART = (r"\p{N}", _GPT2)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """patterns: in the order they are applied. ignore_merges: a piece that is a token as a whole is that token. adds_bos: unless the
    file says otherwise. nfc: text is composed (Unicode NFC) first."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    adds_bos: bool = False
    nfc: bool = False


_DEFAULT = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))

_ROWS: dict[str, PreTokenizer] = {
    "default": _DEFAULT,
    "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert exaone4 mpt olmo jais": (PreTokenizer((_GPT2,))),
    "trillion granite-docling": PreTokenizer((_GPT2,)),
    "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2": PreTokenizer(_DIGITS_APART),
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2": PreTokenizer((_LLAMA3,), ignore_merges=True, adds_bos=True),
    "dbrx smaug-bpe chatglm-bpe": PreTokenizer((_LLAMA3,)),
    "glm4 glm5": PreTokenizer((_LLAMA3,), ignore_merges=True),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez": PreTokenizer((_QWEN2,), nfc=True),
    "stablelm2 hunyuan solar-open grok-2": PreTokenizer((_QWEN2,)),
    "qwen35": PreTokenizer((_words(r"\p{N}", letter=r"[\p{L}\p{M}]", mark=r"[^\s\p{L}\p{M}\p{N}]"),)),
    "deepseek-llm": PreTokenizer(
        (
            r"[\r\n]",
            rf"\s?[{_DEEPSEEK_LETTERS}]+",
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            r"[一-龥ࠀ-一가-퟿]+",
            r"\p{N}+",
        )
    ),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}")),
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": PreTokenizer((r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK3)),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    "poro-chat bloom gpt3-finnish": PreTokenizer((r" ?[^(\s|.,!?…。，、।۔،)]+",)),
    "viking": PreTokenizer((r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}")),
    "tekken": PreTokenizer((_cased(r"\p{N}", ""),), ignore_merges=True, adds_bos=True),
    "gpt-4o llama4 kanana2 minimax-m2": PreTokenizer((_GPT4O,)),
    "tiny_aya cohere2moe": PreTokenizer((r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O)),
    "kimi-k2": PreTokenizer((r"[\p{Han}]+|" + _cased(r"\p{N}{1,3}", f"{_CONTRACTION}?", exclude=_NOT_HAN, after=r"[\r\n]*"),)),
    "seed-coder": PreTokenizer((_words(r"\p{N}", mark=r"[^\s\p{L}\p{N}\r\n]", after=""),)),
    "minicpm5": PreTokenizer((r"\p{N}{1,3}", _words(r"\p{N}+")), ignore_merges=True),
}

BY_NAME: dict[str, PreTokenizer] = {name: row for names, row in _ROWS.items() for name in names.split()}
