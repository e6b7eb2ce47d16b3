// The cache service's sockets in a run directory.
#ifndef HOLDFAST_SHARED_ATTACH_PATHS_H_
#define HOLDFAST_SHARED_ATTACH_PATHS_H_

#include <string>

namespace holdfast::attach {

inline std::string AttachSocketPath(const std::string& run_dir) {
  return run_dir + "/attach.sock";
}
inline std::string CacheSocketPath(const std::string& run_dir) {
  return run_dir + "/cache.sock";
}

}  // namespace holdfast::attach

#endif  // HOLDFAST_SHARED_ATTACH_PATHS_H_
