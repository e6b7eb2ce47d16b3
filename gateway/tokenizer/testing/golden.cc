#include "gateway/tokenizer/testing/golden.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "gateway/tokenizer/utf8.h"

namespace holdfast::gateway::testing {
namespace {

using nlohmann::json;

constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

json ReadJson(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  return json::parse(file);
}

void AddSteps(const json& value, TokenizerSpec* spec) {
  const std::string type = value.at("type");
  PreTokenizerStep step;
  if (type == "Sequence") {
    for (const json& one : value.at("pretokenizers")) AddSteps(one, spec);
  } else if (type == "Digits") {
    step.kind = value.at("individual_digits").get<bool>()
                    ? PreTokenizerStep::Kind::kDigitsIndividual
                    : PreTokenizerStep::Kind::kDigitsRuns;
    spec->pre_tokenizer.push_back(step);
  } else if (type == "Split" && value.at("behavior") == "Isolated") {
    step.pattern = value.at("pattern").at("Regex");
    spec->pre_tokenizer.push_back(step);
  } else if (type == "ByteLevel" && !value.at("add_prefix_space")) {
    if (!value.at("use_regex")) return;
    step.pattern = kGpt2Pattern;
    spec->pre_tokenizer.push_back(step);
  } else {
    throw std::runtime_error("unknown pre-tokenizer " + type);
  }
}

char32_t Between(std::mt19937& random, char32_t low, char32_t high) {
  return std::uniform_int_distribution<std::uint32_t>(low, high)(random);
}

std::string RandomPiece(std::mt19937& random,
                        const std::vector<std::string>& look_alikes) {
  static const std::vector<std::string> kFixed = {"the",
                                                  " of",
                                                  "don't",
                                                  "'LL",
                                                  "'s",
                                                  "'",
                                                  "\r\n",
                                                  "\n",
                                                  "\r",
                                                  "\t",
                                                  "  ",
                                                  "     ",
                                                  " ",
                                                  "\u00A0",
                                                  "\u3000",
                                                  "\u200D",
                                                  "\uFE0F",
                                                  "👩‍👩‍👧",
                                                  "👍🏽",
                                                  "🇩🇪",
                                                  "e\u0301",
                                                  "\u0301",
                                                  "\u0316\u0301",
                                                  "\uAC00\u11A8",
                                                  "\u1100\u1161",
                                                  "=\u0338",
                                                  "<",
                                                  ">",
                                                  "|",
                                                  "()",
                                                  "...",
                                                  "x_y",
                                                  "日本",
                                                  "привет",
                                                  "नमस्ते",
                                                  "\u0344",
                                                  "\u212A",
                                                  "1",
                                                  "23",
                                                  "½",
                                                  "}\n\n",
                                                  "\u00E9",
                                                  "\u1E69",
                                                  "a"};
  const auto pick = [&random](const auto& of) {
    return of[Between(random, 0, static_cast<char32_t>(of.size() - 1))];
  };
  std::string text;
  switch (Between(random, 0, 9)) {
    case 0:
      if (!look_alikes.empty()) return pick(look_alikes);
      [[fallthrough]];
    case 1:
      if (!look_alikes.empty()) {  // a part, at character boundaries
        const std::string whole = pick(look_alikes);
        const auto at = [&] {
          std::size_t i = Between(random, 0, whole.size());
          while (i < whole.size() && (whole[i] & 0xC0) == 0x80) ++i;
          return i;
        };
        const std::size_t a = at();
        const std::size_t b = at();
        return whole.substr(std::min(a, b), std::max(a, b) - std::min(a, b));
      }
      [[fallthrough]];
    case 2:
      do {
        text.clear();
        AppendUtf8(Between(random, 0x20, 0x323AF), &text);
      } while (ValidUtf8Bytes(text) != text.size());
      return text;
    case 3:
      return std::string(Between(random, 1, 40), ' ');
    case 4:
      for (char32_t n = Between(random, 1, 12); n > 0; --n) {
        AppendUtf8(Between(random, 'a', 'z'), &text);
      }
      return text;
    case 5:
      AppendUtf8(Between(random, 0x300, 0x36F), &text);
      return text;
    default:
      return pick(kFixed);
  }
}

}  // namespace

TokenizerSpec GoldenSpec(const std::string& name) {
  const json file = ReadJson("tests/golden/tokenizer/" + name + ".json");
  TokenizerSpec spec;
  spec.source = name;
  const json& model = file.at("model");
  std::map<std::string, std::uint32_t> ids;
  spec.tokens.resize(model.at("vocab").size());
  for (const auto& [token, id] : model.at("vocab").items()) {
    ids[token] = id;
    spec.tokens.at(id) = token;
  }
  for (const json& merge : model.at("merges")) {
    const std::string left = merge.at(0);
    const std::string right = merge.at(1);
    for (const std::string& token : {left, right, left + right}) {
      spec.merges.push_back(ids.at(token));
    }
  }
  spec.ignore_merges = model.at("ignore_merges");
  spec.nfc = !file.at("normalizer").is_null();
  AddSteps(file.at("pre_tokenizer"), &spec);
  for (const json& token : file.at("added_tokens")) {
    spec.added_tokens.push_back({.id = token.at("id"),
                                 .content = token.at("content"),
                                 .special = token.at("special"),
                                 .lstrip = token.at("lstrip"),
                                 .rstrip = token.at("rstrip"),
                                 .normalized = token.at("normalized"),
                                 .single_word = token.at("single_word")});
  }
  return spec;
}

std::unique_ptr<Tokenizer> GoldenTokenizer(const std::string& name) {
  auto tokenizer = Tokenizer::Create(GoldenSpec(name));
  if (!tokenizer.ok()) {
    throw std::runtime_error(std::string(tokenizer.status().message()));
  }
  return *std::move(tokenizer);
}

std::vector<GoldenCase> ReadCases(const std::string& path) {
  std::vector<GoldenCase> cases;
  for (const json& value : ReadJson(path)) {
    GoldenCase one{value.at("text"), value.at("ids"), value.at("ids")};
    if (value.contains("plain")) value.at("plain").get_to(one.plain);
    cases.push_back(std::move(one));
  }
  return cases;
}

std::string RandomText(std::mt19937& random, int pieces,
                       const std::vector<std::string>& look_alikes) {
  std::string text;
  for (int i = 0; i < pieces; ++i) text += RandomPiece(random, look_alikes);
  return text;
}

}  // namespace holdfast::gateway::testing
