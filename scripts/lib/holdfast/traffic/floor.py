"""The least that any server must compute of the prompts it was served: what it
has never seen, and what no surviving tier held when all was killed."""

from dataclasses import dataclass

from ..prompt_trie import PromptTrie, common_prefix


@dataclass(frozen=True)
class Part:
    """Of one prompt."""
    tokens: int  # of the floor
    held: int  # that a server which forgot nothing but what SIGKILLs took would have


@dataclass
class Floor:
    """Tokens, summed over all prompts noted."""
    new: int = 0  # new nodes in the trie of served prompts, per salt
    lost: int = 0  # known, but past every resume point that survived a SIGKILL
    generated: int = 0  # of `new`: tokens the server itself had generated before

    def __post_init__(self) -> None:
        self._ever: dict[str, PromptTrie] = {}
        self._alive: dict[str, PromptTrie] = {}
        self._with_answers: dict[str, PromptTrie] = {}
        self._alive_with_answers: dict[str, PromptTrie] = {}
        self._points: list[tuple[list[int], list[int]]] = []

    @property
    def tokens(self) -> int:
        return self.new + self.lost

    def killed(self, points: list[tuple[list[int], list[int]]]) -> None:
        """All daemons were killed; `points` (cache_files.resume_points) is what
        the tiers on disk hold."""
        self._alive = {}
        self._alive_with_answers = {}
        self._points = points

    def note(self, salt: str, prompt: list[int], output: list[int]) -> Part:
        """Returns this prompt's part of the sum."""
        ever = self._ever.setdefault(salt, PromptTrie())
        alive = self._alive.setdefault(salt, PromptTrie())
        known = ever.known(prompt)
        new = len(prompt) - known
        point = self._best_point(prompt)
        lost = max(0, known - max(alive.known(prompt), point))
        self.new += new
        self.lost += lost
        with_answers = self._with_answers.setdefault(salt, PromptTrie())
        self.generated += max(0, with_answers.known(prompt) - known)
        alive_with_answers = self._alive_with_answers.setdefault(salt, PromptTrie())
        held = max(alive_with_answers.known(prompt), point)
        # The last token is sampled and never forwarded.
        alive_with_answers.add(prompt + output[:-1])
        ever.add(prompt)
        alive.add(prompt)
        with_answers.add(prompt + output)
        return Part(new + lost, held)

    def _best_point(self, prompt: list[int]) -> int:
        best = 0
        for ids, positions in self._points:
            common = common_prefix(ids, prompt)
            best = max([best, *(p for p in positions if p <= common)])
        return best
