// HF_CHECK(condition): ends the process, with place and condition, when a rule
// of our own code is broken. Never for what a peer, a file or a user did.
#ifndef HOLDFAST_SHARED_CHECK_H_
#define HOLDFAST_SHARED_CHECK_H_

#include <cstdio>
#include <cstdlib>

#define HF_CHECK(condition)                                                 \
  do {                                                                      \
    if (!(condition)) {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, \
                   #condition);                                             \
      std::abort();                                                         \
    }                                                                       \
  } while (false)

#endif  // HOLDFAST_SHARED_CHECK_H_
