"""Generated traffic and its floor: run with python3."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts" / "lib"))

from holdfast.traffic import plan  # noqa: E402
from holdfast.traffic.floor import Floor  # noqa: E402


class PlanTest(unittest.TestCase):
    SHAPE = plan.Shape(sessions=3, turns=60, head_words=20, terms=2, kills=1)

    def test_the_seed_decides_everything(self):
        self.assertEqual(plan.make(7, self.SHAPE), plan.make(7, self.SHAPE))
        self.assertNotEqual(plan.make(7, self.SHAPE).steps, plan.make(8, self.SHAPE).steps)

    def test_has_what_was_asked_for(self):
        made = plan.make(7, self.SHAPE)
        turns = [s for s in made.steps if isinstance(s, plan.Turn)]
        self.assertEqual(len(turns), 60)
        self.assertEqual({t.session for t in turns}, {0, 1, 2})
        self.assertEqual([t.session for t in turns if t.title], [0, 1, 2])
        self.assertEqual(made.heads[0], made.heads[1])
        self.assertNotEqual(made.salts[2], made.salts[1])
        self.assertEqual(sorted(s.signal for s in made.steps if isinstance(s, plan.Restart)),
                         ["KILL", "TERM", "TERM"])
        self.assertIsInstance(made.steps[0], plan.Turn)

    def test_every_call_has_its_result(self):
        before: dict[int, dict] = {}
        for turn in plan.make(7, self.SHAPE).steps:
            if not isinstance(turn, plan.Turn):
                continue
            calls = before.get(turn.session, {}).get("tool_calls", [])
            self.assertEqual([m["role"] for m in turn.messages], ["tool"] * len(calls) or ["user"])
            before[turn.session] = turn.answer


class FloorTest(unittest.TestCase):
    def test_counts_what_was_never_sent_by_salt(self):
        floor = Floor()
        self.assertEqual(floor.note("", [1, 2, 3], [4]), 3)
        self.assertEqual(floor.note("", [1, 2, 3, 4, 5], [6]), 2)
        self.assertEqual(floor.note("", [1, 2, 3], [4]), 0)
        self.assertEqual(floor.note("other", [1, 2], [4]), 2)
        self.assertEqual((floor.tokens, floor.new, floor.lost, floor.generated), (7, 7, 0, 1))

    def test_after_a_kill_what_no_tier_held_counts_once_more(self):
        floor = Floor()
        floor.note("", [1, 2, 3, 4, 5, 6], [])
        # A file of these ids: resumable at 2, and at 4, past which it differs.
        floor.killed([([1, 2, 3, 9], [2, 4]), ([8, 8], [2])])
        self.assertEqual(floor.note("", [1, 2, 3, 4, 5, 6, 7], []), 1 + 4)
        self.assertEqual(floor.note("", [1, 2, 3, 4, 5, 6, 7], []), 0)
        self.assertEqual((floor.new, floor.lost), (7, 4))
        floor.killed([])
        self.assertEqual(floor.note("", [1, 2, 3], []), 3)


if __name__ == "__main__":
    unittest.main()
