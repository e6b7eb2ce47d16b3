#include "engine/model/qwen35/names.h"

namespace holdfast::model {

Qwen35Names HfQwen35Names(const Qwen35Config& config,
                          const TensorMap& tensors) {
  std::string prefix = "model.language_model.";
  if (!tensors.Has(prefix + "embed_tokens.weight")) prefix = "model.";
  Qwen35Names names;
  names.embedding = prefix + "embed_tokens.weight";
  names.final_norm = prefix + "norm.weight";
  names.head = "lm_head.weight";
  names.layer_prefix = prefix + "layers.";
  names.mtp_layer_prefix = "mtp.layers.";
  names.mtp_fc = "mtp.fc.weight";
  names.mtp_norm = "mtp.norm.weight";
  names.mtp_embedding_norm = "mtp.pre_fc_norm_embedding.weight";
  names.mtp_hidden_norm = "mtp.pre_fc_norm_hidden.weight";
  names.input_norm = "input_layernorm.weight";
  names.post_norm = "post_attention_layernorm.weight";
  names.q = "self_attn.q_proj.weight";
  names.k = "self_attn.k_proj.weight";
  names.v = "self_attn.v_proj.weight";
  names.q_norm = "self_attn.q_norm.weight";
  names.k_norm = "self_attn.k_norm.weight";
  names.output = "self_attn.o_proj.weight";
  if (config.architecture == "qwen3_next") {
    names.gdn_order = GdnFileOrder::kFused;
    names.qkv = "linear_attn.in_proj_qkvz.weight";
    names.b = "linear_attn.in_proj_ba.weight";
  } else {
    names.gdn_order = GdnFileOrder::kGrouped;
    names.qkv = "linear_attn.in_proj_qkv.weight";
    names.z = "linear_attn.in_proj_z.weight";
    names.b = "linear_attn.in_proj_b.weight";
    names.a = "linear_attn.in_proj_a.weight";
  }
  names.conv = "linear_attn.conv1d.weight";
  names.decay = "linear_attn.A_log";
  names.dt_bias = "linear_attn.dt_bias";
  names.gdn_norm = "linear_attn.norm.weight";
  names.gdn_output = "linear_attn.out_proj.weight";
  names.gate = "mlp.gate_proj.weight";
  names.up = "mlp.up_proj.weight";
  names.down = "mlp.down_proj.weight";
  names.router = "mlp.gate.weight";
  names.shared_router = "mlp.shared_expert_gate.weight";
  names.shared_gate = "mlp.shared_expert.gate_proj.weight";
  names.shared_up = "mlp.shared_expert.up_proj.weight";
  names.shared_down = "mlp.shared_expert.down_proj.weight";
  names.experts_gate_up = "mlp.experts.gate_up_proj";
  names.experts_down = "mlp.experts.down_proj";
  names.expert_prefix = "mlp.experts.";
  names.expert_gate = ".gate_proj.weight";
  names.expert_up = ".up_proj.weight";
  names.expert_down = ".down_proj.weight";
  return names;
}

Qwen35Names GgufQwen35Names(const Qwen35Config& config) {
  Qwen35Names names;
  names.embedding = "token_embd.weight";
  names.final_norm = "output_norm.weight";
  names.head = "output.weight";
  names.layer_prefix = "blk.";
  const std::string mtp = "blk." + std::to_string(config.layers) + ".nextn.";
  names.mtp_layer_prefix = "blk.";
  names.first_mtp_layer = config.layers;
  names.mtp_fc = mtp + "eh_proj.weight";
  names.mtp_norm = mtp + "shared_head_norm.weight";
  names.mtp_embedding_norm = mtp + "enorm.weight";
  names.mtp_hidden_norm = mtp + "hnorm.weight";
  names.input_norm = "attn_norm.weight";
  names.post_norm = "post_attention_norm.weight";
  names.q = "attn_q.weight";
  names.k = "attn_k.weight";
  names.v = "attn_v.weight";
  names.q_norm = "attn_q_norm.weight";
  names.k_norm = "attn_k_norm.weight";
  names.output = "attn_output.weight";
  names.gdn_order = GdnFileOrder::kTiled;
  names.qkv = "attn_qkv.weight";
  names.z = "attn_gate.weight";
  names.b = "ssm_beta.weight";
  names.a = "ssm_alpha.weight";
  names.conv = "ssm_conv1d.weight";
  names.decay = "ssm_a";
  names.dt_bias = "ssm_dt.bias";
  names.gdn_norm = "ssm_norm.weight";
  names.gdn_output = "ssm_out.weight";
  names.gate = "ffn_gate.weight";
  names.up = "ffn_up.weight";
  names.down = "ffn_down.weight";
  names.router = "ffn_gate_inp.weight";
  names.shared_router = "ffn_gate_inp_shexp.weight";
  names.shared_gate = "ffn_gate_shexp.weight";
  names.shared_up = "ffn_up_shexp.weight";
  names.shared_down = "ffn_down_shexp.weight";
  names.experts_gate = "ffn_gate_exps.weight";
  names.experts_up = "ffn_up_exps.weight";
  names.experts_down = "ffn_down_exps.weight";
  names.is_gguf = true;
  return names;
}

}  // namespace holdfast::model
