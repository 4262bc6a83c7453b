"""Scripts: what the scripted model says, token by token, by the last character of the prompt."""

SCRIPTS: dict[str, list[bytes | str]] = {
    "p": ["plain", " wor", "ds,", " no more"],
    "o": [" tick", " tock", " tack"],
    # an emoji and a rare sign in single bytes; a joined emoji in torn tokens
    "e": ["a ", b"\xf0", b"\x9f", b"\x98", b"\x80", " b ", b"\xf0", b"\xa0", b"\x9c", b"\x8e", " c"],
    "j": [b"\xf0\x9f\x91", b"\xa9\xe2\x80", b"\x8d\xf0\x9f\x92\xbb"],
    # a character begins, a whole word follows, and then a byte that continues nothing
    "v": ["x", b"\xe2", "word", b"\x80", " y"],
    # a stop string after what stays, and one that begins and ends within tokens
    "d": ["ABCD", "EFG", "HIJ"],
    "s": ["one tw", "o thr", "ee fo", "ur five"],
    # what a stop string could begin with, and never becomes
    "u": ["UNO", " DUE", " T", "RE"],
    # markers that are one token each
    "m": ["in a", "<think>", "b", ",", "d", "</think>", "out"],
}
LOOPS = "o"  # these begin again instead of ending

_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"places": [{"city": "Paris"}, {"city": "Rome", "days": [1, 2]}]}}\n</tool_call>'


def _cut(text: str, *sizes: int) -> list[bytes | str]:
    """A text in pieces of these sizes, again and again."""
    pieces: list[bytes | str] = []
    at = number = 0
    while at < len(text):
        pieces.append(text[at : at + sizes[number % len(sizes)]])
        at += sizes[number % len(sizes)]
        number += 1
    return pieces


# what a model says that thinks in <think> and calls in <tool_call>; its template ends with "\n" where it closes a thought, with ">" where
# it opens one
TALKS: dict[str, list[bytes | str]] = {
    "w": _cut(_CALL, 7, 3, 11),
    "c": ['<tool_call>\n{"name": "get_weather", "arguments": ', '{"places": [{"', 'city": "Pa', 'ris"}]}}\n</tool', "_call>"],
    "0": _cut('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>', 9, 4),
    "2": [
        "Both.",
        *_cut("\n\n" + _CALL.replace("Paris", "Oslo") + "\n" + '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>', 5, 8),
    ],
    "j": ['{"a"', ":1", "}"],
    "u": _cut('<tool_call>\n{"name": "rm", "arguments": {"all": true}}\n</tool_call>', 6),
    "p": ["It is", " 20 ", "degrees."],
    "k": ["<think>", "deep", "</th", "ink>", "ok"],
    "b": _cut("<think>one</think>x<think>two</think>y", 1),
    "q": ["<think>", "say `</think>` to", " end", "</think>", "done"],
    "e": [" and", " on"],
    "s": ["<think>", "9.11", " or", " 9.8", "</think>", "ok"],
    "\n": _cut(_CALL, 13),
    ">": ["deep", " thought", "</think>", "\n\nopen", " answer"],
}
TALK_LOOPS = "e"
TALK_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}("
    "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v | tojson }}{% endfor %}){% endfor %}{% endfor %}"
    "{% if tools %}[tools]{{ tools | tojson }}{% endif %}"
    "{% if add_generation_prompt %}{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
    "{% elif enable_thinking is defined %}<think>{% else %}{{ messages[-1].content[-1:] }}{% endif %}{% endif %}"
)
