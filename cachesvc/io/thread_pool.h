// The I/O pool of pread and pwrite.
#ifndef HOLDFAST_CACHESVC_IO_THREAD_POOL_H_
#define HOLDFAST_CACHESVC_IO_THREAD_POOL_H_

#include <memory>
#include <string>

#include "cachesvc/io/io_pool.h"

namespace holdfast::cachesvc {

// `options.depth` threads; with one, requests run in the order of submission.
// `why` comes into Describe().
std::unique_ptr<IoPool> MakeThreadPool(const IoPoolOptions& options,
                                       const std::string& why);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_IO_THREAD_POOL_H_
