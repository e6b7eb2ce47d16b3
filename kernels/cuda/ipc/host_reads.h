// How host memory of each kind takes direct reads of a file, and how the device
// reads shared memory that nobody pinned. For the probe.
#ifndef HOLDFAST_KERNELS_CUDA_IPC_HOST_READS_H_
#define HOLDFAST_KERNELS_CUDA_IPC_HOST_READS_H_

#include <string>

#include "kernels/status.h"

namespace holdfast::kernels::cuda {

struct HostRead {
  Status status;  // why not
  double gb_per_s = 0;
};

// O_DIRECT from a file in `folder`, never through the page cache instead, into
// a pinned memfd and into cudaHostAlloc memory; the device then sees the bytes.
HostRead DirectReadIntoPinnedMemfd(const std::string& folder);
HostRead DirectReadIntoHostAlloc(const std::string& folder);

// A copy to the device out of a memfd that is not pinned.
HostRead CopyFromPlainMemfd();
// A kernel that reads such a memfd by its host address; refused where the
// device does not read pageable memory (attribute 88).
HostRead KernelReadOfPlainMemfd();

}  // namespace holdfast::kernels::cuda

#endif  // HOLDFAST_KERNELS_CUDA_IPC_HOST_READS_H_
