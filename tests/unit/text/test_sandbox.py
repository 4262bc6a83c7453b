"""No template runs for long, grows large or reaches anything; and the process that stopped it goes on."""

import time
import tracemalloc

import pytest

from octavo.errors import RequestError
from octavo.text.chat_template import ChatTemplate

CHAT = [{"role": "user", "content": "x" * 1000}]
BIG = "{% set s = messages[0].content * 10000 %}"

HOSTILE = {
    "long range": "{% for i in range(10**12) %}x{% endfor %}",
    "nested ranges": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "nested loops that call nothing": "{% set x = range(9999) %}{% for i in x %}{% for j in x %}{% for k in x %}"
    "{% endfor %}{% endfor %}{% endfor %}",
    "filtered loop": "{% for i in range(99999) if range(99999)|sum == 1 %}{% endfor %}",
    "recursive loop": "{% for i in [[1]] recursive %}{% for j in range(9999) %}{% for k in range(9999) %}"
    "{% endfor %}{% endfor %}{% endfor %}",
    "product": "{{ 'a' * 10**10 }}",
    "product of lists": "{% set x = [0] * 10**9 %}",
    "constant folded": "{{ 'a'|center(10**9) }}",
    "power": "{{ 9 ** 999999999 }}",
    "doubling +": "{% set ns = namespace(s='aa') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "doubling ~": "{% set ns = namespace(s='aa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "doubling blocks": "{% set ns = namespace(s='aa') %}{% for i in range(60) %}{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}{% endfor %}",
    "doubling macros": "{% macro m(s) %}{{ s }}{{ s }}{% endmacro %}{% set ns = namespace(s='aa') %}"
    "{% for i in range(60) %}{% set ns.s = m(ns.s) %}{% endfor %}",
    "doubling lists": "{% set ns = namespace(s=['a' * 1000]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
    "spelled by tojson": BIG + "{{ ([s] * 1000)|tojson }}",
    "deep tojson": "{% set ns = namespace(s=[1]) %}{% for i in range(500) %}{% set ns.s = [ns.s] %}{% endfor %}"
    "{{ ([ns.s] * 9999)|tojson(indent=999) }}",
    "many kept": BIG + "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + [s.upper()] %}{% endfor %}",
    "replace": BIG + "{{ s.replace('x', s) }}",
    "replace filter": BIG + "{{ s|replace('x', s) }}",
    "join": BIG + "{{ s.join(s) }}",
    "join filter": BIG + "{{ ([s] * 99999)|join }}",
    "join of a generator": BIG + "{{ ''.join(([s] * 99999)|select) }}",
    "format": "{{ '%1000000000d' % 1 }}",
    "format filter": "{{ '%1000000000d'|format(1) }}",
    "format star": "{{ '%*d' % (1000000000, 1) }}",
    "str.format": "{{ '{:1000000000}'.format(1) }}",
    "str.format nested": "{{ '{:{}}'.format(1, 1000000000) }}",
    "ljust": "{{ 'a'.ljust(1000000000) }}",
    "expandtabs": "{{ ('\t' * 9999999).expandtabs(1000) }}",
    "indent": BIG + "{{ s.replace('x', '\n')|indent(900) }}",
    "sum of lists": "{{ ([([0] * 99999)] * 99999)|sum(start=[]) }}",
    "output": BIG + "{% for i in range(99999) %}{{ s }}{% endfor %}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "attributes": "{{ ''.__class__.__mro__ }}",
    "globals": "{{ raise_exception.__globals__.x }}",
    "changing the conversation": "{{ messages.append(1) }}",
    "include": "{% include '/etc/passwd' %}",
    "namespace dunder": "{% set ns = namespace(__class__=1) %}",
    "lipsum": "{{ lipsum(n=10**9) }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_end(name: str) -> None:
    tracemalloc.start()
    started = time.monotonic()
    try:
        with pytest.raises(RequestError):
            ChatTemplate(HOSTILE[name]).render(CHAT, time_limit_s=0.5)
        elapsed, (_, peak) = time.monotonic() - started, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert elapsed < 10
    assert peak < 700 * 2**20
    assert ChatTemplate("{{ messages|length }}").render(CHAT).text == "1"


def test_what_templates_need_is_offered() -> None:
    template = (
        "{%- set ns = namespace(n=0) -%}{%- for m in messages if m.role != 'x' -%}{%- set ns.n = ns.n + loop.index -%}"
        "{%- if loop.last %}{% continue %}{% endif -%}{%- endfor -%}{{ ns.n }} {{ '%.2f' % 1.5 }} {{ '{:>4}'.format(7) }} "
        "{{ {'a': '<é>'}|tojson }} {{ {'a': 'é'}|tojson(ensure_ascii=True) }} {{ [1, 2]|tojson(indent=1) }} "
        "{{ strftime_now('%Y')|length }} "
        "{{ dict(a=1) }} {{ 'a' ~ 1 ~ none }} {{ [1, 2]|join(', ') }} {% generation %}{{ messages[0].role }}{% endgeneration %}"
    )
    want = '1 1.50    7 {"a": "<é>"} {"a": "\\u00e9"} [\n 1,\n 2\n] 4 {\'a\': 1} a1None 1, 2 user'
    assert ChatTemplate(template).render(CHAT).text == want


def test_limits_are_of_one_rendering() -> None:
    template = ChatTemplate("{% for i in range(3000) %}{{ messages[0].content }}{% endfor %}")
    for _ in range(60):
        assert len(template.render(CHAT).text) == 3_000_000
