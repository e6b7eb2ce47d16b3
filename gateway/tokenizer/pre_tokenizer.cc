#include "gateway/tokenizer/pre_tokenizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "gateway/tokenizer/unicode_additions.h"
#include "gateway/tokenizer/utf8.h"

namespace holdfast::gateway {
namespace {

bool IsNumeric(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return std::any_of(NumericAdditions().begin(), NumericAdditions().end(),
                         [code](const CharacterRange& range) {
                           return code >= range.low && code <= range.high;
                         });
  }
}

}  // namespace

void PreTokenizer::Pieces::Clear() {
  views.clear();
  made.clear();
}

absl::StatusOr<PreTokenizer> PreTokenizer::Create(
    const std::vector<PreTokenizerStep>& steps) {
  PreTokenizer result;
  for (const PreTokenizerStep& spec : steps) {
    Step step{.kind = spec.kind, .removed = spec.removed, .regex = {}};
    if (spec.kind == PreTokenizerStep::Kind::kSplitRegex) {
      absl::StatusOr<Regex> regex = Regex::Compile(spec.pattern);
      if (!regex.ok()) return regex.status();
      step.regex = *std::move(regex);
      // A later step could cut inside a match; a search that starts there
      // need not find what one from the match's start does.
      if (step.regex.looks_behind() || &spec != &steps.back()) {
        result.resumable_ = false;
      }
    }
    if (spec.kind == PreTokenizerStep::Kind::kAddPrefixSpace) {
      result.resumable_ = false;
    }
    result.steps_.push_back(std::move(step));
  }
  return result;
}

absl::StatusOr<std::size_t> PreTokenizer::Split(std::string_view text,
                                                bool open,
                                                Pieces& pieces) const {
  return SplitFrom(0, text, open, pieces);
}

absl::StatusOr<std::size_t> PreTokenizer::SplitFrom(std::size_t step,
                                                    std::string_view text,
                                                    bool open,
                                                    Pieces& pieces) const {
  if (text.empty()) return 0;
  if (pieces.stop != nullptr && pieces.stop->load(std::memory_order_relaxed)) {
    return absl::CancelledError("the encoding was stopped");
  }
  if (step == steps_.size()) {
    if (open) return 0;
    pieces.views.push_back(text);
    return text.size();
  }
  switch (steps_[step].kind) {
    case PreTokenizerStep::Kind::kDigitsIndividual:
    case PreTokenizerStep::Kind::kDigitsRuns:
      return SplitDigits(step, text, open, pieces);
    case PreTokenizerStep::Kind::kSplitRegex:
      return SplitRegex(step, text, open, pieces);
    case PreTokenizerStep::Kind::kAddPrefixSpace:
      break;
  }
  if (text[0] == ' ') return SplitFrom(step + 1, text, open, pieces);
  pieces.made.push_back(" " + std::string(text));
  const absl::StatusOr<std::size_t> done =
      SplitFrom(step + 1, pieces.made.back(), open, pieces);
  return done.ok() ? text.size() : done;
}

// Whether a character begins a piece here depends on it and the one before
// alone, so an open last run is passed on and may be taken up anywhere.
absl::StatusOr<std::size_t> PreTokenizer::SplitDigits(std::size_t step,
                                                      std::string_view text,
                                                      bool open,
                                                      Pieces& pieces) const {
  const bool individual =
      steps_[step].kind == PreTokenizerStep::Kind::kDigitsIndividual;
  std::size_t begin = 0;
  bool numeric = false;  // of the run from begin
  for (std::size_t at = 0; at < text.size();) {
    const Character c = FirstCharacter(text.substr(at));
    const bool this_numeric = IsNumeric(c.code);
    if (at > begin && (this_numeric != numeric || (numeric && individual))) {
      const auto done = SplitFrom(step + 1, text.substr(begin, at - begin),
                                  /*open=*/false, pieces);
      if (!done.ok()) return done;
      begin = at;
    }
    numeric = this_numeric;
    at += c.bytes;
  }
  const bool last_open = open && !(numeric && individual);
  const auto done = SplitFrom(step + 1, text.substr(begin), last_open, pieces);
  if (!done.ok()) return done;
  return begin + *done;
}

absl::StatusOr<std::size_t> PreTokenizer::SplitRegex(std::size_t step,
                                                     std::string_view text,
                                                     bool open,
                                                     Pieces& pieces) const {
  const Regex& regex = steps_[step].regex;
  const auto pass_on = [&](std::size_t begin, std::size_t end) {
    return SplitFrom(step + 1, text.substr(begin, end - begin),
                     /*open=*/false, pieces)
        .status();
  };
  std::size_t done = 0;
  while (done < text.size()) {
    const absl::StatusOr<Regex::Found> found =
        regex.Find(text, done, open, pieces.scratch);
    if (!found.ok()) return found.status();
    if (found->outcome != Regex::Outcome::kMatch) {
      // The text between two matches is a piece too, not known yet when open.
      if (open) return done;
      if (absl::Status s = pass_on(done, text.size()); !s.ok()) return s;
      return text.size();
    }
    if (absl::Status s = pass_on(done, found->begin); !s.ok()) return s;
    if (!steps_[step].removed) {
      if (absl::Status s = pass_on(found->begin, found->end); !s.ok()) return s;
    }
    done = found->end;
  }
  return done;
}

}  // namespace holdfast::gateway
