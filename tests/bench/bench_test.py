"""The benchmarks run and say what they should; how fast is no test's matter."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))

from holdfast import bench_peer, bench_working_set, paths  # noqa: E402

BIN_DIR = paths.RELEASE_BIN
# A llama-bench that knows its flags and measured the same whatever they are.
FAKE_PEER = """#!/usr/bin/python3
import json, sys
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert set(flags) == {"-m", "-p", "-n", "-d", "-t", "-ngl", "-r", "-o"}, flags
assert flags["-o"] == "json" and flags["-t"] == "1", flags
tests = []
for depth in map(int, flags["-d"].split(",")):
    tests.append({"n_prompt": int(flags["-p"]), "n_gen": 0, "n_depth": depth, "avg_ts": 100.0})
    tests.append({"n_prompt": 0, "n_gen": int(flags["-n"]), "n_depth": depth, "avg_ts": 10.0})
for test in tests:
    test.update(build_commit="abc", backends="CPU")
print(json.dumps(tests))
"""


class SummaryTest(unittest.TestCase):
    def test_ratios_are_of_a_round(self):
        key = ("prefill", 0)
        # The machine was four times as slow in the second round, for both.
        rounds = [bench_peer.Round({key: a}, {key: b})
                  for a, b in ((200.0, 100.0), (50.0, 25.0), (300.0, 100.0))]
        [row] = bench_peer.summarize(rounds)
        self.assertEqual(row["holdfast_tokens_per_s"], 200.0)
        self.assertEqual(row["llama_cpp_tokens_per_s"], 100.0)
        self.assertEqual(row["ratio"], 2.0)

    def test_a_test_the_peer_left_out(self):
        with self.assertRaisesRegex(bench_peer.PeerError, "decode at depth 7"):
            bench_peer.summarize([bench_peer.Round({("decode", 7): 1.0}, {})])


class ProgramTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def bench(self, *arguments, **variables) -> subprocess.CompletedProcess:
        return subprocess.run([paths.program(BIN_DIR, "holdfast-bench"), *map(str, arguments)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=120, env={**os.environ, **variables})

    def test_kernels(self):
        out = self.folder / "kernels.json"
        ran = self.bench("kernels", "--filter",
                         "1024 rows/.*output|^rows/.*(Norm|Rope)|^gdn/(prefill|decode, 18)"
                         "|^machine/(fused|empty|plain read, 1 MiB)",
                         "--rounds", 1, "--min-seconds", 0.001, "--json", out)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        report = json.loads(out.read_text())
        self.assertEqual(len(report["kernels"]), 12)
        for kernel in report["kernels"]:
            self.assertIn(kernel["name"], ran.stdout)
            self.assertGreater(kernel["rate"], 0)
            self.assertEqual(kernel["ratio"] > 0, kernel["floor"] != "")

    def test_the_floor_is_what_openblas_chooses_itself(self):
        out = self.folder / "kernels.json"
        ran = self.bench("kernels", "--filter", "^machine/empty", "--rounds", 1,
                         "--min-seconds", 0.001, "--json", out,
                         OPENBLAS_CORETYPE="Nehalem")  # slower than any CPU that runs this
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("OPENBLAS_CORETYPE", ran.stderr)
        self.assertNotEqual(json.loads(out.read_text())["openblas"], "Nehalem")

    def test_operations_of_a_model(self):
        model = paths.resolve_model("tiny-qwen35-moe-hf", BIN_DIR).path
        out = self.folder / "model.json"
        ran = self.bench("model", "--model", model, "--threads", 1, "--prompt", 600,
                         "--generate", 2, "--json", out)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        prefill, decode = json.loads(out.read_text())["speeds"]
        for speed, steps in ((prefill, 2), (decode, 2)):
            calls = {o["name"]: o["calls"] for o in speed["operations"]}
            self.assertEqual(calls["GatedDeltaNet"], 3 * steps)
            self.assertEqual(calls["Attention"], steps)
            self.assertEqual(calls["MoeExperts"], 4 * steps)
            self.assertEqual(calls["MatMul 263 x 64"], steps)
            shares = [o["share"] for o in speed["operations"]]
            self.assertEqual(shares, sorted(shares, reverse=True))
            self.assertLessEqual(sum(shares), 1)
            self.assertIn("GatedDeltaNet", ran.stdout)

    def test_two_threads_over_one(self):
        model = paths.resolve_model("tiny-qwen35-moe-hf", BIN_DIR).path
        out = self.folder / "threads.json"
        ran = self.bench("threads", "--model", model, "--rounds", 2, "--prompt", 40,
                         "--generate", 2, "--depth", "0,30", "--json", out)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        gains = json.loads(out.read_text())["gains"]
        for test in ("decode", "prefill"):
            for depth in (0, 30):
                of_test = [g for g in gains if (g["test"], g["depth"]) == (test, depth)]
                self.assertEqual(of_test[0]["operation"], "")  # the whole
                self.assertEqual(of_test[0]["share"], 1)
                names = {g["operation"] for g in of_test}
                self.assertLessEqual({"Attention", "GatedDeltaNet", "MatMul 263 x 64"}, names)
                for gain in of_test:
                    self.assertGreater(gain["gain"], 0)
                    self.assertGreater(gain["most"], 0)
                    self.assertLessEqual(gain["most"], 2)
        self.assertIn("the whole", ran.stdout)

    def test_target(self):
        out = self.folder / "kernels.json"
        words = ("kernels", "--filter", "^rows/.*RmsNorm", "--rounds", 1, "--min-seconds", 0.001,
                 "--json", out)
        self.assertEqual(self.bench(*words).returncode, 0)
        best = json.loads(out.read_text())["target"]
        self.assertEqual(self.bench(*words, "--target", best).returncode, 0)
        self.assertEqual(json.loads(out.read_text())["target"], best)
        ran = self.bench(*words, "--target", "abacus")
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn(best, ran.stderr)

    def test_model_that_is_not_there(self):
        ran = self.bench("model", "--model", self.folder / "none.gguf")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("none.gguf", ran.stderr)

    def test_disk(self):
        out = self.folder / "disk.json"
        ran = self.bench("disk", "--folder", self.folder, "--chunk-mb", 1, "--chunks", 2,
                         "--rounds", 1, "--files", 300, "--rows", 2000, "--json", out)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        report = json.loads(out.read_text())
        self.assertEqual([r["name"] for r in report["bandwidth"]],
                         ["restore", "spill", "restore", "spill"])
        self.assertIn("pread/pwrite", report["bandwidth"][3]["pool"])
        for result in report["bandwidth"]:
            self.assertGreater(result["ratio"], 0)
        for result in report["latency"]:
            self.assertGreater(result["p99_us"], 0)
            self.assertIn(result["name"], ran.stdout)
        self.assertGreaterEqual(report["files"], 300)
        self.assertEqual(report["rows"], 2000)
        self.assertEqual(list(self.folder.iterdir()), [out])

    def test_working_set(self):
        out = self.folder / "working_set.json"
        code = bench_working_set.main(["--pool-tokens", "12288", "--ratios", "0.5", "--requests",
                                       "2", "--bin-dir", str(BIN_DIR), "--json", str(out)])
        self.assertEqual(code, 0)
        rows = {row["caches"]: row for row in json.loads(out.read_text())}
        self.assertEqual(set(rows), set(bench_working_set.WANTED))
        for row in rows.values():
            self.assertEqual((row["sessions"], row["requests"]), (1, 2))
            self.assertGreater(row["tokens_per_s"], 0)
        self.assertEqual(rows["bypass"]["hit_rate"], 0)
        self.assertGreater(rows["pool"]["hit_rate"], 0.9)

    def test_peer(self):
        peer = self.folder / "llama-bench"
        peer.write_text(FAKE_PEER)
        peer.chmod(0o755)
        out = self.folder / "peer.json"
        model = paths.resolve_model("tiny-llama", BIN_DIR).path
        code = bench_peer.main(["--llama-bench", str(peer), "--model", str(model), "--threads",
                                "1", "--rounds", "1", "--bin-dir", str(BIN_DIR), "--json",
                                str(out)])
        self.assertEqual(code, 0)
        report = json.loads(out.read_text())
        self.assertEqual([(t["test"], t["depth"]) for t in report["tests"]],
                         [("prefill", 0), ("decode", 0), ("prefill", 2048), ("decode", 2048)])
        for test in report["tests"]:
            self.assertGreater(test["ratio"], 0)

    def test_peer_that_fails(self):
        self.assertEqual(bench_peer.main(["--llama-bench", "/bin/false", "--model",
                                          str(self.folder / "none"), "--bin-dir",
                                          str(BIN_DIR)]), 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin-dir", type=Path, default=BIN_DIR)
    args, rest = parser.parse_known_args()
    BIN_DIR = args.bin_dir
    unittest.main(argv=[sys.argv[0], *rest])
