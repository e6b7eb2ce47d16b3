// What cachectl prints.
#ifndef HOLDFAST_CACHESVC_CACHECTL_RENDER_H_
#define HOLDFAST_CACHESVC_CACHECTL_RENDER_H_

#include <string>

#include "holdfast/v1/cache.pb.h"

namespace holdfast::cachesvc {

// Lines for people; ends with a newline. Bytes that would act on a terminal
// are replaced.
std::string StatusTable(const v1::CacheStatus& status);

// One JSON object with the fields' names of the proto; `engine` is null when
// none is attached, epoch and fingerprint are in hex.
std::string StatusJson(const v1::CacheStatus& status);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_CACHECTL_RENDER_H_
