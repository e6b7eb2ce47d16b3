"""Generated traffic and its floor: run with python3."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts" / "lib"))

from holdfast.traffic import plan  # noqa: E402
from holdfast.traffic.causes import Causes, cause  # noqa: E402
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
        self.assertEqual(floor.note("", [1, 2, 3], [4]).tokens, 3)
        self.assertEqual(floor.note("", [1, 2, 3, 4, 5], [6]).tokens, 2)
        self.assertEqual(floor.note("", [1, 2, 3], [4]).tokens, 0)
        self.assertEqual(floor.note("other", [1, 2], [4]).tokens, 2)
        self.assertEqual((floor.tokens, floor.new, floor.lost, floor.generated), (7, 7, 0, 1))

    def test_after_a_kill_what_no_tier_held_counts_once_more(self):
        floor = Floor()
        floor.note("", [1, 2, 3, 4, 5, 6], [])
        # A file of these ids: resumable at 2, and at 4, past which it differs.
        floor.killed([([1, 2, 3, 9], [2, 4]), ([8, 8], [2])])
        self.assertEqual(floor.note("", [1, 2, 3, 4, 5, 6, 7], []).tokens, 1 + 4)
        self.assertEqual(floor.note("", [1, 2, 3, 4, 5, 6, 7], []).tokens, 0)
        self.assertEqual((floor.new, floor.lost), (7, 4))
        floor.killed([])
        self.assertEqual(floor.note("", [1, 2, 3], []).tokens, 3)

    def test_what_a_server_could_hold(self):
        floor = Floor()
        self.assertEqual(floor.note("", [1, 2, 3], [4, 5]).held, 0)
        # Its answer too, but for the token that was never forwarded.
        self.assertEqual(floor.note("", [1, 2, 3, 4, 5, 6], [7]).held, 4)
        self.assertEqual(floor.note("other", [1, 2, 3], []).held, 0)
        floor.killed([([1, 2, 3], [2])])
        self.assertEqual(floor.note("", [1, 2, 3, 4], []).held, 2)


class CausesTest(unittest.TestCase):
    def name(self, reread, **more):
        told = {"source": "parked", "anchor": "line", "grid": False, "title": False,
                "restarted": None}
        return cause(reread, **{**told, **more})

    def test_every_reread_has_a_cause(self):
        self.assertIn("header", self.name(5, anchor="message"))
        self.assertIn("line below", self.name(900, grid=True))
        self.assertIn("parked, line", self.name(1900, grid=True))
        self.assertIn("parked, line", self.name(900))
        self.assertIn("after SIGTERM", self.name(900, restarted="TERM"))
        self.assertIn("title", self.name(800, source="none", anchor="", title=True))

    def test_adds_up(self):
        causes = Causes()
        causes.add("a", 3)
        causes.add("b", 5)
        causes.add("a", 1)
        self.assertEqual(causes.total, 9)
        self.assertEqual(causes.rows(), [{"cause": "b", "requests": 1, "tokens": 5},
                                         {"cause": "a", "requests": 2, "tokens": 4}])


if __name__ == "__main__":
    unittest.main()
