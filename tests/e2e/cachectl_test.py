"""cachectl, with and without a cache service."""

import json
import shutil
import subprocess

from support import CACHESVC, ENGINE, DaemonTest, bin_dir, main, paths, wait_until


class CachectlTest(DaemonTest):
    FLAGS = {ENGINE: ["--debug"],
             CACHESVC: ["--disk-free-gb=0", "--allow-small-free-space"]}

    def test_attached(self) -> None:
        self.daemons.wait_attached()
        status = self.daemons.cache_status()
        self.assertEqual(status["pid"], self.daemons.pid(CACHESVC))
        self.assertEqual(status["engine"]["pid"], self.daemons.pid(ENGINE))
        self.assertEqual(status["engine_link"]["pid"], self.daemons.pid(ENGINE))
        self.assertEqual(status["engine_link"]["state"], "attached")
        self.assertFalse(status["draining"])
        text = self.daemons.cachectl("status")
        self.assertEqual(text.returncode, 0, text.stderr)
        self.assertIn(str(self.daemons.pid(ENGINE)), text.stdout)

    def test_a_second_engine_is_refused_and_serves_cold(self) -> None:
        self.daemons.wait_attached()
        model = paths.resolve_model(self.MODEL, bin_dir())
        refused = self.daemons.cache_status()["refused_attaches_total"]
        log = self.daemons.run_dir / "second.log"
        with open(log, "wb") as out:
            second = subprocess.Popen(
                [paths.program(bin_dir(), "holdfast-engine"), "--model", model.path,
                 "--run-dir", self.daemons.run_dir], stdin=subprocess.DEVNULL,
                stdout=out, stderr=out)
        try:
            wait_until("the second engine ends or is refused", lambda: (
                second.poll() is not None or
                self.daemons.cache_status()["refused_attaches_total"] > refused))
        finally:
            second.kill()
            second.wait()
        said = log.read_text(errors="replace")
        self.assertIn(str(self.daemons.pid(ENGINE)), said, "the error names the first's pid")
        self.assertEqual(self.daemons.cache_status()["engine"]["pid"], self.daemons.pid(ENGINE))
        self.assert_serves()

    def test_a_resident_conversation_is_saved_and_pinned(self) -> None:
        self.daemons.wait_attached()
        answer = self.client.generate(
            "/v1/completions", {"model": self.model_id, "prompt": "Once upon a time. " * 40,
                                "max_tokens": 4, "temperature": 0}, {"X-Session-Id": "mine"})
        self.assertEqual(answer.status, 200, answer.error)
        saved = self.daemons.cachectl("session", "save", "--json")
        self.assertEqual(saved.returncode, 0, saved.stderr)
        key = json.loads(saved.stdout)["key"]
        self.assertEqual(len(key), 64)
        shown = json.loads(self.daemons.cachectl("show", key, "--json").stdout)
        self.assertTrue(shown["pinned"])
        self.assertEqual(shown["tier"], "spill")
        self.assertEqual(shown["end_tokens"], json.loads(saved.stdout)["tokens"])
        # The engine serves on, and a session that is not there is named.
        self.assert_serves()
        nobody = self.daemons.cachectl("session", "save", "nobody's")
        self.assertEqual(nobody.returncode, 1)
        self.assertIn("no conversation of this session key", nobody.stderr)
        self.assertEqual(self.daemons.cachectl("session", "drop", key).returncode, 0)

    def test_words_that_are_wrong_or_missing_are_named(self) -> None:
        for words, named in ((["foo"], 'there is no "foo": one of status,'), ([], "a word is missing: one of status,"),
                             (["set", "foo"], 'cachectl set: there is no "foo": one of disk'),
                             (["pin"], "cachectl pin: key is required")):
            ran = self.daemons.cachectl(*words)
            self.assertEqual(ran.returncode, 2)
            self.assertIn(named, ran.stderr)

    def test_nobody_there(self) -> None:
        empty = paths.private_run_dir()
        self.addCleanup(shutil.rmtree, empty)
        ran = subprocess.run([paths.program(bin_dir(), "cachectl"), "--run-dir", empty, "status"],
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
        self.assertGreater(ran.returncode, 0)
        self.assertIn("cache.sock", ran.stderr)


if __name__ == "__main__":
    main()
