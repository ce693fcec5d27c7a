#pragma once

#include <coxswain/runtime/error/stream_errors.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

namespace cox::detail {

/// Reports the failures of a helper's stream to the streams that called the helper, with their first cause (L12). Each
/// of these streams throws a failure once; a future of the helper that delivers it withdraws it from all of them. Any
/// thread.
class FailureReports {
 public:
  /// Failures go to `stream`, too, those before as well; as what happened at `position`. Throws std::bad_alloc; then
  /// nothing has changed.
  void add(std::shared_ptr<StreamErrors> stream, std::uint64_t position);
  /// A failure of the helper's stream, whose errors are `helper`, at `position` there.
  void fail(StreamErrors& helper, std::uint64_t position, const std::exception_ptr& error) noexcept;

 private:
  struct Stream {
    std::shared_ptr<StreamErrors> errors;
    std::uint64_t position;
  };
  struct Failure {
    std::exception_ptr error;
    std::shared_ptr<SharedDelivery> shared;
  };

  static void report(const Stream& stream, const Failure& failure) noexcept;

  std::mutex mutex_;  // before those of StreamErrors
  std::vector<Stream> streams_;
  std::vector<Failure> failures_;
};

}  // namespace cox::detail
