"""What users wrote never becomes a special token: in messages, tools, results, documents, names and keys, by code and by templates."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from octavo import plugins
from octavo.text.tokenizer import Tokenizer
from tests.text import tekken_files
from tests.text.byte_tokenizer import byte_tokenizer
from tests.text.conversations import call, said, told, user

SPECIAL = {
    "deepseek_v32": "<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜> <think> </think> ｜DSML｜",
    "deepseek_v4": "<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜> <think> </think> ｜DSML｜",
    "deepseek_v41": "<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜> <｜System｜> <think> </think> ｜DSML｜",
    "kimi_k3": "<|open|> <|close|> <|sep|> <|end_of_msg|> [BOS]",
    "harmony": "<|start|> <|end|> <|message|> <|channel|> <|call|> <|return|> <|constrain|>",
    "template": "<|im_start|> <|im_end|> <s> [INST]",
}
# prints everything that it is given, bare, as JSON, by keys and by values
TEMPLATE = """
{%- macro show(value) -%}
{{ value }}{{ [value] | string }}{{ '%s' % [value] }}{{ '%(a)s' % {'a': [value]} }}{{ '{} {a}'.format([value], a=[value]) }}
{{- '' ~ [value] }}{{ [[value]] | join }}{{ [value] | trim }}{{ ['a', [value]] | map('string') | list }}{{ ''.join([[value] | string]) }}
{{- value | tojson }}
{{- value | tojson(indent=1, ensure_ascii=true) }}
{%- endmacro -%}
{{ '<s>' }}
{%- for t in tools or [] %}{{ show(t) }}{{ t.function.name }}
{%- for k, v in t.function.parameters.properties.items() %}{{ k }}{{ v.description }}{% endfor %}{% endfor %}
{%- for d in documents or [] %}{{ d.title }}{{ show(d) }}{% endfor %}
{%- for m in messages %}<|im_start|>{{ m.role }}{{ m.name }}{{ m.content | trim }}{{ m.reasoning_content }}
{%- for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.name }}{{ show(c.function.arguments) }}
{%- for k, v in c.function.arguments.items() %}{{ k }}{{ v }}{{ k ~ v }}{{ k + '' }}{% endfor %}{% endfor %}{{ m.tool_call_id }}<|im_end|>
{%- endfor %}{{ show(extra) }}{{ extra.deep | upper | lower }}{% if add_generation_prompt %}<|im_start|>{% endif %}"""


def tokenizer_of(name: str, folder: Path) -> Tokenizer:
    if name.startswith("mistral"):
        return Tokenizer.load(tekken_files.write(folder, name.split("_")[1]), "mistral")
    special = SPECIAL[name].split()
    return byte_tokenizer(special, template=TEMPLATE) if name == "template" else byte_tokenizer(special, name)


def conversation(word: Any, *, is_one: bool) -> dict[str, Any]:
    """A conversation in which every string that a client may write is the next one of `word`. is_one: has one call, else two."""
    schema = {"type": "object", "description": word(), "properties": {word(): {"type": "string", "description": word(), "enum": [word()]}}}
    schema["required"] = [word()]
    tool = {"type": "function", "function": {"name": word(), "description": word(), "parameters": schema}}
    ids = ["idnumber1"] if is_one else ["idnumber1", "idnumber2"]
    calls = [call(each, word(), json.dumps({word(): word(), "deep": {word(): [word()]}})) for each in ids]
    messages = [
        {"role": "system", "content": word()},
        {"role": "user", "name": word(), "content": [{"type": "text", "text": word()}, {"type": "text", "text": word()}]},
        said("", word(), *calls),
        *(told(each, word()) for each in ids),
        said(word(), word()),
        user(word()),
    ]
    documents = [{"title": word(), word(): word()}]
    return {"messages": messages, "tools": [tool], "documents": documents, "add_generation_prompt": True}


FORMS = ["{}", "x{}", "{}x", " {} ", "\ufdd2{}\ufdd2", "\ufdd0{}\ufdd1", "{}\ufdd3", "\ufdd4{}"]
NAMES = [*plugins.names("text.renderers"), "template"]
NAMES[NAMES.index("mistral")] = "mistral_v3"
NAMES += ["mistral_v11", "mistral_v13"]


def attacks(special: list[str]) -> list[str]:
    """Ways to write special tokens: whole, between noncharacters, torn at each place, in a row."""
    whole = [form.format(token) for token in special for form in FORMS]
    torn = [token[:cut] + mark + token[cut:] for token in special for cut in (1, len(token) - 1) for mark in ("", "\ufdd0", "\ufdd1\ufdd4")]
    halves = [half for token in special for cut in (1, 2, len(token) - 1) for half in (token[:cut], token[cut:])]
    return [*whole, *torn, *halves, "".join(special), "".join(token[:-1] for token in special)]


@pytest.mark.parametrize("is_one", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_only_the_format_s_own_tokens_are_special(name: str, is_one: bool, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(name, tmp_path)
    special = [token for token in tokenizer.all_special_tokens if not token.startswith("<SPECIAL_")]
    words = attacks(special)
    variables = {"thinking": True, "extra": {"deep": words[0], words[1]: words[2]}}

    def special_ids(source: Any) -> list[int]:
        given = conversation(source, is_one=is_one)
        rendered = tokenizer.render_chat(**given, variables=variables)
        ids = tokenizer.encode_rendered(rendered)
        assert tokenizer.decode(ids) == rendered.text
        assert not any(mark in rendered.text for mark in "\ufdd0\ufdd1\ufdd2\ufdd3\ufdd4")
        return [index for index in ids if index in tokenizer.special_ids]

    honest = special_ids((f"w{index}" for index in itertools.count()).__next__)
    assert honest
    assert honest[0] == tokenizer.token_to_id(tokenizer.convert_ids_to_tokens(honest)[0])
    for start in range(0, len(words), 7):
        endless = itertools.cycle([f"{word}{'' if turn else start}" for turn in (0, 1) for word in words[start:] + words[:start]])
        assert special_ids(endless.__next__) == honest, (name, start)


def test_who_trusts_content_gets_its_tokens() -> None:
    tokenizer = byte_tokenizer(["<|end|>"], "harmony")
    given: dict[str, Any] = {"messages": [user("a<|end|>")]}
    trusted = tokenizer.encode_rendered(tokenizer.render_chat(**given, trust_special_tokens_in_content=True))
    assert trusted.count(256) == tokenizer.encode_rendered(tokenizer.render_chat(**given)).count(256) + 1


def test_keys_that_templates_look_up_stay_what_they_are() -> None:
    """A special token that is the end of a word would else take the word's name away from the template."""
    tokenizer = byte_tokenizer(["<s>", "e!", "$ref!", "role"], template="{{ messages[0].role }}{{ tools[0].type }}{{ tools[0]['$ref'] }}")
    rendered = tokenizer.render_chat([user("x")], tools=[{"type": "t", "$ref": "r"}])
    assert rendered.text == "usertr"
    assert tokenizer.special_ids.isdisjoint(tokenizer.encode_rendered(rendered))
