// cachectl's verbs. Each prints its result on standard output, an error on
// standard error, and returns the exit status.
#ifndef HOLDFAST_CACHESVC_CACHECTL_COMMANDS_H_
#define HOLDFAST_CACHESVC_CACHECTL_COMMANDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cachesvc/cachectl/client.h"

namespace holdfast::cachesvc {

inline constexpr int kExitFailed = 1;  // not reachable, or refused
inline constexpr int kExitUsage = 2;
inline constexpr int kExitDamaged = 3;  // verify found a bad file

struct CtlOptions {
  std::string run_dir = "/run/holdfast";
  bool json = false;
  bool watch = false;        // stats
  std::string what;          // ls
  std::string sort = "key";  // ls
  std::uint32_t limit = 0;   // ls
  bool foreign = false;      // ls, clear
  std::string session_key;   // ls, session save
  std::vector<std::string> keys;
  bool all = false;         // verify
  bool delete_bad = false;  // verify
  std::string tier;         // evict, clear
  std::string older_than;   // evict
  std::string bytes;        // evict
  std::string disk_budget;  // set disk
  std::string spill_budget;
  std::string ttl;
  std::string free_space;
};

int ShowStatus(CacheClient& client, const CtlOptions& options);
int ShowStats(CacheClient& client, const CtlOptions& options);
int ShowUse(CacheClient& client, const CtlOptions& options);
int List(CacheClient& client, const CtlOptions& options);
int Show(CacheClient& client, const CtlOptions& options);
int Verify(CacheClient& client, const CtlOptions& options);
int Evict(CacheClient& client, const CtlOptions& options);
int Clear(CacheClient& client, const CtlOptions& options);
int Pin(CacheClient& client, const CtlOptions& options, bool pinned);
int SetDisk(CacheClient& client, const CtlOptions& options);
int RebuildIndex(CacheClient& client, const CtlOptions& options);
// Asks the engine, which alone has live conversations.
int SaveSession(CacheClient& client, const CtlOptions& options);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_CACHECTL_COMMANDS_H_
