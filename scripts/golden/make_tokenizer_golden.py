#!/usr/bin/env python3
"""Makes the golden files of tests/golden/tokenizer with Hugging Face tokenizers.

Trains two small byte-level BPE tokenizers on a text made here and writes, for
each, NAME.json (a tokenizer.json) and NAME.cases.json: texts with the ids that
`tokenizers` gives, with added tokens (`ids`) and as text only (`plain`, where
they differ). With --gguf FILE also smollm2.cases.json, from the tokenizer in
the metadata of the demo model. Everything is seeded: a second run changes
nothing.

  python3 -m venv VENV
  VENV/bin/pip install tokenizers==0.23.3 gguf==0.19.0
  VENV/bin/python scripts/golden/make_tokenizer_golden.py --gguf MODEL.gguf

--check TOKENIZER.json OUT writes the cases for any other tokenizer.json.
"""

import argparse
import json
import pathlib
import random
import unicodedata

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, trainers)

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/golden/tokenizer"
QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

SENTENCES = [
    "The kettle was already singing when the surveyor came in from the rain.",
    "Please don't move the ladder; it's holding up more than you'd expect.",
    "We'll count the crates again, and they've promised to wait until noon.",
    "An index maps every prefix of a conversation to the blocks that hold it.",
    "Rivers carve slowly, but a single flood can redraw the whole valley.",
    "Der Zug nach Köln fährt heute später, weil die Brücke überprüft wird.",
    "Größere Schlüssel öffnen nicht unbedingt größere Türen.",
    "La façade de l'école a été repeinte en août, près du vieux château.",
    "El niño señaló el camino más corto hacia la montaña y después sonrió.",
    "Não há pressa: a maré só sobe ao fim da manhã.",
    "Żółta łódź płynęła pod mostem, gdy zaczął padać śnieg.",
    "Старый маяк светил всю ночь, и корабли шли мимо скал.",
    "Ο ψαράς έδεσε τη βάρκα του πριν από την καταιγίδα.",
    "図書館の窓から、雪をかぶった山がよく見える。",
    "カレーライスとコーヒーをください。",
    "他们在河边种了许多树，春天的时候非常漂亮。",
    "새로운 다리가 내년 봄에 열릴 예정이다.",
    "كان البحر هادئا في الصباح والقوارب عادت مبكرة.",
    "הספרייה נפתחת בשעה תשע בבוקר.",
    "नदी के किनारे बच्चे पतंग उड़ा रहे थे।",
    "วันนี้อากาศดีมาก เราไปเดินเล่นกันเถอะ",
    "Trời hôm nay đẹp quá, chúng ta đi dạo nhé.",
    "Prices rose from 1,204 to 3,998 in 2021, about 231.6 % in 17 months.",
    "Celebrate 🎉 with family 👨‍👩‍👧‍👦 and friends 👍🏽, flags 🇩🇪🇯🇵 too!",
]

CODE = [
    "def moving_average(values, width):\n    total = 0.0\n    for i, v in "
    "enumerate(values):\n        total += v\n        if i >= width:\n"
    "            total -= values[i - width]\n        yield total / "
    "min(i + 1, width)\n",
    "#include <vector>\n\nint Sum(const std::vector<int>& xs) {\n  int sum = 0;"
    "\n  for (int x : xs) sum += x;  // overflow is the caller's\n"
    "  return sum;\n}\n",
    "fn main() {\n    let names = vec![\"ada\", \"bo\"];\n    for (i, name) in "
    "names.iter().enumerate() {\n        println!(\"{i}: {name}\");\n    }\n"
    "}\n",
    "SELECT city, COUNT(*) AS n FROM visits WHERE year >= 2019 GROUP BY city "
    "HAVING COUNT(*) > 10 ORDER BY n DESC;\n",
    "{\"name\": \"probe\", \"args\": {\"path\": \"/tmp/a b.txt\", \"lines\": "
    "[1, 20, 300]}, \"ok\": true}\n",
    "<div class=\"card\">\n\t<a href='#top'>Top &amp; back</a>\n</div>\r\n",
    "for f in *.log; do\n\tgrep -c 'error' \"$f\" || true\ndone\n",
]

LOOK_ALIKES = [
    "<|im_end|>", "<|im_start|>user\nhi<|im_end|>\n", "<|im_end|", "|im_end|>",
    "<<|im_end|>>", "<|im_<|im_end|>end|>", "<|im_end|><|im_end|>",
    "< |im_end|>", "<|IM_END|>", "<|endoftext|>", "<think>", "</think>",
    "<think>\nso\n</think>\n\nanswer", "<think", "<thinking>", "<<think>>",
    "a<think>b</think>c", "<tool_call>{}</tool_call>", "[INST] x [/INST]",
    "  <strip>  ", "a \n\t<strip>\n\n b", "<strip><strip>", " <strip> <strip> ",
    "<left>", "x   <left>   y", "<right>", "x   <right>   y\u3000z",
    "<right>  <left>", "<right>  <right>", "WORD", "a WORD b", "aWORD", "WORDb",
    "WORD WORD", "WORDWORD", "éWORD", "WORD1", "(WORD)", "_WORD", "WORD\u0301",
    "WORD\U0001e5d7", "WORD\u24d0", "WORD\u2188", "WORD\u200d", "WORD\u00b2",
    "Caf\u00e9Token", "Cafe\u0301Token", "xCaf\u00e9Tokeny",
    "Caf\u00e9Token\u0301", "\u212aEY", "KEY", "<\u212aEY>", "<KEY>",
    "<KEY>\u0338", "<|im_end|>\u0338", "<|im_end|>\u0301 x", "<|a|>", "<|a|>b",
    "<|a|>bc", "<|a|>bcd", "\u27e6x\u27e7", "\u27e6", "<repo_name>",
    "<issue_start><issue_comment>",
]

SPACES = (
    [" " * n for n in (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 64, 100, 257)] +
    ["\t" * n for n in (1, 2, 5)] + ["\n" * n for n in (1, 2, 3, 10)] +
    ["\r\n" * n for n in (1, 2, 5)] + [
        "a" + " " * n + "b" for n in (1, 2, 3, 8, 33)] +
    ["a" + " " * n for n in (1, 2, 8)] + [
        "a \n b", "a\n \n b", "a  \r\n  b", "\r", "\n\r", "\r\r\n", " \n", "\n ",
        "a\u00a0b", "a\u00a0\u00a0 b", "\u3000", "\u3000\u3000a", "a\u2003b",
        "\u2028a\u2029", "a\u0085b", "a\u180eb", "\u180e \u180e", "a\u200bb",
        "\ufeffa", "x\u000by\u000cz", "\u001c\u001d\u001e\u001f", "\u202f1",
        " \u00a0 \u3000 x", "    if x:\n        return\n\n\n    else:\n",
        "\t\tx\t\t\n\t", "a\n\n\n   b", "...\n\n", "!\r\n\r\nx", "}\n}\n\n)",
        " \r\n \r\n", "word \n", "word\t \n \t",
    ])

DIGITS = [
    "0", "7", "10", "123", "1234567890", "3.14159", "1,000,000.00", "007",
    "a1b22c333", "2024-05-17T08:09:10Z", "0xDEADBEEF", "1e-9", "½ ⅓ Ⅷ ⅻ",
    "٠١٢٣٤٥", "१२३", "一二三", "①②③", "x²y³", "1٢3", " 1 2  3", "v1.2.3-rc4",
    "\U0001d7ce\U0001d7d8", "\U0001fbf0\U0001fbf1", "1\u0301", "9 9\n9",
    "\U00010d40\U00010d41", "\U00011de0", "\U00016ff4a", "\U00011bf0\U00011f50",
]

WORDS = [
    "", "a", "I'm", "I'M you'LL we'Ve it'S", "don''t", "'s", "''s", "'\u017f",
    "O'Reilly's", "x'tend", "l'été", "naïve café", "nai\u0308ve cafe\u0301",
    "A\u030angstro\u0308m", "\u212bngstr\u00f6m", "e\u0301\u0323 e\u0323\u0301",
    "q\u0307\u0323 q\u0323\u0307", "\u0301", "\u0301\u0301a", " \u0301x",
    "\n\u0301x", "<\u0338", "=\u0338 >\u0338", "\u1100\u1161\u11a8",
    "\uac00\u11a8", "\u1100\u1161", "\u3131\u314f", "\u304b\u3099 \u30cf\u309a",
    "\u0915\u093c \u0958", "\u0b47\u0b3e", "\u0344 \u0374 \u037e \u0387",
    "\ufb01 \ufb06 \ufb1d", "\uf900\ufa10", "\u2126\u212a\u212b",
    "\U0001d15e\U0001d1bb", "\U00011935\U00011930", "a\u0345\u1abf\u0316",
    "a\u0898\u0316", "a\u07fd\u0338", "\U000110a5\U000110ba",
    "\U00010d50\U00010d70", "\U000105c9\U000105d2\u0307",
    "👨‍👩‍👧‍👦", "👍🏽👍🏿", "🇩🇪🇫🇷🇯", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "❤️❤", "☺︎", "1️⃣2️⃣",
    "\U0001fae8\U0001fadf", "a\u0000b", "\u0000", "\u0000\u0000\u0000",
    "\u0001\u0002\u0004\u0006\u0013\u0014\u0016\u001d\u007f",
    "\ufdd0\ufdef\uffff\U0010ffff", "\ue000\U000f0000", "\ufffd",
    "\U00040000\U00080000\U000c0000", "\u200d\u200c", "\u00ad",
    "snake_case camelCase PascalCase SCREAMING_CASE kebab-case",
    "https://example.org/a/b?c=d&e=%20#f", "user@example.com", "C:\\dir\\f.txt",
    "$x = \\frac{1}{2}\\sum_{i=0}^{n} x_i^2$", "λx.λy.x→y ∀∃∈∉⊂",
    "----------", "==========", "//////", "......", "!!!???", "—–-‐‑", "«»“”‘’",
    "()[]{}<>", "🙂" * 40, "漢字" * 60, "a" * 1, "ab" * 300, "x" * 5000,
    "é" * 400, "e\u0301" * 400, "\u0301\u0316" * 200, "-" * 1500, "9" * 700,
    "Donaudampfschifffahrtsgesellschaftskapitän" * 12, "Aa" * 500 + " " * 500,
    "ﷺ", "ا\u064eل\u0651", "שָׁלוֹם", "กำแพง", "ನಮಸ್ಕಾರ", "မြန်မာ", "ខ្មែរ", "ⴰⵣⵓⵍ",
]


def every_category(rng):
  """A text of a few characters of each general category and its neighbours."""
  groups = {}
  for code in range(0x110000):
    if 0xD800 <= code < 0xE000:
      continue
    groups.setdefault(unicodedata.category(chr(code)), []).append(chr(code))
  texts = []
  for _, members in sorted(groups.items()):
    chosen = [rng.choice(members) for _ in range(6)]
    texts.append("".join(chosen))
    texts.append("a" + " b".join(chosen))
    texts.append(" 1".join(chosen) + "\n" + chosen[0])
  return texts


def random_texts(rng, count):
  """Texts that mix alphabets, marks, spaces and look-alikes at random."""
  def from_ranges(*ranges):
    low, high = rng.choice(ranges)
    return chr(rng.randint(low, high))
  makers = [
      lambda: from_ranges((0x20, 0x7E)),
      lambda: from_ranges((0x61, 0x7A)),
      lambda: rng.choice(" \n\r\t\u00a0\u3000") * rng.randint(1, 4),
      lambda: from_ranges((0x30, 0x39)),
      lambda: rng.choice(["'s", "'LL", "'", "\r\n", "\u200d", "\ufe0f"]),
      lambda: from_ranges((0xA0, 0x24F), (0x370, 0x52F), (0x1E00, 0x1FFF)),
      lambda: from_ranges((0x300, 0x36F), (0x483, 0x487), (0x591, 0x5BD),
                          (0x64B, 0x65F), (0x898, 0x89F), (0x1AB0, 0x1ACE)),
      lambda: from_ranges((0x900, 0xDFF), (0xE00, 0x109F), (0x1700, 0x18AF)),
      lambda: from_ranges((0x1100, 0x11FF), (0xAC00, 0xD7A3)),
      lambda: from_ranges((0x3040, 0x30FF), (0x4E00, 0x9FFF)),
      lambda: from_ranges((0x1F300, 0x1FAFF), (0x2000, 0x2BFF)),
      lambda: from_ranges((0x10000, 0x11FFF), (0x16000, 0x1BFFF),
                          (0x1C000, 0x1FFFF), (0x20000, 0x323AF)),
      lambda: from_ranges((0x0, 0xD7FF), (0xE000, 0x10FFFF)),
      lambda: rng.choice(LOOK_ALIKES),
      lambda: rng.choice(SENTENCES).split(" ")[0],
  ]
  texts = []
  for _ in range(count):
    some = rng.sample(makers, rng.randint(2, len(makers)))
    texts.append("".join(rng.choice(some)()
                         for _ in range(rng.randint(1, 40))))
  return texts


def all_texts():
  rng = random.Random(3)
  texts = WORDS + LOOK_ALIKES + SPACES + DIGITS + SENTENCES + CODE
  texts += [" ".join(SENTENCES[:8]), "\n".join(CODE), "".join(SPACES)]
  texts += every_category(rng) + random_texts(rng, 260)
  return [t for t in texts if t.encode("utf-8", "ignore").decode() == t]


def training_text(rng):
  for _ in range(30):
    lines = SENTENCES + CODE
    rng.shuffle(lines)
    for line in lines:
      yield line
    words = " ".join(SENTENCES).split(" ")
    yield " ".join(rng.choice(words) for _ in range(60))
  # Words of no language, so that there is enough to merge.
  syllables = ["ka", "ri", "mo", "ten", "sul", "va", "ber", "ing", "tion",
               "pre", "gra", "lo", "der", "est", "qua", "nym", "ly", "ous"]
  for _ in range(400):
    yield " ".join("".join(rng.choices(syllables, k=rng.randint(1, 4)))
                   for _ in range(20))


def train(normalizer, pre_tokenizer, vocabulary, special):
  tokenizer = Tokenizer(models.BPE())
  if normalizer is not None:
    tokenizer.normalizer = normalizer
  tokenizer.pre_tokenizer = pre_tokenizer
  tokenizer.decoder = decoders.ByteLevel()
  trainer = trainers.BpeTrainer(
      vocab_size=vocabulary, special_tokens=special, show_progress=False,
      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
  tokenizer.train_from_iterator(training_text(random.Random(7)), trainer)
  return tokenizer


def smollm_like():
  return train(
      None,
      pre_tokenizers.Sequence([
          pre_tokenizers.Digits(individual_digits=True),
          pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
      ]), 2400,
      ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"])


def qwen_like():
  tokenizer = train(
      normalizers.NFC(),
      pre_tokenizers.Sequence([
          pre_tokenizers.Split(Regex(QWEN_PATTERN), "isolated", invert=False),
          pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
      ]), 2400, [])

  def plain(text, **flags):
    return AddedToken(text, normalized=flags.pop("normalized", False), **flags)
  tokenizer.add_special_tokens([
      plain(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>",
                         "<|a|>", "<|a|>bc", "\u27e6")])
  tokenizer.add_tokens([
      plain("<tool_call>"), plain("</tool_call>"), plain("<think>"),
      plain("</think>"), plain("<strip>", lstrip=True, rstrip=True),
      plain("<left>", lstrip=True), plain("<right>", rstrip=True),
      plain("WORD", single_word=True)])
  return tokenizer


def normalizing():
  """The second one with tokens that are matched on normalized text."""
  tokenizer = qwen_like()
  tokenizer.add_tokens([
      AddedToken("Caf\u00e9Token", normalized=True),
      AddedToken("<KEY>", normalized=True)])
  return tokenizer


def from_gguf(path):
  from gguf import GGUFReader
  fields = GGUFReader(path).fields
  tokens = fields["tokenizer.ggml.tokens"].contents()
  kinds = fields["tokenizer.ggml.token_type"].contents()
  merges = fields["tokenizer.ggml.merges"].contents()
  tokenizer = Tokenizer(models.BPE(
      {t: i for i, t in enumerate(tokens)},
      [tuple(m.split(" ")) for m in merges]))
  tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
      pre_tokenizers.Digits(individual_digits=True),
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
  tokenizer.decoder = decoders.ByteLevel()
  control = 3
  tokenizer.add_special_tokens(
      [AddedToken(t, normalized=False)
       for t, kind in zip(tokens, kinds) if kind == control])
  return tokenizer


def encode_as_text(tokenizer, text):
  """Ids of `text` with the added tokens taken for text like any other."""
  if tokenizer.normalizer is not None:
    text = tokenizer.normalizer.normalize_str(text)
  ids = []
  for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text):
    ids += [t.id for t in tokenizer.model.tokenize(piece)]
  return ids


def write_cases(tokenizer, path, with_plain=True):
  cases = []
  for text in all_texts():
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    case = {"text": text, "ids": ids}
    plain = encode_as_text(tokenizer, text) if with_plain else ids
    if plain != ids:
      case["plain"] = plain
    cases.append(case)
  lines = [json.dumps(c, ensure_ascii=True, separators=(",", ":"))
           for c in cases]
  path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
  print(f"{path.name}: {len(cases)} cases")


def write_tokenizer(tokenizer, path):
  value = json.loads(tokenizer.to_str())
  path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":"))
                  + "\n")


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--gguf")
  parser.add_argument("--check", nargs=2, metavar=("TOKENIZER", "OUT"))
  options = parser.parse_args()
  if options.check:
    write_cases(Tokenizer.from_file(options.check[0]),
                pathlib.Path(options.check[1]))
    return
  OUT.mkdir(parents=True, exist_ok=True)
  for name, make in (("smollm_like", smollm_like), ("qwen_like", qwen_like),
                     ("normalizing", normalizing)):
    tokenizer = make()
    write_tokenizer(tokenizer, OUT / f"{name}.json")
    write_cases(tokenizer, OUT / f"{name}.cases.json")
  if options.gguf:
    write_cases(from_gguf(options.gguf), OUT / "smollm2.cases.json")


if __name__ == "__main__":
  main()
