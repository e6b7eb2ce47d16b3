"""cachectl status, with and without a cache service."""

import shutil
import subprocess

from support import CACHESVC, ENGINE, DaemonTest, bin_dir, main, paths, wait_until


class CachectlTest(DaemonTest):
    def test_attached(self) -> None:
        self.daemons.wait_attached()
        status = self.daemons.cache_status()
        self.assertEqual(status["pid"], self.daemons.pid(CACHESVC))
        self.assertEqual(status["engine"]["pid"], self.daemons.pid(ENGINE))
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

    def test_nobody_there(self) -> None:
        empty = paths.private_run_dir()
        self.addCleanup(shutil.rmtree, empty)
        ran = subprocess.run([paths.program(bin_dir(), "cachectl"), "--run-dir", empty, "status"],
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
        self.assertGreater(ran.returncode, 0)
        self.assertIn("cache.sock", ran.stderr)


if __name__ == "__main__":
    main()
