#include "gateway/openai/request_common.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "fmt/format.h"
#include "gateway/openai/fields.h"

namespace holdfast::openai {
namespace {

constexpr std::uint32_t kMaxUint32 = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kMaxName = 512;
constexpr std::size_t kMaxSalt = 1024;
constexpr std::size_t kMaxStops = 16;
constexpr std::size_t kMaxStopBytes = 1024;
constexpr std::size_t kMaxBiases = 1024;
// Divisors below this overflow a float; the answer is the greedy one long
// before.
constexpr float kGreedyTemperature = 1e-5F;
constexpr float kSmallestTopP = 1e-6F;  // the best token alone, long before

// Not by ==, to which 2^64 - 1 is the same.
bool IsMinusOne(const Json& json) {
  return json.is_number_integer() && !json.is_number_unsigned() &&
         json.get<std::int64_t>() == -1;
}

void ParseSeed(Fields* fields, Sampling* sampling) {
  const Json* seed = fields->Find("seed");
  if (seed == nullptr || IsMinusOne(*seed))
    return;  // -1: random, as llama.cpp has it
  // OpenAI's go down to -2^63.
  if (seed->is_number_integer() && !seed->is_number_unsigned()) {
    sampling->seed = static_cast<std::uint64_t>(seed->get<std::int64_t>());
    return;
  }
  const auto value =
      WholeNumber(*seed, 0, std::numeric_limits<std::uint64_t>::max());
  if (!value) {
    return fields->Fail("seed",
                        "must be a whole number from -2^63 to 2^64 - 1");
  }
  sampling->seed = *value;
}

void ParseTopK(Fields* fields, Sampling* sampling) {
  const Json* top_k = fields->Find("top_k");
  if (top_k == nullptr || IsMinusOne(*top_k))
    return;  // -1: off, as vLLM has it
  std::optional<std::uint32_t> value;
  fields->Uint("top_k", 0, kMaxUint32, &value);
  if (value) sampling->top_k = *value;
}

void ParseLogitBias(Fields* fields, std::uint32_t vocab_size,
                    Sampling* sampling) {
  const Json* biases = fields->Find("logit_bias");
  if (biases == nullptr) return;
  if (!biases->is_object()) {
    return fields->Fail("logit_bias",
                        fmt::format("must be an object from token ids to "
                                    "numbers, not {}",
                                    TypeName(*biases)));
  }
  if (biases->size() > kMaxBiases) {
    return fields->Fail("logit_bias",
                        fmt::format("has over {} entries", kMaxBiases));
  }
  for (const auto& [key, bias] : biases->items()) {
    std::uint32_t id = 0;
    const char* const end = key.data() + key.size();
    const auto [rest, error] = std::from_chars(key.data(), end, id);
    if (error != std::errc() || rest != end || id >= vocab_size) {
      return fields->Fail(
          "logit_bias",
          fmt::format("\"{}\" is no token id below {}", key, vocab_size));
    }
    if (!bias.is_number() || !(bias.get<double>() >= -100) ||
        !(bias.get<double>() <= 100)) {
      return fields->Fail(
          "logit_bias",
          fmt::format("the bias of {} must be between -100 and 100", id));
    }
    sampling->logit_bias[id] = bias.get<float>();
  }
}

void ParseSampling(Fields* fields, std::uint32_t vocab_size,
                   Sampling* sampling) {
  fields->Float("temperature", 0, 2, &sampling->temperature);
  if (sampling->temperature < kGreedyTemperature) sampling->temperature = 0;
  const Json* top_p = fields->Find("top_p");
  if (top_p != nullptr && *top_p == 0) {
    fields->Fail("top_p", "must be above 0");
  }
  fields->Float("top_p", 0, 1, &sampling->top_p);
  sampling->top_p = std::max(sampling->top_p, kSmallestTopP);
  fields->Float("min_p", 0, 1, &sampling->min_p);
  ParseTopK(fields, sampling);
  // llama.cpp's name; the other one counts where both are given.
  fields->Float("repeat_penalty", 0.01, 10, &sampling->repetition_penalty);
  fields->Float("repetition_penalty", 0.01, 10, &sampling->repetition_penalty);
  fields->Float("presence_penalty", -2, 2, &sampling->presence_penalty);
  fields->Float("frequency_penalty", -2, 2, &sampling->frequency_penalty);
  ParseSeed(fields, sampling);
  ParseLogitBias(fields, vocab_size, sampling);
}

void ParseStop(Fields* fields, std::vector<std::string>* stops) {
  const Json* stop = fields->Find("stop");
  if (stop == nullptr) return;
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  if (list.size() > kMaxStops) {
    return fields->Fail("stop", fmt::format("has over {} entries", kMaxStops));
  }
  for (const Json& entry : list) {
    if (!entry.is_string()) {
      return fields->Fail("stop", fmt::format("must be a string or an array of "
                                              "strings, not {}",
                                              TypeName(entry)));
    }
    const auto& text = entry.get_ref<const std::string&>();
    if (text.empty() || text.size() > kMaxStopBytes) {
      return fields->Fail("stop", fmt::format("a stop string must have 1 to "
                                              "{} bytes",
                                              kMaxStopBytes));
    }
    stops->push_back(text);
  }
}

void ParseStreaming(const Json& body, std::optional<ApiError>* error,
                    CommonRequest* request) {
  Fields fields(body, "", error);
  fields.Bool("stream", &request->stream);
  const Json* options = fields.Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) {
    return fields.Fail(
        "stream_options",
        fmt::format("must be an object, not {}", TypeName(*options)));
  }
  Fields(*options, "stream_options", error)
      .Bool("include_usage", &request->include_usage);
}

void ParseMaxTokens(Fields* fields, CommonRequest* request) {
  // The newer name counts where both are given.
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    const Json* most = fields->Find(name);
    if (most != nullptr && IsMinusOne(*most)) {
      request->max_tokens.reset();  // no limit, as llama.cpp has it
    } else {
      fields->Uint(name, 1, kMaxUint32, &request->max_tokens);
    }
  }
}

// A hint that other servers ignore: one that cannot be used is no error.
void ParseCacheKey(const Json& body, CommonRequest* request) {
  for (const char* name : {"prompt_cache_key", "promptCacheKey"}) {
    const auto key = body.find(name);
    if (key == body.end() || !key->is_string()) continue;
    const auto& text = key->get_ref<const std::string&>();
    if (text.empty() || text.size() > kMaxName) continue;
    request->cache_key = text;
    return;
  }
}

void ParseCacheMode(Fields* fields, CommonRequest* request) {
  std::string mode = "default";
  fields->String("cache", kMaxName, &mode);
  if (mode == "bypass") {
    request->cache_mode = CacheMode::kBypass;
  } else if (mode == "read_only") {
    request->cache_mode = CacheMode::kReadOnly;
  } else if (mode != "default") {
    fields->Fail("cache", "must be default, bypass or read_only");
  }
}

void ParseAlign(Fields* fields, CommonRequest* request) {
  std::string align = "on";
  fields->String("align", kMaxName, &align);
  request->align = align == "on";
  if (align != "on" && align != "off") {
    fields->Fail("align", "must be on or off");
  }
}

// Our own object: an unknown key is a mistake, not another server's extension.
void ParseHoldfast(const Json& body, bool debug, std::optional<ApiError>* error,
                   CommonRequest* request) {
  Fields outer(body, "", error);
  const Json* options = outer.Find("holdfast");
  if (options == nullptr) return;
  if (!options->is_object()) {
    return outer.Fail("holdfast", fmt::format("must be an object, not {}",
                                              TypeName(*options)));
  }
  Fields fields(*options, "holdfast", error);
  for (const auto& [key, value] : options->items()) {
    if (key != "align" && key != "cache" && key != "digest" && key != "force") {
      return fields.Fail(key.c_str(), "there is no such field");
    }
  }
  ParseCacheMode(&fields, request);
  ParseAlign(&fields, request);
  fields.Bool("digest", &request->digest);
  const Json* force = fields.Find("force");
  if (!debug && (request->digest || force != nullptr)) {
    return fields.Fail(force != nullptr ? "force" : "digest",
                       "needs an engine that was started with --debug");
  }
  if (force == nullptr) return;
  ApiOr<Force> parsed = ParseForce(*force, fields.Path("force"));
  if (parsed.ok()) {
    request->force = std::move(*parsed);
  } else {
    *error = parsed.error();
  }
}

void CheckModel(Fields* fields, const std::string& served,
                std::optional<ApiError>* error) {
  std::string model;
  fields->String("model", kMaxName, &model);
  if (!*error && !model.empty() && model != served) {
    *error = ModelNotFound(model);
  }
}

}  // namespace

std::optional<ApiError> ParseCommon(const Json& body, const ServerFacts& facts,
                                    CommonRequest* request) {
  if (!body.is_object()) {
    return FieldError("", "the request body must be a JSON object");
  }
  std::optional<ApiError> error;
  Fields fields(body, "", &error);
  CheckModel(&fields, facts.model, &error);
  if (!error) error = RefuseUnsupported(body);
  ParseSampling(&fields, facts.vocab_size, &request->sampling);
  ParseMaxTokens(&fields, request);
  ParseStop(&fields, &request->stop);
  fields.Bool("ignore_eos", &request->ignore_eos);
  ParseStreaming(body, &error, request);
  fields.String("cache_salt", kMaxSalt, &request->cache_salt);
  fields.String("session_id", kMaxName, &request->session_id);
  ParseCacheKey(body, request);
  ParseHoldfast(body, facts.debug, &error, request);
  return error;
}

}  // namespace holdfast::openai
