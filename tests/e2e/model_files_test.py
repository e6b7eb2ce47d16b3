"""Model files that cannot be served end the engine with a clear error."""

import json
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import bin_dir, main, paths


class ModelFilesTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-models-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.run_dir = paths.private_run_dir()
        self.addCleanup(shutil.rmtree, self.run_dir)
        self.gguf = paths.generate("tiny-llama", bin_dir()).read_bytes()

    def refused(self, path: Path, *words: str) -> None:
        ran = subprocess.run(
            [paths.program(bin_dir(), "holdfast-engine"), "--model", path,
             "--run-dir", self.run_dir, "--no-cache-service"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        said = ran.stdout + ran.stderr
        self.assertGreater(ran.returncode, 0, f"ended by a signal, or served: {said}")
        self.assertIn(path.name, said, "the message names the file")
        for word in words:
            self.assertIn(word, said)

    def written(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path

    def test_no_such_file(self) -> None:
        self.refused(self.folder / "absent.gguf")

    def test_no_model(self) -> None:
        self.refused(self.written("empty.gguf", b""))
        self.refused(self.written("zeros.gguf", bytes(100000)))
        self.refused(self.written("text.gguf", b"once upon a time " * 1000))
        (self.folder / "nothing").mkdir()
        self.refused(self.folder / "nothing", "config.json")

    def test_truncated(self) -> None:
        for percent in (1, 30, 60, 99):
            self.refused(self.written(f"cut-{percent}.gguf",
                                      self.gguf[:len(self.gguf) * percent // 100]))

    def test_unknown_architecture(self) -> None:
        at = self.gguf.index(b"general.architecture")
        broken = self.gguf[:at] + self.gguf[at:].replace(b"llama", b"lemma", 1)
        self.refused(self.written("lemma.gguf", broken), "lemma")

    def test_unknown_arithmetic_in_a_folder(self) -> None:
        source = paths.generate("tiny-llama-hf", bin_dir())
        folder = self.folder / "sliding"
        shutil.copytree(source, folder)
        config = json.loads((folder / "config.json").read_text())
        config["attn_logit_softcapping"] = 30.0
        (folder / "config.json").write_text(json.dumps(config))
        self.refused(folder, "attn_logit_softcapping")

    def test_hybrid_whose_shapes_disagree(self) -> None:
        folder = self.folder / "wide"
        shutil.copytree(paths.generate("tiny-qwen35-hf", bin_dir()), folder)
        config = json.loads((folder / "config.json").read_text())
        config["linear_num_value_heads"] = 6
        (folder / "config.json").write_text(json.dumps(config))
        self.refused(folder, "model.layers.0.linear_attn.in_proj_qkv.weight", "[256, 64]")

    def test_missing_shard(self) -> None:
        folder = self.folder / "partial"
        shutil.copytree(paths.generate("tiny-llama-hf", bin_dir()), folder)
        shards = sorted(folder.glob("*.safetensors"))
        shards[0].unlink()
        self.refused(folder)


if __name__ == "__main__":
    main()
