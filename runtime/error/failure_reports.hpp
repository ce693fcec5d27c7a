#pragma once

#include <coxswain/runtime/error/stream_errors.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

namespace cox::detail {

/// Reports the failures of a helper's stream to the streams that called the helper, with their first cause (L12). Each
/// of these streams throws a failure once; if a future of the helper delivers the failure first, none of them throws
/// it. Any thread.
class FailureReports {
 public:
  /// Reports all failures, earlier and later ones, to `stream` as well, as failures at its `position`. Throws
  /// std::bad_alloc; then nothing has changed.
  void add(std::shared_ptr<StreamErrors> stream, std::uint64_t position);
  /// Adds `error` as a failure at `position` of the helper's stream, whose errors are `helper`, and reports it to the
  /// streams that were added.
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

  std::mutex mutex_;  // locked before a mutex of StreamErrors
  std::vector<Stream> streams_;
  std::vector<Failure> failures_;
};

}  // namespace cox::detail
