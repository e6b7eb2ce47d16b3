"""What scripts/up prints when it serves."""

import unittest

from support import CACHESVC, Daemons, bin_dir, main, paths

from holdfast import up


class UpTest(unittest.TestCase):
    def serve(self, **options) -> Daemons:
        daemons = Daemons(paths.resolve_model("tiny-llama", bin_dir()).path, bin_dir=bin_dir(),
                          **options)
        self.addCleanup(daemons.close)
        daemons.start()
        return daemons

    def test_says_where_the_cache_is_and_whether_it_is_in_use(self) -> None:
        first = self.serve()
        text = up.usage(first)
        self.assertIn(f"Serving tiny-llama at {first.url}\n", text)
        self.assertIn(f"Cache on disk: {first.cache_dir}\n", text)
        self.assertIn(f"{bin_dir()}/cachectl --run-dir {first.run_dir} status\n", text)
        second = up.usage(self.serve(cache_dir=first.cache_dir))
        self.assertIn(f"Nothing is kept on disk: the cache folder {first.cache_dir} is in use by "
                      f"process {first.pid(CACHESVC)}\n", second)
        self.assertNotIn("Cache on disk", second)

    def test_without_a_disk_tier(self) -> None:
        text = up.usage(self.serve(flags={CACHESVC: ["--disk-cache=false"]}))
        self.assertIn("Nothing is kept on disk: ", text)


if __name__ == "__main__":
    main()
