"""What models of each format write, as their makers show it, is read as they mean it."""

import importlib
from typing import Any

import pytest

from tests.parsing.answers import Answer, read

PARIS = ("get_weather", {"city": "Paris"})
OSLO = ("get_weather", {"city": "Oslo", "days": 3})
RICH: dict[str, Any] = {
    "city": 'Zürich "W" <b>',
    "days": -3,
    "share": 0.5,
    "exact": True,
    "tags": ["a", "b c"],
    "place": {"street": "Rue d'Or", "number": 7},
    "places": [{"street": "A", "number": 1}, {"street": "B", "number": 2}],
}
RICH_JSON = (
    '{"city": "Zürich \\"W\\" <b>", "days": -3, "share": 0.5, "exact": true, "tags": ["a", "b c"], '
    '"place": {"street": "Rue d\'Or", "number": 7}, "places": [{"street": "A", "number": 1}, {"street": "B", "number": 2}]}'
)
NS = "]<]minimax[>["
STEP = '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="get_weather">'

DOCUMENTS: list[tuple[str, str, str, tuple[tuple[str, Any], ...]]] = [
    # format, text, content, calls
    ("qwen3_json", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>', "", (PARIS,)),
    (
        "granite4",
        'I look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "get_weather", "arguments": ' + RICH_JSON + "}\n</tool_call>",
        "I look.",
        (PARIS, ("get_weather", RICH)),
    ),
    (
        "ernie45",
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "get_weather", "arguments": ' + RICH_JSON + "}\n</tool_call>\n",
        "",
        (PARIS, ("get_weather", RICH)),
    ),
    ("granite", '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]', "", (PARIS,)),
    (
        "granite",
        '<|tool_call|> [{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "get_weather", "arguments": ' + RICH_JSON + "}]",
        "",
        (PARIS, ("get_weather", RICH)),
    ),
    ("granite", '<tool_call>[{"name": "get_weather", "arguments": {"city": "Paris"}}]', "", (PARIS,)),
    (
        "phi4_mini_json",
        'Sure.<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "get_weather", "arguments": '
        + RICH_JSON
        + "}]<|/tool_call|>",
        "Sure.",
        (PARIS, ("get_weather", RICH)),
    ),
    ("phi4_mini_json", 'functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]', "", (PARIS,)),
    (
        "phi4_mini_json",
        ' functools[{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "get_weather", "arguments": ' + RICH_JSON + "}]",
        "",
        (PARIS, ("get_weather", RICH)),
    ),
    (
        "internlm",
        'Sure, I will search.<|action_start|><|plugin|>\n{"name": "get_weather", "parameters": {"city": "Paris"}}<|action_end|>',
        "Sure, I will search.",
        (PARIS,),
    ),
    (
        "internlm",
        '<|action_start|><|plugin|>\n{"name": "get_weather", "arguments": ' + RICH_JSON + "}<|action_end|>",
        "",
        (("get_weather", RICH),),
    ),
    (
        "jamba",
        ' <tool_calls>[\n  {"name": "get_weather", "arguments": {"city": "Paris"}},\n  {"name": "get_weather", "arguments": '
        + RICH_JSON
        + "}\n]</tool_calls>",
        "",
        (PARIS, ("get_weather", RICH)),
    ),
    (
        "hunyuan_a13b",
        '<tool_calls>[{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "now", "arguments": {}}]</tool_calls>',
        "",
        (PARIS, ("now", {})),
    ),
    ("xlam", '[{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "now", "arguments": {}}]', "", (PARIS, ("now", {}))),
    ("xlam", '```json\n[{"name": "get_weather", "arguments": {"city": "Paris"}}]\n```', "", (PARIS,)),
    ("xlam", '<tool_call>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</tool_call>', "", (PARIS,)),
    ("xlam", '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}]', "", (PARIS,)),
    ("xlam", "[1] is a footnote.", "[1] is a footnote.", ()),
    ("pythonic", '[get_weather(city="Paris"), now()]', "", (PARIS, ("now", {}))),
    ("pythonic", "[get_weather(city='Oslo', days=3)]", "", (OSLO,)),
    ("pythonic", "[see below](http://x)", "[see below](http://x)", ()),
    (
        "pythonic",
        "[get_weather(city='Zürich \"W\" <b>', days=-3, share=0.5, exact=True, tags=['a', 'b c'], "
        "place={\"street\": \"Rue d'Or\", \"number\": 7}, places=[{'street': 'A', 'number': 1}, {'street': 'B', 'number': 2}])]",
        "",
        (("get_weather", RICH),),
    ),
    ("olmo3", '<function_calls>get_weather(city="Paris")\nnow()</function_calls>', "", (PARIS, ("now", {}))),
    (
        "olmo3",
        'I look.<function_calls>\nget_weather(city="Oslo", days=3)\nget_weather(city="Paris", exact=true)\n</function_calls>',
        "I look.",
        (OSLO, ("get_weather", {"city": "Paris", "exact": True})),
    ),
    ("lfm2", '<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>Checking.', "Checking.", (PARIS,)),
    ("lfm2", "<|tool_call_start|>[get_weather(city='Oslo', days=3), now()]<|tool_call_end|>", "", (OSLO, ("now", {}))),
    (
        "functiongemma",
        "<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>"
        "<start_function_call>call:get_weather{city:<escape>Oslo<escape>,days:3}<end_function_call>",
        "",
        (PARIS, OSLO),
    ),
    (
        "functiongemma",
        '<start_function_call>call:get_weather{city:<escape>Zürich "W" <b><escape>,days:-3,exact:true'
        ",place:{number:7,street:<escape>Rue d'Or<escape>},"
        "share:0.5,tags:[<escape>a<escape>,<escape>b c<escape>]"
        ",places:[{number:1,street:<escape>A<escape>},{number:2,street:<escape>B<escape>}]}"
        "<end_function_call>",
        "",
        (("get_weather", RICH),),
    ),
    ("functiongemma", "<start_function_call>call:now{}<end_function_call>", "", (("now", {}),)),
    (
        "seed_oss",
        "I look.\n<seed:tool_call>\n<function=get_weather>\n<parameter=city>Oslo</parameter>\n<parameter=days>3</parameter>\n"
        "</function>\n</seed:tool_call>",
        "I look.",
        (OSLO,),
    ),
    (
        "seed_oss",
        '<seed:tool_call>\n<function=get_weather>\n<parameter=city>Zürich "W" <b></parameter>\n<parameter=days>-3</parameter>\n'
        "<parameter=share>0.5</parameter>\n<parameter=exact>True</parameter>\n<parameter=tags>['a', 'b c']</parameter>\n"
        "<parameter=place>{'street': \"Rue d'Or\", 'number': 7}</parameter>\n"
        '<parameter=places>[{"street": "A", "number": 1}, {"street": "B", "number": 2}]</parameter>\n</function>\n</seed:tool_call>',
        "",
        (("get_weather", RICH),),
    ),
    ("seed_oss", "<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>", "", (("now", {}),)),
    (
        "step3",
        f'<｜tool_calls_begin｜>{STEP}<steptml:parameter name="city">Paris</steptml:parameter></steptml:invoke><｜tool_call_end｜>'
        f'{STEP}<steptml:parameter name="city">if a < b</steptml:parameter>'
        '<steptml:parameter name="days">3</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>',
        "",
        (PARIS, ("get_weather", {"city": "if a < b", "days": 3})),
    ),
    (
        "step3",
        'Let me help.\n<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="get_weather">\n'
        '<steptml:parameter name="city">Paris</steptml:parameter>\n</steptml:invoke><｜tool_call_end｜>\n<｜tool_calls_end｜>',
        "Let me help.",
        (PARIS,),
    ),
    (
        "step3",
        '<｜tool_calls_begin｜><｜tool_call_begin｜><steptml:invoke name="now"></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>',
        "",
        (("now", {}),),
    ),
    (
        "minimax_m2",
        '\n<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n'
        '<parameter name="days">3</parameter>\n</invoke>\n'
        '<invoke name="now">\n</invoke>\n</minimax:tool_call>',
        "",
        (OSLO, ("now", {})),
    ),
    (
        "minimax_m2",
        'I look.\n<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Zürich "W" <b></parameter>\n'
        '<parameter name="days">-3</parameter>\n'
        '<parameter name="share">0.5</parameter>\n<parameter name="exact">true</parameter>\n'
        '<parameter name="tags">["a", "b c"]</parameter>\n'
        '<parameter name="place">{"street": "Rue d\'Or", "number": 7}</parameter>\n'
        '<parameter name="places">[{"street": "A", "number": 1}, {"street": "B", "number": 2}]</parameter>\n</invoke>\n'
        "</minimax:tool_call>",
        "I look.",
        (("get_weather", RICH),),
    ),
    (
        "minimax_m3",
        f'{NS}<tool_call>\n{NS}<invoke name="get_weather">{NS}<city>Oslo{NS}</city>{NS}<days>3{NS}</days>{NS}</invoke>\n'
        f'{NS}<invoke name="now">{NS}</invoke>\n{NS}</tool_call>',
        "",
        (OSLO, ("now", {})),
    ),
    (
        "minimax_m3",
        f'{NS}<tool_call>\n{NS}<invoke name="get_weather">{NS}<city>Zürich "W" <b>{NS}</city>{NS}<days>-3{NS}</days>'
        f"{NS}<share>0.5{NS}</share>"
        f"{NS}<exact>true{NS}</exact>{NS}<tags>{NS}<item>a{NS}</item>{NS}<item>b c{NS}</item>{NS}</tags>"
        f"{NS}<place>{NS}<street>Rue d'Or{NS}</street>{NS}<number>7{NS}</number>{NS}</place>"
        f"{NS}<places>{NS}<item>{NS}<street>A{NS}</street>{NS}<number>1{NS}</number>{NS}</item>"
        f"{NS}<item>{NS}<street>B{NS}</street>{NS}<number>2{NS}</number>{NS}</item>{NS}</places>{NS}</invoke>\n{NS}</tool_call>",
        "",
        (("get_weather", RICH),),
    ),
    (
        "minimax_m3",
        f'{NS}<tool_call>{NS}<invoke name="get_weather">{NS}<tags>{NS}</tags>{NS}<place>{NS}</place>{NS}<city>{NS}</city>'
        f"{NS}</invoke>{NS}</tool_call>",
        "",
        (("get_weather", {"tags": [], "place": {}, "city": ""}),),
    ),
]
SPECIAL = {
    "granite": ("<|tool_call|>",),
    "internlm": ("<|action_start|>", "<|plugin|>", "<|action_end|>"),
    "lfm2": ("<|tool_call_start|>", "<|tool_call_end|>"),
    "functiongemma": ("<start_function_call>", "<end_function_call>", "<escape>", "<start_function_response>"),
    "seed_oss": ("<seed:tool_call>", "</seed:tool_call>", "<seed:think>", "</seed:think>"),
    "step3": ("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>", "<｜tool_call_begin｜>", "<｜tool_call_end｜>", "<｜tool_sep｜>"),
    "minimax_m3": (NS,),
    "jamba": ("<tool_calls>", "</tool_calls>"),
}


@pytest.mark.parametrize(("name", "text", "content", "calls"), DOCUMENTS, ids=[f"{i}-{row[0]}" for i, row in enumerate(DOCUMENTS)])
def test_document(name: str, text: str, content: str, calls: tuple[tuple[str, Any], ...]) -> None:
    assert read(text, name) == Answer("", content, calls)
    assert read(text, name, special=SPECIAL.get(name, ())) == Answer("", content, calls)


THINK_R1 = "<｜Assistant｜><think>\n"
THOUGHTS: list[tuple[str, str, str, str, str]] = [
    # format, prompt's end, text, reasoning, content
    ("deepseek_r1", THINK_R1, "Hm.\n</think>\n\nYes.", "Hm.", "Yes."),
    ("deepseek_r1", "<｜Assistant｜>", "<think>\nHm.\n</think>\n\nYes.", "Hm.", "Yes."),
    ("deepseek_r1", "<｜Assistant｜>", "Hm.</think>Yes.", "Hm.", "Yes."),
    ("deepseek_r1", "<｜Assistant｜><think>\n\n</think>", "Yes.", "", "Yes."),
    ("deepseek_v4", "<｜Assistant｜><think>", "Hm.</think>Yes.", "Hm.", "Yes."),
    ("deepseek_v41", "<｜Assistant｜></think>", "Yes.", "", "Yes."),
    ("glm47", "<|assistant|><think>", "Hm.</think>Yes.", "Hm.", "Yes."),
    ("minimax_m2", "]~b]ai\n<think>\n", "Hm.\n</think>\n\nYes.", "Hm.", "Yes."),
    ("minimax_m2_append_think", "]~b]ai\n<think>\n", "Hm.\n</think>\n\nYes.", "", "<think>Hm.\n</think>\n\nYes."),
    ("minimax_m3", "]~b]ai\n", "<mm:think>Hm.</mm:think>Yes.", "Hm.", "Yes."),
    ("minimax_m3", "]~b]ai\n<mm:think>", "Hm.</mm:think>Yes.", "Hm.", "Yes."),
    ("minimax_m3", "]~b]ai\n</mm:think>", "Yes.", "", "Yes."),
    ("minimax_m3", "]~b]ai\n", "</mm:think>Yes.", "", "Yes."),
    ("minimax_m3", "]~b]ai\n", "Yes.", "", "Yes."),
    ("ernie45", "<|im_start|>assistant\n<think>\n", "Hm.\n</think>\n\n<response>\nYes.\nNo.\n</response>\n", "Hm.", "Yes.\nNo."),
    ("ernie45", "<|im_start|>assistant\n<think>\n", "Hm.\n</think>\nYes.", "Hm.", "Yes."),
    ("granite", "", "Here is my thought process: Hm. Here is my response: Yes.", "Hm.", "Yes."),
    ("granite", "", "Here's my thought process:\nHm.\n\nHere's my response:\nYes.", "Hm.", "Yes."),
    ("granite", "", "<think>Hm.</think>\n<response>Yes.</response>", "Hm.", "Yes."),
    ("granite", "", "Here is what I found.", "", "Here is what I found."),
    ("olmo3", "<|im_start|>assistant\n<think>", "Hm.\n</think>\nYes.", "Hm.", "Yes."),
    ("seed_oss", "<seed:bos>assistant\n", "<seed:think>Hm.</seed:think>\nYes.", "Hm.", "Yes."),
    (
        "seed_oss",
        "<seed:bos>assistant\n<seed:think>\n<seed:cot_budget_reflect>0</seed:cot_budget_reflect>\n</seed:think>",
        "Yes.",
        "",
        "Yes.",
    ),
    ("step3", "<｜BOT｜>assistant\n<think>\n", "Hm.\n</think>\n\nYes.", "Hm.", "Yes."),
    ("step3", "<｜BOT｜>assistant\n", "Hm.\n</think>\n\nYes.", "Hm.", "Yes."),
    ("hunyuan_a13b", "<|extra_0|>", "<think>\nHm.\n</think>\n<answer>\nYes.\n</answer>", "Hm.", "Yes."),
    ("hunyuan_a13b", "<|extra_0|>", "<think>\n\n</think>\n<answer>\nYes.\n</answer>", "", "Yes."),
    ("hunyuan_a13b", "<think>\n\n</think>\n", "<answer>\nYes.\n</answer>", "", "Yes."),
    ("hunyuan_a13b", "<|extra_0|>", "Write <answer> and </answer>.", "", "Write <answer> and </answer>."),
    ("hunyuan_a13b", "<think>\n\n</think>\n", "<answer>\nWrite </answer> last.\n</answer>", "", "Write </answer> last."),
]


@pytest.mark.parametrize(
    ("name", "prompt", "text", "reasoning", "content"), THOUGHTS, ids=[f"{i}-{row[0]}" for i, row in enumerate(THOUGHTS)]
)
def test_thought(name: str, prompt: str, text: str, reasoning: str, content: str) -> None:
    assert read(text, None, name, prompt_end=prompt) == Answer(reasoning, content, ())
    table = importlib.import_module(f"octavo.parsing.reasoning.{name}").FORMAT
    assert read(text, None, name, prompt_end=prompt, special=table.tokens) == Answer(reasoning, content, ())


@pytest.mark.parametrize(
    ("tools", "reasoning", "prompt", "text"),
    [
        ("ernie45", "ernie45", "<think>\n", 'Hm.\n</think>\n\n\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n'),
        (
            "hunyuan_a13b",
            "hunyuan_a13b",
            "",
            '<think>\nHm.\n</think>\n<answer>\n<tool_calls>[{"name": "now", "arguments": {}}]</tool_calls>\n</answer>',
        ),
        (
            "minimax_m3",
            "minimax_m3",
            "",
            f'<mm:think>Hm.</mm:think>{NS}<tool_call>\n{NS}<invoke name="now">{NS}</invoke>\n{NS}</tool_call>',
        ),
        ("minimax_m2", "minimax_m2", "<think>\n", 'Hm.\n<minimax:tool_call>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>'),
        ("minimax_m3", "minimax_m3", "<mm:think>", f'Hm.{NS}<tool_call>\n{NS}<invoke name="now">{NS}</invoke>\n{NS}</tool_call>'),
        ("granite", "granite", "", '<think>Hm.</think>\n<|tool_call|>[{"name": "now", "arguments": {}}]'),
        ("olmo3", "olmo3", "<think>", "Hm.\n</think>\n<function_calls>now()</function_calls>"),
        ("seed_oss", "seed_oss", "", "<seed:think>Hm.</seed:think>\n<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>"),
    ],
)
def test_a_call_after_a_thought(tools: str, reasoning: str, prompt: str, text: str) -> None:
    assert read(text, tools, reasoning, prompt_end=prompt) == Answer("Hm.", "", (("now", {}),))
