"""What of a prompt was sent before: prompts of one salt as a trie of ids."""

from array import array


class PromptTrie:
    """Keeps the sequences themselves; a prompt's known part is its longest
    common prefix with any of them."""

    def __init__(self) -> None:
        self._sequences: list[bytes] = []

    def known(self, ids: list[int]) -> int:
        """How many of its first tokens were added before."""
        packed = _pack(ids)
        return max((_common(packed, other) for other in self._sequences), default=0)

    def add(self, ids: list[int]) -> None:
        packed = _pack(ids)
        # What the new one extends can never be the longest again.
        self._sequences = [s for s in self._sequences if not packed.startswith(s)]
        self._sequences.append(packed)


def common_prefix(a: list[int], b: list[int]) -> int:
    return _common(_pack(a), _pack(b))


_BYTES = array("I").itemsize


def _pack(ids: list[int]) -> bytes:
    return array("I", ids).tobytes()


def _common(a: bytes, b: bytes) -> int:
    """Items of the longest common prefix."""
    low, high = 0, min(len(a), len(b)) // _BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if a[low * _BYTES:middle * _BYTES] == b[low * _BYTES:middle * _BYTES]:
            low = middle
        else:
            high = middle - 1
    return low
