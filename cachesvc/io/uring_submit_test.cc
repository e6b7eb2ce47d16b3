// A kernel that takes a part of what is submitted: the library's call stands in
// for it.
#include <dlfcn.h>
#include <liburing.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/io/io_pool.h"
#include "gtest/gtest.h"
#include "shared/aligned_buffer.h"

namespace {
std::atomic<int> partial_submits{0};
}  // namespace

// Before the library's, for the pool and for nobody else.
extern "C" int io_uring_submit(io_uring* ring) {
  static const auto real =
      reinterpret_cast<int (*)(io_uring*)>(dlsym(RTLD_NEXT, "io_uring_submit"));
  const unsigned tail = ring->sq.sqe_tail;
  if (io_uring_sq_ready(ring) < 2 || partial_submits.load() == 0) {
    return real(ring);
  }
  --partial_submits;
  ring->sq.sqe_tail = ring->sq.sqe_head + 1;
  const int taken = real(ring);
  ring->sq.sqe_tail = tail;
  return taken;
}

namespace holdfast::cachesvc {
namespace {

TEST(UringSubmitTest, WhatTheKernelLeftIsSubmittedThough) {
  IoPoolOptions options{.kind = IoPoolKind::kUring, .depth = 8};
  auto pool = MakeIoPool(options);
  if (!pool.ok()) GTEST_SKIP() << pool.status();
  std::string pattern = ::testing::TempDir() + "submit_XXXXXX";
  const std::string folder = mkdtemp(pattern.data());
  const auto file = *RealFileSystem().Open(folder + "/a", OpenMode::kCreate);
  ASSERT_TRUE(file->Allocate(4 * kBlockAlignment).ok());
  const auto data = std::make_shared<AlignedBuffer>(4 * kBlockAlignment);
  std::vector<IoRequest> writes;
  for (std::size_t i = 0; i < 4; ++i) {
    writes.push_back(IoRequest::Write(
        file, i * kBlockAlignment,
        data->span().subspan(i * kBlockAlignment, kBlockAlignment)));
  }
  partial_submits = 1;
  const auto batch = (*pool)->Submit(std::move(writes), data);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(partial_submits, 0);
  const auto status = (*batch)->WaitAll(std::chrono::steady_clock::now() +
                                        std::chrono::seconds(10));
  EXPECT_TRUE(status.ok()) << status;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace holdfast::cachesvc
