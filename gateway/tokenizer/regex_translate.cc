#include "gateway/tokenizer/regex_translate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <iterator>
#include <optional>

#include "absl/status/status.h"
#include "gateway/tokenizer/unicode_additions.h"

namespace holdfast::gateway {
namespace {

// White_Space, which is Oniguruma's \s; PCRE2's has U+180E in it too.
constexpr std::string_view kSpace =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{E}-\x{1F}!-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";

// What Oniguruma's \w has besides categories: Other_Alphabetic symbols, and
// the numbers of Latin-1.
constexpr std::string_view kWordExtras =
    R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";

constexpr std::string_view kCategories[] = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N", "Nd",
    "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm",
    "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf"};

void AddRange(const CharacterRange& range, std::string* members) {
  *members +=
      fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", static_cast<unsigned>(range.low),
                  static_cast<unsigned>(range.high));
}

// What stands inside [] for a property; nothing for a property not known here.
std::optional<std::string> PropertyMembers(std::string_view name) {
  std::string members = fmt::format("\\p{{{}}}", name);
  if (name == "Han") {
    for (const CharacterRange& range : HanAdditions()) {
      AddRange(range, &members);
    }
    return members;
  }
  if (std::find(std::begin(kCategories), std::end(kCategories), name) ==
      std::end(kCategories)) {
    return std::nullopt;
  }
  for (const UnicodeAddition& addition : UnicodeAdditions()) {
    if (addition.category.substr(0, name.size()) == name) {
      AddRange(addition.range, &members);
    }
  }
  return members;
}

std::string Properties(std::initializer_list<std::string_view> names) {
  std::string members;
  for (const std::string_view name : names) members += *PropertyMembers(name);
  return members;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < pattern_.size() && status_.ok()) Item();
    if (!status_.ok()) return status_;
    return std::move(out_);
  }

 private:
  bool StartsWith(std::string_view text) const {
    return pattern_.substr(at_).substr(0, text.size()) == text;
  }

  void Refuse(std::string_view construct) {
    status_ = absl::InvalidArgumentError(
        fmt::format("pattern \"{}\": {} at byte {} is not supported", pattern_,
                    construct, at_));
  }

  void Copy(std::size_t bytes) {
    out_ += pattern_.substr(at_, bytes);
    at_ += bytes;
  }

  void Item() {
    switch (pattern_[at_]) {
      case '\\':
        return Escape(/*in_class=*/false);
      case '[':
        return Class();
      case '(':
        return Group();
      case '{':
        return Interval();
      case '^':
      case '$':
        return Refuse("a line anchor");  // Oniguruma's match at every line
      default:
        return Copy(1);
    }
  }

  void Group() {
    if (!StartsWith("(?")) return Copy(1);
    for (const std::string_view known :
         {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (StartsWith(known)) return Copy(known.size());
    }
    Refuse("this kind of group");
  }

  // {n}, {n,}, {n,m} and {,m}; anything else is a literal brace in both.
  void Interval() {
    std::size_t i = at_ + 1;
    const auto digits = [&] {
      const std::size_t begin = i;
      while (i < pattern_.size() && std::isdigit(Byte(i)) != 0) ++i;
      return i - begin;
    };
    const std::size_t low = digits();
    std::size_t high = 0;
    const bool comma = i < pattern_.size() && pattern_[i] == ',';
    if (comma) {
      ++i;
      high = digits();
    }
    if (i >= pattern_.size() || pattern_[i] != '}' || (low == 0 && high == 0)) {
      out_ += "\\{";
      ++at_;
      return;
    }
    // A + here repeats in Oniguruma and forbids backtracking in PCRE2.
    if (i + 1 < pattern_.size() && pattern_[i + 1] == '+') {
      return Refuse("a + after an interval");
    }
    out_ += low == 0 ? "{0" : "{";
    out_ += pattern_.substr(at_ + 1, i - at_);
    at_ = i + 1;
  }

  void Class() {
    Copy(1);
    if (StartsWith("^")) Copy(1);
    if (StartsWith("]")) return Refuse("a class that begins with ]");
    while (status_.ok()) {
      if (at_ >= pattern_.size()) return Refuse("an unfinished class");
      if (StartsWith("]")) return Copy(1);
      if (StartsWith("[")) return Refuse("a class in a class");
      if (StartsWith("&&")) return Refuse("an intersection of classes");
      if (StartsWith("\\")) {
        Escape(/*in_class=*/true);
      } else {
        Copy(1);
      }
    }
  }

  // `members` as they stand in a class, here inside or outside of one.
  void Members(std::string_view members, bool negated, bool in_class) {
    if (in_class && negated) return Refuse("a negated property in a class");
    if (in_class) {
      out_ += members;
    } else {
      out_ += fmt::format("[{}{}]", negated ? "^" : "", members);
    }
  }

  void Property(bool negated, bool in_class) {
    const std::size_t close = pattern_.find('}', at_);
    if (pattern_.substr(at_, 3).back() != '{' || close == pattern_.npos) {
      return Refuse("a property without braces");
    }
    std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    const std::optional<std::string> members = PropertyMembers(name);
    if (!members) return Refuse(fmt::format("property {}", name));
    Members(*members, negated, in_class);
    at_ = close + 1;
  }

  // \xHH, \x{H...} and \uHHHH; `digits` 0: those in braces.
  void Code(std::size_t digits) {
    std::size_t begin = at_ + 2;
    std::size_t end = begin + digits;
    std::size_t next = end;
    if (digits == 0) {
      ++begin;
      end = pattern_.find('}', begin);
      next = end + 1;
    }
    if (end > pattern_.size() || begin == end || end - begin > 6 ||
        !std::all_of(pattern_.begin() + static_cast<std::ptrdiff_t>(begin),
                     pattern_.begin() + static_cast<std::ptrdiff_t>(end),
                     [](unsigned char c) { return std::isxdigit(c) != 0; })) {
      return Refuse("a malformed character code");
    }
    const std::string_view hex = pattern_.substr(begin, end - begin);
    if (digits == 2 && hex[0] >= '8') return Refuse("a byte that is no ASCII");
    out_ += fmt::format("\\x{{{}}}", hex);
    at_ = next;
  }

  void Escape(bool in_class) {
    if (at_ + 1 >= pattern_.size()) return Refuse("a lone backslash");
    const char c = pattern_[at_ + 1];
    switch (c) {
      case 's':
        Members(kSpace, false, in_class);
        break;
      case 'S':
        Members(kNotSpace, false, in_class);
        break;
      case 'd':
      case 'D':
        Members(Properties({"Nd"}), c == 'D', in_class);
        break;
      case 'w':
      case 'W':
        Members(
            Properties({"L", "M", "Nd", "Nl", "Pc"}) + std::string(kWordExtras),
            c == 'W', in_class);
        break;
      case 'p':
      case 'P':
        return Property(c == 'P', in_class);
      case 'x':
        return Code(at_ + 2 < pattern_.size() && pattern_[at_ + 2] == '{' ? 0
                                                                          : 2);
      case 'u':
        return Code(4);
      case 'v':  // one character in Oniguruma, a class in PCRE2
        out_ += "\\x{B}";
        break;
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        return Copy(2);
      default:
        if (std::isalnum(Byte(at_ + 1)) != 0 || Byte(at_ + 1) >= 0x80) {
          return Refuse(fmt::format("escape \\{}", c));
        }
        return Copy(2);
    }
    at_ += 2;
  }

  unsigned char Byte(std::size_t i) const {
    return static_cast<unsigned char>(pattern_[i]);
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  std::string out_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::string> TranslateRegex(std::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace holdfast::gateway
