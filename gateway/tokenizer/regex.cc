#include "gateway/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <cstdint>

#include "absl/status/status.h"
#include "gateway/tokenizer/regex_translate.h"

namespace holdfast::gateway {
namespace {

// Steps of the matcher in one search: far above what a text of 32 MB needs
// with the patterns in use, and about a second's work.
constexpr std::uint32_t kMatchLimit = 200'000'000;
constexpr std::size_t kStackStart = 32 << 10;
constexpr std::size_t kStackMost = 8 << 20;

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

RegexScratch::RegexScratch()
    : data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(kStackStart, kStackMost, nullptr)) {
  pcre2_set_match_limit(context_, kMatchLimit);
  pcre2_jit_stack_assign(context_, nullptr, stack_);
}

RegexScratch::~RegexScratch() {
  pcre2_jit_stack_free(stack_);
  pcre2_match_context_free(context_);
  pcre2_match_data_free(data_);
}

void Regex::Free::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}

absl::StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  absl::StatusOr<std::string> translated = TranslateRegex(pattern);
  if (!translated.ok()) return translated.status();
  Regex regex;
  regex.pattern_ = std::string(pattern);
  int error = 0;
  PCRE2_SIZE error_at = 0;
  regex.code_.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
      PCRE2_UTF | PCRE2_UCP, &error, &error_at, nullptr));
  if (regex.code_ == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("pattern \"{}\": {}", pattern, ErrorText(error)));
  }
  std::uint32_t matches_empty = 0;
  pcre2_pattern_info(regex.code_.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    return absl::InvalidArgumentError(
        fmt::format("pattern \"{}\" can match the empty text", pattern));
  }
  std::uint32_t behind = 0;
  pcre2_pattern_info(regex.code_.get(), PCRE2_INFO_MAXLOOKBEHIND, &behind);
  regex.looks_behind_ = behind > 0;
  // Where the system forbids writable code, the interpreter gives the same
  // matches, only slower.
  regex.jit_ =
      pcre2_jit_compile(regex.code_.get(),
                        PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
  return regex;
}

absl::StatusOr<Regex::Found> Regex::Find(std::string_view text,
                                         std::size_t from, bool open,
                                         RegexScratch& scratch) const {
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const std::uint32_t partial = open ? PCRE2_PARTIAL_HARD : 0;
  const int result =
      jit_ ? pcre2_jit_match(code_.get(), subject, text.size(), from, partial,
                             scratch.data_, scratch.context_)
           : pcre2_match(code_.get(), subject, text.size(), from,
                         partial | PCRE2_NO_UTF_CHECK, scratch.data_,
                         scratch.context_);
  if (result == PCRE2_ERROR_NOMATCH) return Found{Outcome::kNone, 0, 0};
  if (result == PCRE2_ERROR_PARTIAL) return Found{Outcome::kPartial, 0, 0};
  if (result < 0) {
    return absl::ResourceExhaustedError(
        fmt::format("pattern \"{}\" on {} bytes of text: {}", pattern_,
                    text.size() - from, ErrorText(result)));
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch.data_);
  return Found{Outcome::kMatch, ends[0], ends[1]};
}

}  // namespace holdfast::gateway
