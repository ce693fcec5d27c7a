#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/service/post_queue.hpp>
#include <coxswain/servers/cuda/stream/cuda_streams.hpp>

#include <memory>
#include <vector>

namespace cox::detail {

/// Makes an open device known to hold_while_busy() as long as this object exists. Device thread, but for
/// hold_while_busy().
class DeviceWork {
 public:
  /// Throws std::bad_alloc.
  DeviceWork(DeviceId device, CudaStreams& streams, std::shared_ptr<PostQueue> posts);
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;
  ~DeviceWork();

  /// Keeps `token` until the work that these GPUs had been given when their device threads were asked has completed.
  /// Where it cannot be found out whether it has, as for a device that is not open, the token is dropped. Any thread;
  /// does not block. Throws std::bad_alloc.
  static void hold_while_busy(const std::vector<int>& ordinals, const std::shared_ptr<void>& token);

 private:
  const int ordinal_;
  const PostQueue* const posts_;
};

}  // namespace cox::detail
