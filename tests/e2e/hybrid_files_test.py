"""A Qwen3.5 folder that transformers wrote and the GGUF file that llama.cpp's
converter made of it are served unchanged, and are one model."""

import unittest

from support import DaemonTest, main, paths

FILES = paths.ROOT / "tests" / "golden" / "qwen35"
QUESTION = "Which of the ropes did the man look at, and who thanked him for it?"


class _FileTest:
    def test_answers_and_resumes(self) -> None:
        cold = self.chat(QUESTION, ignore_eos=True)
        self.assertEqual((cold.status, cold.error, cold.cached_tokens), (200, None, 0))
        warm = self.chat(QUESTION, ignore_eos=True)
        self.assertEqual(warm.holdfast["output_ids"], cold.holdfast["output_ids"])
        self.assertGreater(warm.cached_tokens, 0)
        self.assertEqual(len(cold.holdfast["output_ids"]), 16)
        answers = _FileTest.answers
        answers[self.MODEL] = (cold.holdfast["prompt_ids"], cold.holdfast["output_ids"])
        self.assertEqual(len(set(map(str, answers.values()))), 1, "another model's answer")

    answers: dict = {}


class FolderTest(_FileTest, DaemonTest):
    MODEL = str(FILES / "folder")


class GgufTest(_FileTest, DaemonTest):
    MODEL = str(FILES / "converted.gguf")


if __name__ == "__main__":
    main()
