// Copying leased blocks into the state store.
#ifndef HOLDFAST_CACHESVC_LEASE_LEASED_SNAPSHOT_H_
#define HOLDFAST_CACHESVC_LEASE_LEASED_SNAPSHOT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "cachesvc/lease/leased_store.h"
#include "cachesvc/statestore/state_store.h"

namespace holdfast::cachesvc {

// The bytes kept: a session's entry for FileKind::kSession, a prefix's for
// kAnchor. InvalidArgument, ResourceExhausted as of StateStore::Begin; Aborted:
// the lease ended before all was copied, and nothing is kept; of rows on a
// device also what DevicePool::Copy returns.
absl::StatusOr<std::uint64_t> StoreSnapshot(StateStore& store,
                                            const LeasedStore& leased);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_LEASE_LEASED_SNAPSHOT_H_
