"""A call of get_weather for Paris and 2 days, as the models of each tool format write it."""

_ARGUMENTS = '{"city": "Paris", "days": 2}'


def dsml(section: str, blank: str = "") -> str:
    """DeepSeek's elements."""
    mark, end = f"<｜DSML｜{blank}", f"</｜DSML｜{blank}"
    rows = f'{mark}parameter name="city" string="true">Paris{end}parameter>\n{mark}parameter name="days" string="false">2{end}parameter>\n'
    return f'{mark}{section}>\n{mark}invoke name="get_weather">\n{rows}{end}invoke>\n{end}{section}>'


_JSON = '{"name": "get_weather", "arguments": ' + _ARGUMENTS + "}"
_HERMES = "<tool_call>\n" + _JSON + "\n</tool_call>"
_PYTHON = 'get_weather(city="Paris", days=2)'
_QWEN = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
    "</function>\n</tool_call>"
)
TEXTS = {
    "deepseek_v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
    + _ARGUMENTS
    + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v31": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
    + _ARGUMENTS
    + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v32": dsml("function_calls"),
    "deepseek_v4": dsml("tool_calls"),
    "deepseek_v41": dsml("calls", " "),
    "gemma4": '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:2}<tool_call|>',
    "glm45": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n"
    "<arg_value>2</arg_value>\n</tool_call>",
    "glm47": "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value><arg_key>days</arg_key><arg_value>2</arg_value>"
    "</tool_call>",
    "hermes": _HERMES,
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    + _ARGUMENTS
    + "<|tool_call_end|><|tool_calls_section_end|>",
    "kimi_k3": '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Paris'
    '<|close|>argument<|sep|><|open|>argument key="days" type="number"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|>'
    "<|close|>tools<|sep|>",
    "llama3_json": '{"name": "get_weather", "parameters": ' + _ARGUMENTS + "}",
    "llama4_pythonic": "[get_weather(city='Paris', days=2)]",
    "mistral": "[TOOL_CALLS]get_weather[ARGS]" + _ARGUMENTS,
    "openai": "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>" + _ARGUMENTS + "<|call|>",
    "qwen3_coder": _QWEN,
    "ernie45": _HERMES + "\n",
    "functiongemma": "<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:2}<end_function_call>",
    "granite": "<|tool_call|>[" + _JSON + "]",
    "granite4": _HERMES,
    "hunyuan_a13b": "<tool_calls>[" + _JSON + "]</tool_calls>",
    "internlm": "<|action_start|><|plugin|>\n" + _JSON.replace('"arguments"', '"parameters"') + "<|action_end|>",
    "jamba": "<tool_calls>[\n  " + _JSON + "\n]</tool_calls>",
    "lfm2": "<|tool_call_start|>[" + _PYTHON + "]<|tool_call_end|>",
    "llama4_json": _JSON.replace('"arguments"', '"parameters"'),
    "minimax_m2": '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n'
    '<parameter name="days">2</parameter>\n</invoke>\n</minimax:tool_call>',
    "minimax_m3": "".join(
        "]<]minimax[>[" + part
        for part in (
            "<tool_call>",
            '<invoke name="get_weather">',
            "<city>Paris",
            "</city>",
            "<days>2",
            "</days>",
            "</invoke>",
            "</tool_call>",
        )
    ),
    "olmo3": "<function_calls>\n" + _PYTHON + "\n</function_calls>",
    "phi4_mini_json": "functools[" + _JSON + "]",
    "pythonic": "[" + _PYTHON + "]",
    "qwen3_json": _HERMES,
    "qwen3_xml": _QWEN,
    "seed_oss": "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n<parameter=days>2</parameter>\n</function>\n"
    "</seed:tool_call>",
    "step3": '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="get_weather">'
    '<steptml:parameter name="city">Paris</steptml:parameter><steptml:parameter name="days">2</steptml:parameter></steptml:invoke>'
    "<｜tool_call_end｜><｜tool_calls_end｜>",
    "xlam": "[" + _JSON + "]",
}
TEXTS["glm47_moe"] = TEXTS["glm47"]
