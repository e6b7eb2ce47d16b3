// Value heads of gated delta nets in one order, whatever file they come from.
//
// A value head belongs to a key head. Hugging Face files have the value heads
// of a key head side by side ("grouped"), Qwen3-Next's fused projections also
// its query, key, value and z rows; GGUF files have the first value head of
// every key head, then the second of each ("tiled"). Here all are tiled: a
// GGUF file's blocks of 256 numbers can span two heads, so that its columns
// cannot be moved without widening them.
#ifndef HOLDFAST_ENGINE_MODEL_QWEN35_HEAD_ORDER_H_
#define HOLDFAST_ENGINE_MODEL_QWEN35_HEAD_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/qwen35/config.h"
#include "kernels/backend.h"
#include "kernels/status.h"

namespace holdfast::model {

// How a file has the projections of a gated delta net.
enum class GdnFileOrder {
  kGrouped,  // qkv, z, b, a apart
  kFused,    // qkvz and ba, by key head
  kTiled,    // qkv, z, b, a apart
};

// Row n of the result is row order[n] of the file's tensor; empty: as is.
struct GdnRowOrders {
  std::vector<std::int32_t> qkv;       // or q, k, v, z of the fused tensor
  std::vector<std::int32_t> z;         // unused when fused
  std::vector<std::int32_t> b_and_a;   // of each; or b, a of the fused tensor
  std::vector<std::int32_t> heads;     // of vectors with a number a value head
  std::vector<std::int32_t> channels;  // of the convolution
};
GdnRowOrders MakeGdnRowOrders(const Qwen35Config& config, GdnFileOrder order);

// Row order that puts the query rows of all heads before their gate rows; a
// file has both of a head together.
std::vector<std::int32_t> QueryGateOrder(const Qwen35Config& config);

// Moves the columns of an output projection [hidden, value heads x value_dim]
// from grouped to tiled order; `storage` gets the bytes and must outlive the
// tensor. Nothing to do when the orders are one. An error when a block of
// numbers with one scale spans heads.
kernels::Status TileColumns(const Qwen35Config& config, const std::string& file,
                            kernels::WeightTensor* tensor,
                            std::vector<std::byte>* storage);

}  // namespace holdfast::model

#endif  // HOLDFAST_ENGINE_MODEL_QWEN35_HEAD_ORDER_H_
