// Memory of the embedded interpreter, counted, so that one render cannot take
// the process down: an allocation past the budget fails, which Python turns
// into a MemoryError.
#ifndef HOLDFAST_GATEWAY_TEMPLATE_PYTHON_MEMORY_H_
#define HOLDFAST_GATEWAY_TEMPLATE_PYTHON_MEMORY_H_

#include <cstddef>

namespace holdfast::templates {

// Call between Py_PreInitialize and Py_InitializeFromConfig.
void InstallCountedAllocator();

// Bytes of Python objects that may be added while it lives. One at a time; the
// GIL is held when it is made and when it goes.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::size_t bytes);
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;
  ~MemoryBudget();
};

}  // namespace holdfast::templates

#endif  // HOLDFAST_GATEWAY_TEMPLATE_PYTHON_MEMORY_H_
