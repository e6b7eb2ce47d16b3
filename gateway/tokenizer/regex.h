// One pattern of a pre-tokenizer, compiled.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_REGEX_H_
#define HOLDFAST_GATEWAY_TOKENIZER_REGEX_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace holdfast::gateway {

// What matching needs and a pattern cannot share between threads. Any Regex
// may use it; one thread at a time.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  pcre2_real_match_data_8* data_;
  pcre2_real_match_context_8* context_;
  pcre2_real_jit_stack_8* stack_;
};

// Immutable; any number of threads, each with its scratch.
class Regex {
 public:
  // `pattern` in Oniguruma's syntax.
  static absl::StatusOr<Regex> Compile(std::string_view pattern);

  enum class Outcome {
    kMatch,
    kNone,     // nowhere in the text
    kPartial,  // more text could change the answer
  };
  struct Found {
    Outcome outcome = Outcome::kNone;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  // The first match at or after `from` in `text`, which must be valid UTF-8.
  // With `open` the text may go on past its end: a match or kNone is then
  // the answer for every continuation. RESOURCE_EXHAUSTED at the match limit.
  absl::StatusOr<Found> Find(std::string_view text, std::size_t from, bool open,
                             RegexScratch& scratch) const;

  // Whether a match may depend on what stands before the place where the
  // search starts.
  bool looks_behind() const { return looks_behind_; }

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, Free> code_;
  bool looks_behind_ = false;
  bool jit_ = false;
  std::string pattern_;
};

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_TOKENIZER_REGEX_H_
