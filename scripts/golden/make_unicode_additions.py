#!/usr/bin/env python3
"""Writes gateway/tokenizer/unicode_additions.cc.

Hugging Face `tokenizers` matches its patterns with a newer Unicode than the
PCRE2 of Debian 12 (Unicode 14) has. This script asks `tokenizers` itself for
the general category of every character and keeps what Unicode 14 did not
assign, so that both split text alike.

  python3 -m venv VENV && VENV/bin/pip install tokenizers
  VENV/bin/python scripts/golden/make_unicode_additions.py

Python must be 3.11 (its unicodedata is Unicode 14). Last run with tokenizers
0.23.3.
"""

import pathlib
import subprocess
import unicodedata

from tokenizers import Regex, pre_tokenizers

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po "
              "Sm Sc Sk So").split()
OUTPUT = "gateway/tokenizer/unicode_additions.cc"
HEADER = """// Made by scripts/golden/make_unicode_additions.py.
#include "gateway/tokenizer/unicode_additions.h"

namespace holdfast::gateway {
namespace {

"""
FOOTER = """
}  // namespace

std::span<const UnicodeAddition> UnicodeAdditions() { return kAdditions; }

std::span<const CharacterRange> HanAdditions() { return kHan; }

std::span<const CharacterRange> NumericAdditions() { return kNumeric; }

}  // namespace holdfast::gateway
"""


def characters():
  return [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def matching(pattern):
  """The characters that a one-character pattern matches."""
  split = pre_tokenizers.Split(Regex(pattern), "removed")
  every = characters()
  found = set()
  for i in range(0, len(every), 4096):
    batch = every[i:i + 4096]
    kept = set()
    for piece, _ in split.pre_tokenize_str("".join(map(chr, batch))):
      kept.update(map(ord, piece))
    found.update(c for c in batch if c not in kept)
  return found


def ranges(codes):
  result = []
  for code in sorted(codes):
    if result and result[-1][1] == code - 1:
      result[-1][1] = code
    else:
      result.append([code, code])
  return result


def main():
  if unicodedata.unidata_version != "14.0.0":
    raise SystemExit("needs the unicodedata of Unicode 14 (Python 3.11)")
  lines = ["constexpr UnicodeAddition kAdditions[] = {\n"]
  numeric = set()
  for category in CATEGORIES:
    old = {c for c in characters() if unicodedata.category(chr(c)) == category}
    new = matching(r"\p{%s}" % category)
    unassigned = {c for c in new - old if unicodedata.category(chr(c)) == "Cn"}
    if new - old - unassigned or old - new:
      print(f"{category}: changed since Unicode 14, not only added to: ",
            ranges(new - old - unassigned), ranges(old - new))
    for low, high in ranges(unassigned):
      lines.append(f'    {{{{0x{low:X}, 0x{high:X}}}, "{category}"}},\n')
  lines.append("};\n\nconstexpr CharacterRange kHan[] = {\n")
  han = matching(r"\p{Han}")
  for low, high in ranges(c for c in han
                          if unicodedata.category(chr(c)) == "Cn"):
    lines.append(f"    {{0x{low:X}, 0x{high:X}}},\n")
  # The Digits pre-tokenizer has a table of its own, newer still.
  digits = pre_tokenizers.Digits(individual_digits=True)
  numeric = {c for c in characters()
             if len(digits.pre_tokenize_str("a" + chr(c))) == 2}
  lines.append("};\n\nconstexpr CharacterRange kNumeric[] = {\n")
  for low, high in ranges(c for c in numeric
                          if unicodedata.category(chr(c))[0] != "N"):
    lines.append(f"    {{0x{low:X}, 0x{high:X}}},\n")
  lines.append("};\n")
  root = pathlib.Path(__file__).resolve().parents[2]
  path = root / OUTPUT
  path.write_text(HEADER + "".join(lines) + FOOTER)
  subprocess.run(["clang-format", "-i", str(path)], check=True)


if __name__ == "__main__":
  main()
