// Whether two JSON texts say the same.
#ifndef HOLDFAST_SHARED_ALIGN_JSON_EQUAL_H_
#define HOLDFAST_SHARED_ALIGN_JSON_EQUAL_H_

#include <string_view>

namespace holdfast::align {

// Equal by value: spacing, the order of keys and how a character or a number is
// written do not count. Integers are exact, however long; other numbers are
// doubles. False where either is no JSON, has a key twice, or is nested deeper
// than 256 levels: then nothing is known.
bool EqualJson(std::string_view a, std::string_view b);

}  // namespace holdfast::align

#endif  // HOLDFAST_SHARED_ALIGN_JSON_EQUAL_H_
