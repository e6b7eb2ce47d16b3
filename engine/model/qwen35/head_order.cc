#include "engine/model/qwen35/head_order.h"

#include <cstring>

#include "engine/model/message.h"

namespace holdfast::model {
namespace {

using Order = std::vector<std::int32_t>;

void AppendRun(int first, int count, Order* order) {
  for (int i = 0; i < count; ++i) order->push_back(first + i);
}

// Key head and place in its group of the value head at tiled position `p`.
struct Place {
  int group = 0;
  int within = 0;
};
Place PlaceOf(const Qwen35Config& config, int p) {
  return {p % config.key_heads, p / config.key_heads};
}

int Ratio(const Qwen35Config& config) {
  return config.value_heads / config.key_heads;
}

int GroupedIndex(const Qwen35Config& config, int p) {
  const Place place = PlaceOf(config, p);
  return place.group * Ratio(config) + place.within;
}

bool OrdersAreOne(const Qwen35Config& config) {
  return config.key_heads == 1 || config.value_heads == config.key_heads;
}

// Runs of `width` rows, one for each value head, from `first` on.
void AppendHeads(const Qwen35Config& config, int first, int width,
                 Order* order) {
  for (int p = 0; p < config.value_heads; ++p) {
    AppendRun(first + GroupedIndex(config, p) * width, width, order);
  }
}

GdnRowOrders Grouped(const Qwen35Config& config) {
  GdnRowOrders orders;
  const int keys = 2 * config.key_heads * config.key_dim;
  AppendRun(0, keys, &orders.qkv);
  AppendHeads(config, keys, config.value_dim, &orders.qkv);
  AppendHeads(config, 0, config.value_dim, &orders.z);
  AppendHeads(config, 0, 1, &orders.b_and_a);
  orders.heads = orders.b_and_a;
  orders.channels = orders.qkv;
  return orders;
}

GdnRowOrders Fused(const Qwen35Config& config) {
  GdnRowOrders orders = Grouped(config);
  orders.qkv.clear();
  orders.z.clear();
  orders.b_and_a.clear();
  const int ratio = Ratio(config);
  const int values = ratio * config.value_dim;  // of a key head
  const int block = 2 * config.key_dim + 2 * values;
  for (int part = 0; part < 2; ++part) {  // q, then k
    for (int group = 0; group < config.key_heads; ++group) {
      AppendRun(group * block + part * config.key_dim, config.key_dim,
                &orders.qkv);
    }
  }
  for (int part = 0; part < 2; ++part) {  // v, then z
    for (int p = 0; p < config.value_heads; ++p) {
      const Place place = PlaceOf(config, p);
      AppendRun(place.group * block + 2 * config.key_dim + part * values +
                    place.within * config.value_dim,
                config.value_dim, &orders.qkv);
    }
  }
  for (int part = 0; part < 2; ++part) {  // b, then a
    for (int p = 0; p < config.value_heads; ++p) {
      const Place place = PlaceOf(config, p);
      orders.b_and_a.push_back(place.group * 2 * ratio + part * ratio +
                               place.within);
    }
  }
  return orders;
}

// Whether scales beside the numbers go with whole heads.
bool ScalesCanMove(const Qwen35Config& config,
                   const kernels::WeightTensor& tensor) {
  return tensor.scales.empty() || tensor.scale_cols >= tensor.cols ||
         config.value_dim % tensor.scale_cols == 0;
}

void TileScales(const Qwen35Config& config, kernels::WeightTensor* tensor) {
  if (tensor->scales.empty() || tensor->scale_cols >= tensor->cols) return;
  const std::size_t stride = tensor->cols / tensor->scale_cols;
  const std::size_t per_head = config.value_dim / tensor->scale_cols;
  const std::vector<float> grouped = tensor->scales;
  for (std::size_t row = 0; row < grouped.size() / stride; ++row) {
    for (int p = 0; p < config.value_heads; ++p) {
      std::memcpy(
          tensor->scales.data() + row * stride + p * per_head,
          grouped.data() + row * stride + GroupedIndex(config, p) * per_head,
          per_head * sizeof(float));
    }
  }
}

}  // namespace

GdnRowOrders MakeGdnRowOrders(const Qwen35Config& config, GdnFileOrder order) {
  if (order == GdnFileOrder::kFused) return Fused(config);
  if (order == GdnFileOrder::kTiled || OrdersAreOne(config)) return {};
  return Grouped(config);
}

Order QueryGateOrder(const Qwen35Config& config) {
  Order order;
  for (int part = 0; part < 2; ++part) {
    for (int head = 0; head < config.heads; ++head) {
      AppendRun((2 * head + part) * config.head_dim, config.head_dim, &order);
    }
  }
  return order;
}

kernels::Status TileColumns(const Qwen35Config& config, const std::string& file,
                            kernels::WeightTensor* tensor,
                            std::vector<std::byte>* storage) {
  if (OrdersAreOne(config)) return kernels::OkStatus();
  const std::size_t head =
      kernels::WeightRowBytes(tensor->type, config.value_dim);
  if (head == 0 || !ScalesCanMove(config, *tensor)) {
    return kernels::Unimplemented(Message(file, ": tensor ", tensor->name, " (",
                                          kernels::WeightTypeName(tensor->type),
                                          ") has scales that span heads of ",
                                          config.value_dim));
  }
  const std::size_t row = head * config.value_heads;
  storage->resize(row * tensor->rows);
  for (std::int64_t r = 0; r < tensor->rows; ++r) {
    for (int p = 0; p < config.value_heads; ++p) {
      std::memcpy(storage->data() + r * row + p * head,
                  tensor->data + r * row + GroupedIndex(config, p) * head,
                  head);
    }
  }
  tensor->data = storage->data();
  TileScales(config, tensor);
  return kernels::OkStatus();
}

}  // namespace holdfast::model
