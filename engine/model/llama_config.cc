#include "engine/model/llama_config.h"

#include <cmath>
#include <ios>
#include <sstream>

#include "engine/model/message.h"

namespace holdfast::model {
namespace {

struct Bound {
  const char* what;
  int value;
  int max;
};

}  // namespace

bool IsLlamaArchitecture(const std::string& name) {
  return name == "llama" || name == "qwen2" || name == "qwen3";
}

kernels::Status CheckLlamaConfig(const LlamaConfig& config,
                                 const std::string& file) {
  const Bound bounds[] = {
      {"vocabulary size", config.vocab_size, 1 << 22},
      {"context length", config.max_context, 1 << 24},
      {"number of layers", config.layers, 1 << 12},
      {"hidden size", config.hidden, 1 << 17},
      {"feed-forward size", config.ffn, 1 << 20},
      {"number of heads", config.heads, 1 << 10},
      {"number of KV heads", config.kv_heads, 1 << 10},
      {"head dimension", config.head_dim, 1 << 10},
  };
  const auto broken = [&](const auto&... what) {
    return kernels::InvalidArgument(Message(file, ": ", what...));
  };
  for (const Bound& bound : bounds) {
    if (bound.value < 1 || bound.value > bound.max) {
      return broken("the ", bound.what, " is ", bound.value, ", not in 1 to ",
                    bound.max);
    }
  }
  if (config.heads % config.kv_heads != 0) {
    return broken(config.heads, " heads are not a multiple of ",
                  config.kv_heads, " KV heads");
  }
  // What the backends' vectors take.
  if (config.head_dim % 16 != 0) {
    return broken("the head dimension ", config.head_dim,
                  " is not a multiple of 16");
  }
  if (!(config.rms_eps > 0 && config.rms_eps < 1)) {
    return broken("the norms' epsilon is ", config.rms_eps);
  }
  const RopeConfig& rope = config.rope;
  if (!(rope.theta >= 1 && rope.theta <= 1e15)) {
    return broken("the rotary base is ", rope.theta, ", not in 1 to 1e15");
  }
  if (!(rope.factor > 0 && rope.factor <= 1e6)) {
    return broken("the rotary scaling factor is ", rope.factor);
  }
  if (!(rope.low_freq_factor > 0 &&
        rope.low_freq_factor < rope.high_freq_factor &&
        rope.high_freq_factor <= 1e6 && rope.original_context >= 1 &&
        rope.original_context <= 1 << 24)) {
    return broken("the llama3 rotary scaling has low_freq_factor ",
                  rope.low_freq_factor, ", high_freq_factor ",
                  rope.high_freq_factor, ", original context ",
                  rope.original_context);
  }
  return kernels::OkStatus();
}

std::string LlamaConfigText(const LlamaConfig& config) {
  std::ostringstream out;
  out << std::hexfloat << config.architecture << " vocab=" << config.vocab_size
      << " layers=" << config.layers << " hidden=" << config.hidden
      << " ffn=" << config.ffn << " heads=" << config.heads
      << " kv_heads=" << config.kv_heads << " head_dim=" << config.head_dim
      << " eps=" << config.rms_eps << " theta=" << config.rope.theta
      << " scaling=" << static_cast<int>(config.rope.scaling) << ","
      << config.rope.factor << "," << config.rope.low_freq_factor << ","
      << config.rope.high_freq_factor << "," << config.rope.original_context
      << " divisors=" << config.rope_divisors << " bias=" << config.qkv_bias
      << config.output_bias << " qk_norm=" << config.qk_norm
      << " tied=" << config.tied_embeddings
      << " paired_rows=" << config.paired_rows;
  return out.str();
}

}  // namespace holdfast::model
