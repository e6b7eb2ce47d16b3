#include "engine/model/json.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

#include "engine/model/message.h"

namespace holdfast::model {
namespace {

using json_internal::Kind;
using json_internal::Node;

// Appends a code point as UTF-8.
char* PutUtf8(std::uint32_t code, char* out) {
  if (code < 0x80) {
    *out++ = static_cast<char>(code);
  } else if (code < 0x800) {
    *out++ = static_cast<char>(0xc0 | (code >> 6));
    *out++ = static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    *out++ = static_cast<char>(0xe0 | (code >> 12));
    *out++ = static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    *out++ = static_cast<char>(0x80 | (code & 0x3f));
  } else {
    *out++ = static_cast<char>(0xf0 | (code >> 18));
    *out++ = static_cast<char>(0x80 | ((code >> 12) & 0x3f));
    *out++ = static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    *out++ = static_cast<char>(0x80 | (code & 0x3f));
  }
  return out;
}

// One pass over a writable copy of the text. After the first error every
// function returns false and error() says what it was.
class Parser {
 public:
  Parser(char* text, std::size_t size, std::vector<Node>* nodes)
      : begin_(text), at_(text), end_(text + size), nodes_(nodes) {}

  bool ParseDocument() {
    if (!ParseValue(0)) return false;
    SkipSpace();
    return at_ == end_ || Fail("text after the value");
  }
  const char* error() const { return error_; }
  std::size_t offset() const { return at_ - begin_; }

 private:
  bool Fail(const char* what) {
    if (error_ == nullptr) error_ = what;
    return false;
  }

  void SkipSpace() {
    while (at_ != end_ &&
           (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) {
      ++at_;
    }
  }

  bool Take(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  bool TakeWord(std::string_view word) {
    if (static_cast<std::size_t>(end_ - at_) < word.size() ||
        std::memcmp(at_, word.data(), word.size()) != 0) {
      return Fail("expected a value");
    }
    at_ += word.size();
    return true;
  }

  std::uint32_t Add(Kind kind) {
    nodes_->emplace_back();
    nodes_->back().kind = kind;
    nodes_->back().next = static_cast<std::uint32_t>(nodes_->size());
    return static_cast<std::uint32_t>(nodes_->size() - 1);
  }

  bool ParseValue(int depth) {
    SkipSpace();
    if (at_ == end_) return Fail("expected a value, found the end");
    switch (*at_) {
      case '{':
        return ParseContainer(depth, Kind::kObject, '}');
      case '[':
        return ParseContainer(depth, Kind::kArray, ']');
      case '"':
        return ParseString();
      case 't':
      case 'f': {
        const bool value = *at_ == 't';
        (*nodes_)[Add(Kind::kBool)].boolean = value;
        return TakeWord(value ? "true" : "false");
      }
      case 'n':
        Add(Kind::kNull);
        return TakeWord("null");
      default:
        return ParseNumber();
    }
  }

  bool ParseContainer(int depth, Kind kind, char close) {
    if (depth == JsonDocument::kMaxDepth) return Fail("nested too deeply");
    const std::uint32_t self = Add(kind);
    ++at_;
    std::uint32_t size = 0;
    SkipSpace();
    if (!Take(close)) {
      do {
        if (kind == Kind::kObject && !ParseName()) return false;
        if (!ParseValue(depth + 1)) return false;
        ++size;
        SkipSpace();
      } while (Take(','));
      if (!Take(close)) return Fail("expected ',' or the container's end");
    }
    (*nodes_)[self].size = size;
    (*nodes_)[self].next = static_cast<std::uint32_t>(nodes_->size());
    return kind != Kind::kObject || NamesDiffer(self);
  }

  bool ParseName() {
    SkipSpace();
    if (at_ == end_ || *at_ != '"') return Fail("expected a name in quotes");
    if (!ParseString()) return false;
    SkipSpace();
    return Take(':') || Fail("expected ':'");
  }

  bool NamesDiffer(std::uint32_t object) {
    names_.clear();
    for (auto [name, value] : JsonValue(nodes_->data(), object).members()) {
      names_.push_back(name);
    }
    std::sort(names_.begin(), names_.end());
    return std::adjacent_find(names_.begin(), names_.end()) == names_.end() ||
           Fail("a name occurs twice in the object that ends here");
  }

  bool ParseNumber() {
    const char* start = at_;
    Take('-');
    if (!Take('0') && !TakeDigits()) return Fail("expected a value");
    bool exact = true;
    if (Take('.')) {
      exact = false;
      if (!TakeDigits()) return Fail("expected a digit after the point");
    }
    if (at_ != end_ && (*at_ == 'e' || *at_ == 'E')) {
      exact = false;
      ++at_;
      if (!Take('+')) Take('-');
      if (!TakeDigits()) return Fail("expected a digit in the exponent");
    }
    Node& node = (*nodes_)[Add(Kind::kNumber)];
    node.integer = 0;
    node.exact =
        exact && std::from_chars(start, at_, node.integer).ec == std::errc();
    return std::from_chars(start, at_, node.number).ec == std::errc() ||
           Fail("number out of range");
  }

  bool TakeDigits() {
    const char* start = at_;
    while (at_ != end_ && *at_ >= '0' && *at_ <= '9') ++at_;
    return at_ != start;
  }

  bool ParseString() {
    const std::uint32_t self = Add(Kind::kString);
    ++at_;
    char* out = at_;
    const char* start = out;
    while (true) {
      if (at_ == end_) return Fail("string without an end");
      const char c = *at_;
      if (c == '"') break;
      if (static_cast<unsigned char>(c) < 0x20) {
        return Fail("control character in a string");
      }
      if (c == '\\') {
        if (!ParseEscape(&out)) return false;
      } else {
        *out++ = c;
        ++at_;
      }
    }
    ++at_;
    (*nodes_)[self].text = start;
    (*nodes_)[self].size = static_cast<std::uint32_t>(out - start);
    return true;
  }

  bool ParseEscape(char** out) {
    ++at_;
    if (at_ == end_) return Fail("string without an end");
    const char c = *at_++;
    constexpr std::string_view kFrom = "\"\\/bfnrt";
    constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
    if (const std::size_t i = kFrom.find(c); i != std::string_view::npos) {
      *(*out)++ = kTo[i];
      return true;
    }
    if (c != 'u') return Fail("unknown escape");
    std::uint32_t code = 0;
    if (!ParseHex4(&code)) return false;
    if (code >= 0xdc00 && code < 0xe000) return Fail("lone surrogate");
    if (code >= 0xd800 && code < 0xdc00) {
      std::uint32_t low = 0;
      if (!Take('\\') || !Take('u') || !ParseHex4(&low) || low < 0xdc00 ||
          low >= 0xe000) {
        return Fail("lone surrogate");
      }
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *out = PutUtf8(code, *out);
    return true;
  }

  bool ParseHex4(std::uint32_t* code) {
    if (end_ - at_ < 4) return Fail("string without an end");
    const auto [rest, error] = std::from_chars(at_, at_ + 4, *code, 16);
    if (error != std::errc() || rest != at_ + 4) {
      return Fail("expected four hexadecimal digits");
    }
    at_ += 4;
    return true;
  }

  char* begin_;
  char* at_;
  char* end_;
  std::vector<Node>* nodes_;
  std::vector<std::string_view> names_;  // scratch of NamesDiffer
  const char* error_ = nullptr;
};

}  // namespace

std::optional<JsonValue> JsonValue::Find(std::string_view name) const {
  for (auto [member, value] : members()) {
    if (member == name) return value;
  }
  return std::nullopt;
}

std::optional<JsonValue> JsonValue::FindSet(std::string_view name) const {
  const auto value = Find(name);
  return value && !value->is_null() ? value : std::nullopt;
}

kernels::StatusOr<JsonDocument> JsonDocument::Parse(std::string_view text,
                                                    const std::string& name) {
  // Node indices and sizes are 32 bits, and every node takes a byte of text.
  if (text.size() > std::numeric_limits<std::uint32_t>::max() / 2) {
    return kernels::InvalidArgument(Message(name, ": JSON of over 2 GiB"));
  }
  JsonDocument document;
  document.text_ = std::make_unique<char[]>(text.size() + 1);
  if (!text.empty()) {
    std::memcpy(document.text_.get(), text.data(), text.size());
  }
  document.nodes_.reserve(text.size() / 16 + 1);
  Parser parser(document.text_.get(), text.size(), &document.nodes_);
  if (!parser.ParseDocument()) {
    return kernels::InvalidArgument(Message(name, ": not valid JSON at byte ",
                                            parser.offset(), ": ",
                                            parser.error()));
  }
  return document;
}

}  // namespace holdfast::model
