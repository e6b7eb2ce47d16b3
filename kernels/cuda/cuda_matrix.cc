#include "kernels/cuda/cuda_matrix.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "kernels/float16.h"
#include "kernels/host/packed_matrix.h"
#include "kernels/host/quant_format.h"
#include "kernels/host/thread_pool.h"

namespace holdfast::kernels::cuda {
namespace {

constexpr std::int64_t kPlaneAlignment = 256;

std::int64_t Aligned(std::int64_t bytes) {
  return (bytes + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment;
}

std::int64_t Pieces(std::int64_t count, std::int64_t of) {
  return (count + of - 1) / of;
}

// Bytes of a row in each plane. Rows of the head plane start where their
// numbers can be loaded.
struct RowBytes {
  std::int64_t low = 0;
  std::int64_t high = 0;
  std::int64_t head = 0;
};

RowBytes RowBytesOf(WeightType type, std::int64_t cols) {
  const QuantFormat format = FormatOf(type);
  const std::int64_t padded = PaddedCols(cols);
  RowBytes bytes;
  if (format.block == 0) {
    bytes.low = padded * (type == WeightType::kF32 ? 4 : 2);
    return bytes;
  }
  bytes.low = format.nibbles ? padded / 2 : padded;
  bytes.high = padded * format.high_bits / 8;
  const HeadFormat head = HeadOf(type);
  bytes.head = Pieces(cols, head.numbers) * head.bytes;
  return bytes;
}

struct RowPlanes {
  std::byte* low;
  std::byte* high;
  std::byte* head;
};

// One block of a row, as PackQuantBlock orders it for a single column: header,
// then groups of high bits and low bits.
void SplitBlock(WeightType type, const std::byte* block, int count,
                RowPlanes* to) {
  const QuantFormat format = FormatOf(type);
  const HeadFormat head = HeadOf(type);
  if (type == WeightType::kQ6_K) {
    std::memcpy(to->head, block, 2);
    std::memcpy(to->head + 4, block + 2, 16);
  } else {
    std::memcpy(to->head, block, head.bytes);
  }
  to->head += head.bytes;
  block += format.header_bytes;
  for (int k = 0; k < count; k += format.group) {
    const int numbers = std::min(format.group, count - k);
    const int high = numbers * format.high_bits / 8;
    const int low = format.nibbles ? numbers / 2 : numbers;
    std::memcpy(to->high, block, high);
    std::memcpy(to->low, block + high, low);
    to->high += high;
    to->low += low;
    block += high + low;
  }
}

float ScaleAt(const WeightTensor& tensor, std::int64_t row, std::int64_t col) {
  if (tensor.scales.empty()) return 0.0f;
  return tensor
      .scales[row / tensor.scale_rows * Pieces(tensor.cols, tensor.scale_cols) +
              col / tensor.scale_cols];
}

// `planes` are zeroed.
void PackRow(const WeightTensor& tensor, std::int64_t row, RowPlanes planes) {
  const std::size_t row_bytes = WeightRowBytes(tensor.type, tensor.cols);
  const std::byte* from = tensor.data + row * row_bytes;
  const QuantFormat format = FormatOf(tensor.type);
  if (format.block == 0) {
    std::memcpy(planes.low, from, row_bytes);
    return;
  }
  std::byte block[512] = {};
  static_assert(QuantBlockBytes(WeightType::kQ6_K) <= sizeof(block));
  for (std::int64_t k = 0; k < tensor.cols; k += format.block) {
    FileBlock file;
    file.data = from;
    file.count =
        static_cast<int>(std::min<std::int64_t>(format.block, tensor.cols - k));
    file.scale = ScaleAt(tensor, row, k);
    PackQuantBlock(tensor.type, file, 1, 0, block);
    SplitBlock(tensor.type, block, file.count, &planes);
    from += WeightRowBytes(tensor.type, file.count);
  }
}

// Packs rows in runs that fit the staging memory and copies each run's planes.
Status Upload(const WeightTensor& tensor, const RowBytes& bytes,
              const PinnedMemory& staging, ThreadPool& pool, std::byte* low,
              std::byte* high, std::byte* head) {
  const std::int64_t of_row = bytes.low + bytes.high + bytes.head;
  const std::int64_t run = static_cast<std::int64_t>(staging.bytes()) / of_row;
  if (run < 1) {
    return ResourceExhausted(DescribeTensor(tensor) + ": a row of " +
                             std::to_string(of_row) +
                             " bytes passes the staging memory");
  }
  for (std::int64_t first = 0; first < tensor.rows; first += run) {
    const std::int64_t rows = std::min(run, tensor.rows - first);
    std::byte* const from_low = staging.data();
    std::byte* const from_high = from_low + rows * bytes.low;
    std::byte* const from_head = from_high + rows * bytes.high;
    std::memset(staging.data(), 0, rows * of_row);
    pool.For(static_cast<int>(rows), [&](int i, int) {
      const std::int64_t n = first + i;
      PackRow(tensor, tensor.row_order.empty() ? n : tensor.row_order[n],
              {from_low + i * bytes.low, from_high + i * bytes.high,
               from_head + i * bytes.head});
    });
    const struct {
      std::byte* to;
      const std::byte* from;
      std::int64_t bytes;
    } planes[] = {{low, from_low, bytes.low},
                  {high, from_high, bytes.high},
                  {head, from_head, bytes.head}};
    for (const auto& plane : planes) {
      if (plane.bytes == 0) continue;
      HF_RETURN_IF_ERROR(CopyToDevice(
          plane.to + first * plane.bytes, plane.from, rows * plane.bytes,
          "copying " + DescribeTensor(tensor) + " to the device"));
    }
  }
  return OkStatus();
}

}  // namespace

std::uint64_t CudaMatrix::NextId() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

StatusOr<std::unique_ptr<CudaMatrix>> CudaMatrix::Pack(
    std::span<const WeightTensor> tensors, const PinnedMemory& staging,
    ThreadPool& pool, WeightPieces& pieces) {
  if (tensors.empty()) return InvalidArgument("a matrix of no tensors");
  auto matrix = std::make_unique<CudaMatrix>();
  std::int64_t total = 0;
  for (const WeightTensor& tensor : tensors) {
    HF_RETURN_IF_ERROR(CheckTensor(tensor));
    if (tensor.cols != tensors[0].cols) {
      return InvalidArgument(DescribeTensor(tensor) +
                             ": cannot be joined with " +
                             DescribeTensor(tensors[0]));
    }
    const RowBytes bytes = RowBytesOf(tensor.type, tensor.cols);
    total += Aligned(tensor.rows * bytes.low) +
             Aligned(tensor.rows * bytes.high) +
             Aligned(tensor.rows * bytes.head);
  }
  HF_ASSIGN_OR_RETURN(matrix->memory_,
                      pieces.Take(total, DescribeTensor(tensors[0])));
  std::byte* at = matrix->memory_.data;
  for (const WeightTensor& tensor : tensors) {
    const RowBytes bytes = RowBytesOf(tensor.type, tensor.cols);
    std::byte* const low = at;
    std::byte* const high = low + Aligned(tensor.rows * bytes.low);
    std::byte* const head = high + Aligned(tensor.rows * bytes.high);
    at = head + Aligned(tensor.rows * bytes.head);
    HF_RETURN_IF_ERROR(Upload(tensor, bytes, staging, pool, low, high, head));
    Part part;
    part.view.type = tensor.type;
    part.view.rows = tensor.rows;
    part.view.cols = tensor.cols;
    part.view.low = reinterpret_cast<const std::uint8_t*>(low);
    part.view.high = reinterpret_cast<const std::uint8_t*>(high);
    part.view.head = reinterpret_cast<const std::uint8_t*>(head);
    part.view.low_stride = bytes.low;
    part.view.high_stride = bytes.high;
    part.view.head_stride = bytes.head;
    part.first_column = matrix->rows_;
    matrix->parts_.push_back(part);
    matrix->rows_ += tensor.rows;
  }
  matrix->cols_ = tensors[0].cols;
  matrix->bytes_ = matrix->memory_.bytes;
  return matrix;
}

StatusOr<std::vector<float>> WidenVector(const WeightTensor& tensor) {
  if (IsQuantised(tensor.type)) {
    return Unimplemented(DescribeTensor(tensor) +
                         ": a vector must be F32, F16 or BF16");
  }
  HF_RETURN_IF_ERROR(CheckTensor(tensor));
  if (!tensor.row_order.empty() && tensor.cols != 1) {
    return InvalidArgument(DescribeTensor(tensor) +
                           ": a row order needs one number a row");
  }
  std::vector<float> numbers(tensor.rows * tensor.cols);
  const std::size_t element = WeightRowBytes(tensor.type, 1);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t from = tensor.row_order.empty() ? i : tensor.row_order[i];
    const std::byte* source = tensor.data + from * element;
    if (tensor.type == WeightType::kF32) {
      std::memcpy(&numbers[i], source, sizeof(float));
      continue;
    }
    std::uint16_t bits;
    std::memcpy(&bits, source, sizeof(bits));
    numbers[i] =
        tensor.type == WeightType::kF16 ? F16ToFloat(bits) : Bf16ToFloat(bits);
  }
  return numbers;
}

}  // namespace holdfast::kernels::cuda
