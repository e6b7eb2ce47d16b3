// Canonical composition (NFC) as Hugging Face `tokenizers` does it.
#ifndef HOLDFAST_GATEWAY_TOKENIZER_NFC_H_
#define HOLDFAST_GATEWAY_TOKENIZER_NFC_H_

#include <string>
#include <string_view>

namespace holdfast::gateway {

// True only where a text may be cut before `code`: its two parts normalize by
// themselves to what they are in the whole, and `code` before another such
// character stays as it is. Not every such character is known here.
bool IsNfcBoundary(char32_t code);

// Appends the NFC of `text`, which must be valid UTF-8.
void AppendNfc(std::string_view text, std::string* out);

}  // namespace holdfast::gateway

#endif  // HOLDFAST_GATEWAY_TOKENIZER_NFC_H_
