// TokenizerSpec to and from its wire form: the engine sends, the gateway reads.
#ifndef HOLDFAST_SHARED_TOKENIZER_PROTO_H_
#define HOLDFAST_SHARED_TOKENIZER_PROTO_H_

#include "absl/status/statusor.h"
#include "holdfast/v1/tokenizer.pb.h"
#include "shared/tokenizer_spec.h"

namespace holdfast {

v1::Tokenizer ToProto(const TokenizerSpec& spec);
// An error when an id points outside the vocabulary or an enum is unknown.
absl::StatusOr<TokenizerSpec> FromProto(const v1::Tokenizer& proto);

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_TOKENIZER_PROTO_H_
