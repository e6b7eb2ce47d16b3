#include "gateway/tokenizer/encoder.h"

#include <algorithm>
#include <optional>

#include "fmt/format.h"
#include "gateway/tokenizer/nfc.h"
#include "gateway/tokenizer/text_cleaner.h"
#include "gateway/tokenizer/utf8.h"

namespace holdfast::gateway {
namespace {

// Between two checkpoints inside a long text without added tokens.
constexpr std::size_t kWindowBytes = 1024;
constexpr std::size_t kLongestCharacter = 4;

absl::Status TooMany(std::size_t most) {
  return absl::OutOfRangeError(fmt::format("has over {} tokens", most));
}

absl::Status Stopped() {
  return absl::CancelledError("the encoding was stopped");
}

}  // namespace

absl::Status Encoder::Run(std::size_t begin) {
  if (!options_.parse_added) return EncodeBetween(begin, text_.size());
  for (const AddedTokens::Part& part :
       tables_.added.Cut(text_, begin, options_.sentinel)) {
    if (!part.id) {
      if (absl::Status s = EncodeBetween(part.begin, part.end); !s.ok()) {
        return s;
      }
      continue;
    }
    if (absl::Status s = AddId(*part.id); !s.ok()) return s;
    if (part.need) AddCheckpoint(part.end, *part.need);
  }
  return absl::OkStatus();
}

absl::Status Encoder::EncodeBetween(std::size_t begin, std::size_t end) {
  const std::string_view between = text_.substr(begin, end - begin);
  if (options_.parse_added && !tables_.normalized.empty()) {
    return EncodeWithNormalized(between);
  }
  // Limits are looked at between windows: all pieces of a large text at once
  // would be too late.
  if ((checkpoints_ != nullptr || limits_.any()) &&
      tables_.pre_tokenizer.resumable()) {
    return EncodeInWindows(begin, end);
  }
  return EncodeClean(CleanText(between, tables_.nfc, options_.sentinel).text());
}

absl::Status Encoder::EncodeWithNormalized(std::string_view text) {
  // With a sentinel the text must be matched before the sentinel goes, so as
  // it is written: then no other spelling of a token in user text is one.
  const bool as_written = options_.sentinel != 0;
  const CleanText whole(text, tables_.nfc && !as_written, 0);
  const AddedTokens& tokens =
      as_written ? tables_.normalized_as_written : tables_.normalized;
  for (const AddedTokens::Part& part :
       tokens.Cut(whole.text(), 0, options_.sentinel)) {
    if (part.id) {
      if (absl::Status s = AddId(*part.id); !s.ok()) return s;
      continue;
    }
    const CleanText clean(
        whole.text().substr(part.begin, part.end - part.begin),
        tables_.nfc && as_written, options_.sentinel);
    if (absl::Status s = EncodeClean(clean.text()); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status Encoder::EncodeClean(std::string_view clean) {
  pieces_.Clear();
  const absl::StatusOr<std::size_t> done =
      tables_.pre_tokenizer.Split(clean, /*open=*/false, pieces_);
  if (!done.ok()) return done.status();
  return EncodePieces(pieces_.views.size());
}

absl::Status Encoder::EncodePieces(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view piece = pieces_.views[i];
    if (limits_.stopped()) return Stopped();
    const std::size_t least = tables_.bpe.LeastIds(piece);
    if (least > limits_.most_piece_ids) return TooMany(limits_.most_piece_ids);
    if (ids_.size() > limits_.most_ids ||
        least > limits_.most_ids - ids_.size()) {
      return TooMany(limits_.most_ids);
    }
    if (!tables_.bpe.Encode(piece, limits_.stop, bpe_scratch_, &ids_)) {
      return Stopped();
    }
  }
  // The last piece may have had more than the least.
  return ids_.size() > limits_.most_ids ? TooMany(limits_.most_ids)
                                        : absl::OkStatus();
}

absl::Status Encoder::AddId(std::uint32_t id) {
  if (ids_.size() >= limits_.most_ids) return TooMany(limits_.most_ids);
  ids_.push_back(id);
  return absl::OkStatus();
}

absl::Status Encoder::EncodeInWindows(std::size_t begin, std::size_t end) {
  std::size_t size = kWindowBytes;
  while (end - begin > size) {
    if (limits_.stopped()) return Stopped();
    const std::size_t window_end = WindowEnd(begin + size, end);
    if (window_end == end) break;
    const absl::StatusOr<std::size_t> done =
        EncodeOpenWindow(begin, window_end);
    if (!done.ok()) return done.status();
    if (*done == begin) {
      size = 2 * (window_end - begin);  // doubling: the work stays linear
      continue;
    }
    begin = *done;
    size = kWindowBytes;
    // Decisions inside the window may have read its last character, and a
    // token that begins in it may end past it.
    const std::size_t reach = std::max(
        options_.parse_added ? tables_.added.reach() : 0, kLongestCharacter);
    AddCheckpoint(begin, window_end + reach);
  }
  return EncodeClean(CleanText(text_.substr(begin, end - begin), tables_.nfc,
                               options_.sentinel)
                         .text());
}

std::size_t Encoder::WindowEnd(std::size_t at, std::size_t end) const {
  while (at < end && (static_cast<unsigned char>(text_[at]) & 0xC0) == 0x80) {
    ++at;
  }
  for (; at < end; at += FirstCharacter(text_.substr(at)).bytes) {
    if (tables_.nfc && !IsNfcBoundary(FirstCharacter(text_.substr(at)).code)) {
      continue;
    }
    // A token that swallows the whitespace before it could reach into the
    // window from past it.
    if (options_.parse_added && tables_.added.any_lstrip() &&
        IsSpace(LastCharacter(text_.substr(0, at)).code)) {
      continue;
    }
    break;
  }
  return at;
}

absl::StatusOr<std::size_t> Encoder::EncodeOpenWindow(std::size_t begin,
                                                      std::size_t window_end) {
  const CleanText clean(text_.substr(begin, window_end - begin), tables_.nfc,
                        options_.sentinel);
  pieces_.Clear();
  const absl::StatusOr<std::size_t> done =
      tables_.pre_tokenizer.Split(clean.text(), /*open=*/true, pieces_);
  if (!done.ok()) return done;
  // A step may remove text, so the end of the text done need not be a piece's.
  std::size_t count = pieces_.views.size();
  std::size_t place = *done;
  while (place > 0) {
    if (const auto raw = clean.RawPlace(place)) {
      if (absl::Status s = EncodePieces(count); !s.ok()) return s;
      return begin + *raw;
    }
    // Between this piece and the one before.
    if (count == 0) break;
    --count;
    place = static_cast<std::size_t>(pieces_.views[count].data() -
                                     clean.text().data());
  }
  return begin;
}

void Encoder::AddCheckpoint(std::size_t offset, std::size_t need) {
  if (checkpoints_ == nullptr || need > text_.size()) return;
  checkpoints_->push_back({offset, need, ids_.size()});
}

}  // namespace holdfast::gateway
