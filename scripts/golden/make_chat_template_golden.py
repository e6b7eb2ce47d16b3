"""Writes renderings of chat templates by Hugging Face transformers.

tests/golden/template/cases.json is committed; the tests need nothing of this.
To make it again:

    python3 -m venv ~/golden-venv
    ~/golden-venv/bin/pip install 'transformers>=5,<6' jinja2
    ~/golden-venv/bin/python scripts/golden/make_chat_template_golden.py
"""

import json
import pathlib

from transformers.utils.chat_template_utils import render_jinja_template

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a <city> & more: 'é'",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "a \"name\"\n"},
            "days": {"type": "number", "default": 1.0, "maximum": 1e16},
            "deep": {"type": "array", "items": [None, True, False, -3, 1e-7]}}}}},
    {"type": "function", "function": {"name": "z", "a": 1, "Z": {}}},
]
CALL = {"id": "call00001", "type": "function", "function": {
    "name": "get_weather", "arguments": {"city": "Zürich \U0001f600", "days": 2}}}
TALKS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "  Be brief. \n"},
     {"role": "user", "content": "a\r\n\tb  "},
     {"role": "assistant", "content": "\n\nSure.\n"},
     {"role": "user", "content": "{{ x }} {% y %} <|im_end|> \u2028 \ufdd0"}],
    [{"role": "user", "content": "Weather?"},
     {"role": "assistant", "content": "", "reasoning_content": "Look it up.",
      "tool_calls": [CALL, CALL]},
     {"role": "tool", "content": "sun", "tool_call_id": "call00001"},
     {"role": "tool", "content": "wind", "name": "get_weather"}],
    [{"role": "user", "content": "one"},
     {"role": "assistant", "content": "two", "reasoning_content": "r"},
     {"role": "user", "content": ""},
     {"role": "assistant", "content": "four"}],
]

CHATML = """{% for message in messages %}
    {% if loop.first and messages[0]['role'] != 'system' %}
        {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}
    {% endif %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' }}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant' }}
{% endif %}
"""

TOOL_USE = """{{- bos_token }}
{%- macro show(value, indent=0) -%}
{%- if value is mapping -%}
{%- for key, item in value | items -%}{{ '  ' * indent }}{{ key }}:{{ show(item, indent + 1) }};{%- endfor -%}
{%- elif value is iterable and value is not string -%}
[{%- for item in value -%}{{ show(item) }}{{ ',' if not loop.last }}{%- endfor -%}]
{%- else -%}{{ value }}{%- endif -%}
{%- endmacro -%}
{%- if tools is not none %}{% for tool in tools %}
{{ tool | tojson(indent=2) }}
{{ tool.function | tojson(sort_keys=true) }}
{{ tool | tojson(separators=(',', ':')) }}
{{ tool | tojson(ensure_ascii=true) }}
{{ show(tool) }}
{% endfor %}{% endif -%}
{%- set ns = namespace(last=-1, calls=0) -%}
{%- for message in messages[::-1] -%}
{%- if message.role == 'user' and ns.last < 0 -%}{%- set ns.last = loop.revindex0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}{%- continue -%}{%- endif -%}
[{{ message.role | upper }}]{% generation %}{{ message.content | trim }}{% endgeneration %}
{%- if message.reasoning_content is defined and loop.index0 > ns.last -%}
<think>{{ message.reasoning_content }}</think>
{%- endif -%}
{%- for call in message.tool_calls or [] -%}
{%- set ns.calls = ns.calls + 1 -%}
<call {{ ns.calls }}>{{ call.function.name }}({{ call.function.arguments | tojson }})
{%- endfor -%}
{%- if loop.index0 >= 2 -%}{%- break -%}{%- endif -%}
{%- endfor -%}
{{ eos_token ~ strftime_now('x%%y') }}{{ enable_thinking if enable_thinking is defined else 'unset' }}
"""

ODDS = """{#- comment -#}
   {%- set text = messages | map(attribute='content') | join('|') %}
    {% if text %}
  {{ text.split('|') | length }} {{ text[:5] | e }} {{ 'a' if not tools else 'b' }}
    {% endif %}
{{ dict(a=1, b=[1, 2]) }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }}
{{ text.startswith('Hi') }} {{ 'Hi' in text }} {{ none }} {{ 1.0 }} {{ 7 // 2 }} {{ 2 ** 10 }} {{ 'ab' * 3 }}
{{ '%s-%05.1f' % ('x', 2.25) }} {{ '{:>5}'.format('y') }} {{ text | replace('\\n', '\\\\n') }} {{ undefined_name }}
{{ documents is none }} {{ namespace(a=1).a }} {{ text.strip().rstrip('x').lstrip() | length }}\n"""

TEMPLATES = [CHATML, TOOL_USE, ODDS]


def main():
    cases = []
    for template in TEMPLATES:
        for talk in TALKS:
            for variant in range(2):
                variables = {"bos_token": "<s>", "eos_token": "</s>"}
                if variant:
                    variables["enable_thinking"] = False
                tools = TOOLS if variant else None
                rendered, _ = render_jinja_template(
                    conversations=[talk], tools=tools, documents=None,
                    chat_template=template,
                    add_generation_prompt=bool(variant), **variables)
                variables.pop("bos_token")
                variables.pop("eos_token")
                cases.append({
                    "template": TEMPLATES.index(template), "messages": talk,
                    "tools": tools, "add_generation_prompt": bool(variant),
                    "kwargs": variables, "text": rendered[0]})
    path = pathlib.Path("tests/golden/template/cases.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"templates": TEMPLATES, "cases": cases},
                               ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
