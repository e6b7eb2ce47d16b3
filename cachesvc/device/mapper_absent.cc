// A build without the CUDA backend.
#include "cachesvc/device/device_mapper.h"

namespace holdfast::cachesvc {

std::unique_ptr<DeviceMapper> MakeDeviceMapper() { return nullptr; }

}  // namespace holdfast::cachesvc
