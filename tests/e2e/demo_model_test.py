"""The main job, and the engine's memory, on the real model when it is there
(scripts/setup fetches it); the main job on a generated one always."""

import re
import unittest
from pathlib import Path

from support import ENGINE, DaemonTest, bin_dir, main, paths

from holdfast import demo, textgen

MIB = 1 << 20
OVERHEAD_BYTES = 150 * 10**6


def say(line: str) -> None:
    print("  " + line)


class GeneratedModelTest(unittest.TestCase):
    def check(self, kind: str) -> None:
        result, problems = demo.run(paths.generate(kind, bin_dir()), bin_dir=bin_dir(),
                                    text_tokens=2000, say=say)
        self.assertEqual(problems, [])
        self.assertTrue(result["identical"])
        self.assertGreaterEqual(result["next_turn"]["cached_tokens"], 2000)

    def test_main_job(self) -> None:
        self.check("tiny-llama")

    def test_main_job_of_a_hybrid(self) -> None:
        self.check("tiny-hybrid")


@unittest.skipUnless(paths.demo_model_path().is_file(), "the demo model is absent: scripts/setup")
class RealModelTest(DaemonTest):
    MODEL = "demo"

    def test_main_job(self) -> None:
        result, problems = demo.job(self.client, 1200, say)
        self.assertEqual(problems, [])
        self.assertTrue(result["identical"])
        self.assertGreaterEqual(result["next_turn"]["cached_tokens"], 1200)

    def test_memory(self) -> None:
        """The weights, the rows in use, and little else, after a long prompt."""
        text = textgen.exact(2, 1500, self.client.tokenize, self.client.detokenize)
        self.assertEqual(self.chat(text).status, 200)
        resident = self.resident_bytes()
        weights = paths.demo_model_path().stat().st_size
        pool = self.daemons.cache_status()["engine"]["pool_bytes"]
        touched = min(pool, resident["RssShmem"])
        print(f"  resident: anonymous {resident['RssAnon'] / MIB:.0f} MiB, shared "
              f"{resident['RssShmem'] / MIB:.0f} MiB, file {resident['RssFile'] / MIB:.0f} MiB")
        self.assertLessEqual(sum(resident.values()), weights + touched + OVERHEAD_BYTES)

    def resident_bytes(self) -> dict[str, int]:
        text = Path(f"/proc/{self.daemons.pid(ENGINE)}/status").read_text()
        return {name: int(kib) * 1024
                for name, kib in re.findall(r"^(Rss\w+):\s+(\d+) kB$", text, re.MULTILINE)}


if __name__ == "__main__":
    main()
