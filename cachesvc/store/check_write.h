// Whether what a caller wants to store is well-formed.
#ifndef HOLDFAST_CACHESVC_STORE_CHECK_WRITE_H_
#define HOLDFAST_CACHESVC_STORE_CHECK_WRITE_H_

#include "absl/status/status.h"
#include "cachesvc/store/store_types.h"

namespace holdfast::cachesvc {

// InvalidArgument names the first part that is not as store_types.h says.
absl::Status CheckWrite(const ManifestWrite& write);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_STORE_CHECK_WRITE_H_
