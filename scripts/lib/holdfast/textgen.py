"""Deterministic prose, and prose of an exact number of tokens."""

from typing import Callable

_WORDS = """
the of and to in that it was for on with as his they at be this from have by not but what all were
when we there can an your which their said if do will each about how up out them then she many some
so these would other into has more her two like him see time could no make than first been its who
now people my made over did down only way find use may water long little very after words called
just where most know river garden stone window letter market harbour engine winter summer morning
evening paper bridge village mountain story number captain teacher question answer silver copper
yellow green narrow quiet heavy simple sudden careful ancient open broken early late north south
carried followed opened closed measured counted remembered answered waited turned walked wrote read
built kept found lost sent brought taught learned watched listened crossed reached left returned
""".split()
_MASK = (1 << 64) - 1
# Tokens at the end of a text that may be chosen again until the count fits;
# everything before them is the same for every length, so that a longer text
# of a seed extends a shorter one.
_TAIL_TOKENS = 8
_MAX_TRIES = 200


class Random:
    """splitmix64: the same numbers in every version of Python."""

    def __init__(self, seed: int):
        self._state = seed & _MASK

    def below(self, bound: int) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return (z ^ (z >> 31)) % bound


def prose(seed: int, words: int) -> str:
    """Sentences of about ten words, paragraphs of about six sentences."""
    random = Random(seed)
    out: list[str] = []
    left_in_sentence, sentences = 0, 0
    for i in range(words):
        word = _WORDS[random.below(len(_WORDS))]
        if left_in_sentence == 0:
            left_in_sentence = 6 + random.below(9)
            word = word.capitalize()
            if i > 0:
                sentences += 1
                out.append(".\n\n" if sentences % 6 == 0 else ". ")
        elif random.below(12) == 0:
            out.append(", ")
        else:
            out.append(" ")
        out.append(word)
        left_in_sentence -= 1
    return "".join(out) + "."


def exact(seed: int, tokens: int, tokenize: Callable[[str], list[int]],
          detokenize: Callable[[list[int]], str]) -> str:
    """A text that `tokenize` cuts into exactly `tokens` tokens. It neither
    starts nor ends with white space, which templates may strip."""
    if tokens < 1:
        raise ValueError(f"text of {tokens} tokens")
    base = prose(seed, tokens + 1)
    text = detokenize(tokenize(base)[:tokens])
    kept = None
    for attempt in range(_MAX_TRIES):
        if text == text.strip() and len(tokenize(text)) == tokens:
            return text
        # Cutting at a token can leave the start of a word that is tokenized
        # otherwise when it stands alone: try other endings.
        if kept is None:
            kept = detokenize(tokenize(base)[:max(0, tokens - _TAIL_TOKENS)])
        ending = prose((seed << 20) + (tokens << 8) + attempt, 2 * _TAIL_TOKENS)
        joined = kept + (" " if kept else "") + ending.lower()
        text = detokenize(tokenize(joined)[:tokens])
    raise ValueError(f"no text of exactly {tokens} tokens found for seed {seed}")
