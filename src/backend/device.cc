#include "backend/device.h"

#include "base/check.h"

namespace lathe::backend {

Result<Buffer> Buffer::create(Device& device, int64_t bytes) {
  LATHE_CHECK(bytes >= 0, "buffer of {} bytes", bytes);
  Buffer buffer;
  LATHE_TRY(buffer.data_, device.allocate(bytes));
  buffer.device_ = &device;
  buffer.bytes_ = bytes;
  return buffer;
}

}  // namespace lathe::backend
