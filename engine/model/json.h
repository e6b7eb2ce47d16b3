// A strict JSON (RFC 8259) reader for model files: config.json, the header of
// safetensors files, tokenizer.json of a dozen megabytes.
//
// Strict: no trailing text, comments, NaN or lone surrogates; a name that
// occurs twice in an object and nesting deeper than kMaxDepth are errors.
// Bytes above 0x7f pass through unchecked.
#ifndef HOLDFAST_ENGINE_MODEL_JSON_H_
#define HOLDFAST_ENGINE_MODEL_JSON_H_

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/status.h"

namespace holdfast::model {

namespace json_internal {

enum class Kind : std::uint8_t {
  kNull,
  kBool,
  kNumber,
  kString,
  kArray,
  kObject
};

// Values lie in document order, the children of a container after it; an
// object's children are name, value, name, value, ...
struct Node {
  Kind kind = Kind::kNull;
  bool exact = false;      // a number that is an int64
  std::uint32_t size = 0;  // bytes of a string, elements or members
  std::uint32_t next = 0;  // index past this value and its children
  double number = 0;
  union {
    const char* text = nullptr;
    std::int64_t integer;
    bool boolean;
  };
};

}  // namespace json_internal

// A value of a JsonDocument, valid while the document lives; cheap to copy.
class JsonValue {
 public:
  using Kind = json_internal::Kind;

  JsonValue(const json_internal::Node* nodes, std::uint32_t index)
      : nodes_(nodes), index_(index) {}

  Kind kind() const { return node().kind; }
  bool is_null() const { return kind() == Kind::kNull; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_number() const { return kind() == Kind::kNumber; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_array() const { return kind() == Kind::kArray; }
  bool is_object() const { return kind() == Kind::kObject; }

  // Each is meaningful for its kind alone.
  bool boolean() const { return node().boolean; }
  double number() const { return node().number; }
  std::string_view string() const { return {node().text, node().size}; }
  std::uint32_t size() const { return node().size; }
  // The number when it was written without fraction and exponent and fits.
  std::optional<std::int64_t> integer() const {
    if (!is_number() || !node().exact) return std::nullopt;
    return node().integer;
  }

  // The member of that name; none when this is no object.
  std::optional<JsonValue> Find(std::string_view name) const;
  // The same, and none when the member is null.
  std::optional<JsonValue> FindSet(std::string_view name) const;

  // for (JsonValue element : array.elements())
  class ElementIterator {
   public:
    ElementIterator(const json_internal::Node* nodes, std::uint32_t index)
        : nodes_(nodes), index_(index) {}
    JsonValue operator*() const { return {nodes_, index_}; }
    ElementIterator& operator++() {
      index_ = nodes_[index_].next;
      return *this;
    }
    bool operator==(const ElementIterator& other) const = default;

   private:
    const json_internal::Node* nodes_;
    std::uint32_t index_;
  };
  // for (auto [name, value] : object.members())
  class MemberIterator {
   public:
    MemberIterator(const json_internal::Node* nodes, std::uint32_t index)
        : nodes_(nodes), index_(index) {}
    std::pair<std::string_view, JsonValue> operator*() const {
      return {JsonValue(nodes_, index_).string(), {nodes_, index_ + 1}};
    }
    MemberIterator& operator++() {
      index_ = nodes_[index_ + 1].next;
      return *this;
    }
    bool operator==(const MemberIterator& other) const = default;

   private:
    const json_internal::Node* nodes_;
    std::uint32_t index_;
  };
  template <typename Iterator>
  struct Range {
    Iterator first, last;
    Iterator begin() const { return first; }
    Iterator end() const { return last; }
  };
  // Empty when this is no array, or no object.
  Range<ElementIterator> elements() const {
    return Children<ElementIterator>(is_array());
  }
  Range<MemberIterator> members() const {
    return Children<MemberIterator>(is_object());
  }

 private:
  const json_internal::Node& node() const { return nodes_[index_]; }
  template <typename Iterator>
  Range<Iterator> Children(bool any) const {
    const Iterator last(nodes_, node().next);
    return {any ? Iterator(nodes_, index_ + 1) : last, last};
  }

  const json_internal::Node* nodes_;
  std::uint32_t index_;
};

// Owns the text and the values. Immutable once parsed.
class JsonDocument {
 public:
  static constexpr int kMaxDepth = 64;

  // `name` is the file, for messages; errors name it and the byte.
  static kernels::StatusOr<JsonDocument> Parse(std::string_view text,
                                               const std::string& name);
  JsonValue root() const { return {nodes_.data(), 0}; }

 private:
  JsonDocument() = default;

  std::unique_ptr<char[]> text_;  // strings are unescaped in place
  std::vector<json_internal::Node> nodes_;
};

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_JSON_H_
