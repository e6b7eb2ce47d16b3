"""Jinja2 set up as Hugging Face transformers sets it up for chat templates.

Compiled into the gateway (renderer_source.h); runs in its own interpreter.
"""

import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.utils
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError

# Integers of a template are token counts and dates, not this long.
_MAX_INT_BITS = 8192


class RenderTimeout(BaseException):
    """Raised from outside; no handler of Exception may swallow it."""


class RenderError(Exception):
    """Carries the message that the client or the operator gets."""


class _GenerationBlock(jinja2.ext.Extension):
    """{% generation %}...{% endgeneration %}: marks for trainers, text to us."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_pass_through")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _pass_through(self, caller):
        return caller()


class _Environment(ImmutableSandboxedEnvironment):
    """Memory and time are bounded outside; a single long operation on integers
    is the one thing that neither bound can stop."""

    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context, operator, left, right):
        if isinstance(left, int) and isinstance(right, int):
            if operator == "*":
                bits = left.bit_length() + right.bit_length()
            else:
                bits = left.bit_length() * abs(right)
            if bits > _MAX_INT_BITS:
                raise SecurityError("an integer grows too long")
        return super().call_binop(context, operator, left, right)


def _tojson(value, ensure_ascii=False, indent=None, separators=None,
            sort_keys=False):
    # Jinja's own filter escapes HTML characters, which the model never saw.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent,
                      separators=separators, sort_keys=sort_keys)


def _raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def _strftime_now(pattern):
    return datetime.datetime.now().strftime(pattern)


class _Namespace(jinja2.utils.Namespace):
    """namespace() without names that reach into the interpreter."""

    def __init__(*arguments, **attributes):  # a template may name one "self"
        self, *rest = arguments
        values = dict(*rest, **attributes)
        for name in values:
            _Namespace._check(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name, value):
        _Namespace._check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"a namespace cannot hold {name!r}")


def _dict(*arguments, **items):
    # A function, so that the type itself is out of reach.
    return dict(*arguments, **items)


def _environment():
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[_GenerationBlock, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.globals["namespace"] = _Namespace
    environment.globals["dict"] = _dict
    return environment


def compile_template(source):
    try:
        return _environment().from_string(source)
    except jinja2.exceptions.TemplateSyntaxError as error:
        raise RenderError(f"line {error.lineno}: {error.message}") from None


def render(template, variables):
    try:
        return template.render(json.loads(variables))
    except MemoryError:
        raise
    except jinja2.exceptions.TemplateError as error:
        raise RenderError(str(error)) from None
    except Exception as error:  # the template's own bugs, on this input
        raise RenderError(f"{type(error).__name__}: {error}") from None
