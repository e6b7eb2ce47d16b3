"""What the model is made to say to each client: rules of --debug-answers
(gateway/openai/debug_answers.h)."""

import json
from pathlib import Path
from typing import Union

Answer = Union[str, dict]
TITLE = "Writing a greeting"


def call(name: str, **arguments) -> dict:
    return {"name": name, "arguments": arguments}


def turn(user: str, *answers: Answer) -> list[dict]:
    """The answers of one user message's tool loop, step by step."""
    return [{"user": user, "step": step, "answer": answer} for step, answer in enumerate(answers)]


def write(path: Path, rules: list[dict]) -> None:
    path.write_text("".join(json.dumps(rule) + "\n" for rule in rules))


def for_openai() -> list[dict]:
    return [
        {"user": "^openai plain", "answer": {"reasoning": "It is plain.",
                                             "text": "A plain answer."}},
        *turn("^openai tools",
              {"tool_calls": [call("weather", town="Bergen", days=2),
                              call("weather", town="Narvik", days=1)]},
              {"text": "Rain everywhere."}),
        {"user": "^openai held", "answer": {"text": "It goes on and on.", "hold": True}},
    ]


def for_titles() -> list[dict]:
    return [{"first": "title generator", "answer": TITLE}]
