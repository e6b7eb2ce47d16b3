#include "engine/model/qwen35/config.h"

#include <algorithm>
#include <ios>
#include <sstream>

#include "engine/model/message.h"

namespace holdfast::model {
namespace {

struct Bound {
  const char* what;
  int value;
  int min;
  int max;
  int multiple = 1;
};

std::string Bits(const std::vector<bool>& flags) {
  std::string text;
  for (const bool flag : flags) text += flag ? '1' : '0';
  return text;
}

bool Any(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), true) != flags.end();
}

}  // namespace

int Qwen35Config::attention_layers() const {
  return static_cast<int>(std::count(attention.begin(), attention.end(), true));
}

bool IsQwen35ModelType(const std::string& name) {
  return name == "qwen3_5" || name == "qwen3_5_text" || name == "qwen3_5_moe" ||
         name == "qwen3_5_moe_text" || name == "qwen3_next";
}

bool IsQwen35GgufArchitecture(const std::string& name) {
  return name == "qwen35" || name == "qwen35moe";
}

kernels::Status CheckQwen35Config(const Qwen35Config& config,
                                  const std::string& file) {
  const bool dense = std::find(config.sparse.begin(), config.sparse.end(),
                               false) != config.sparse.end();
  const bool sparse = Any(config.sparse);
  // Multiples and upper bounds of heads: what the backends' vectors take.
  const Bound bounds[] = {
      {"vocabulary size", config.vocab_size, 1, 1 << 22},
      {"context length", config.max_context, 1, 1 << 24},
      {"number of layers", config.layers, 1, 1 << 12},
      {"hidden size", config.hidden, 1, 1 << 17},
      {"feed-forward size", config.ffn, dense ? 1 : 0, 1 << 20},
      {"number of heads", config.heads, 1, 1 << 10},
      {"number of KV heads", config.kv_heads, 1, 1 << 10},
      {"head dimension", config.head_dim, 1, 1 << 10, 16},
      {"number of rotary dimensions", config.rotary_dims, 2, config.head_dim,
       2},
      {"number of linear key heads", config.key_heads, 1, 1 << 10},
      {"number of linear value heads", config.value_heads, 1, 1 << 10},
      {"linear key head dimension", config.key_dim, 1, 256, 16},
      {"linear value head dimension", config.value_dim, 1, 256, 32},
      {"number of experts", config.experts, sparse ? 1 : 0, 1 << 12},
      {"number of experts of a token", config.top_k, sparse ? 1 : 0,
       config.experts},
      {"experts' feed-forward size", config.expert_ffn, sparse ? 1 : 0,
       1 << 20},
      {"shared expert's feed-forward size", config.shared_ffn, sparse ? 1 : 0,
       1 << 20},
  };
  const auto broken = [&](const auto&... what) {
    return kernels::InvalidArgument(Message(file, ": ", what...));
  };
  for (const Bound& bound : bounds) {
    if (bound.value < bound.min || bound.value > bound.max) {
      return broken("the ", bound.what, " is ", bound.value, ", not in ",
                    bound.min, " to ", bound.max);
    }
    if (bound.value % bound.multiple != 0) {
      return broken("the ", bound.what, " ", bound.value,
                    " is not a multiple of ", bound.multiple);
    }
  }
  if (config.heads % config.kv_heads != 0) {
    return broken(config.heads, " heads are not a multiple of ",
                  config.kv_heads, " KV heads");
  }
  if (config.value_heads % config.key_heads != 0) {
    return broken(config.value_heads,
                  " linear value heads are not a multiple of ",
                  config.key_heads, " linear key heads");
  }
  if (config.attention_layers() == 0 || config.gdn_layers() == 0) {
    return broken("all of the ", config.layers, " layers are of one kind");
  }
  if (!(config.rms_eps > 0 && config.rms_eps < 1)) {
    return broken("the norms' epsilon is ", config.rms_eps);
  }
  if (!(config.rope.theta >= 1 && config.rope.theta <= 1e15)) {
    return broken("the rotary base is ", config.rope.theta,
                  ", not in 1 to 1e15");
  }
  return kernels::OkStatus();
}

std::string Qwen35ConfigText(const Qwen35Config& config) {
  std::ostringstream out;
  out << std::hexfloat << config.architecture << " vocab=" << config.vocab_size
      << " layers=" << config.layers << " hidden=" << config.hidden
      << " ffn=" << config.ffn << " eps=" << config.rms_eps
      << " tied=" << config.tied_embeddings
      << " attention=" << Bits(config.attention)
      << " sparse=" << Bits(config.sparse) << " heads=" << config.heads
      << " kv_heads=" << config.kv_heads << " head_dim=" << config.head_dim
      << " rotary=" << config.rotary_dims << " theta=" << config.rope.theta
      << " gdn=" << config.key_heads << "," << config.value_heads << ","
      << config.key_dim << "," << config.value_dim
      << " experts=" << config.experts << "," << config.top_k << ","
      << config.expert_ffn << "," << config.shared_ffn << ","
      << config.normalise_top_k;
  return out.str();
}

}  // namespace holdfast::model
