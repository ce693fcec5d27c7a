#pragma once

#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/launch/cube_count.hpp>
#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/tools/cox/stress/buffer.hpp>
#include <coxswain/tools/cox/stress/comparison.hpp>
#include <coxswain/tools/cox/stress/stopwatch.hpp>
#include <coxswain/tools/cox/stress/stream_faults.hpp>
#include <coxswain/tools/cox/stress/stress_kernels.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>
#include <vector>

namespace cox::stress {

/// One stream of a client on a device: its reads, and its expected failures until a call reports them (L12). Each
/// operation returns how long the call took, in nanoseconds. Compute is a ComputeClient or stands in for it. One
/// thread.
template <class Compute>
class DataStream {
 public:
  DataStream(Truth& truth, Compute client) : truth_(&truth), client_(std::move(client)) {}

  [[nodiscard]] const Compute& client() const noexcept { return client_; }

  /// Reads the window and compares. If launches or uploads have failed, the first read throws their failures, and a
  /// second one reads.
  std::uint64_t read_now(const Handle& window, std::span<const std::uint32_t> expected, const Ticket& ticket) {
    const Stopwatch stopwatch;
    try {
      const Bytes got = client_.read_one(window);
      const std::uint64_t time = stopwatch.elapsed();
      check_surfaced(*truth_, ticket, std::exchange(faults_, {}), nullptr);
      check_bytes(*truth_, ticket, expected, got.span());
      return time;
    } catch (const ServerError&) {
      check_surfaced(*truth_, ticket, std::exchange(faults_, {}), std::current_exception());
    }
    if (truth_->violations().any()) return stopwatch.elapsed();
    return read_now(window, expected, ticket);
  }

  /// Requests a read of the window; compares when two more such reads have been requested, or in settle.
  std::uint64_t read_later(const Handle& window, std::span<const std::uint32_t> expected, const Ticket& ticket) {
    constexpr std::size_t most_reads = 2;
    Words copy(expected.begin(), expected.end());
    const std::array<Handle, 1> handles{window};
    const Stopwatch stopwatch;
    auto future = client_.read_async(handles);
    const std::uint64_t time = stopwatch.elapsed();
    reads_.push_back({std::move(future), std::move(copy), std::exchange(faults_, {}), ticket});
    if (reads_.size() <= most_reads) return time;
    PendingRead oldest = std::move(reads_.front());
    reads_.erase(reads_.begin());
    collect(oldest);
    return time;
  }

  /// Launches a kernel that fails; the failure is expected at the next read or sync. The buffer is not poisoned
  /// afterwards.
  std::uint64_t launch_throwing(const Buffer& buffer, const Ticket& ticket) {
    const std::uint64_t time = poison(buffer, ticket);
    client_.accept(buffer.handle);
    return time;
  }
  /// Launches a kernel that fails, as launch_throwing, but leaves the buffer poisoned.
  std::uint64_t poison(const Buffer& buffer, const Ticket& ticket) {
    expect_fault(ticket);
    const Stopwatch stopwatch;
    KernelsOf<Compute>::launch_failing(client_, buffer, ticket.client, ticket.sequence);
    return stopwatch.elapsed();
  }
  /// Poisons the buffer with an upload that fails, because its file is missing.
  std::uint64_t poison_by_upload(const Buffer& buffer, const Ticket& ticket) {
    expect_fault(ticket);
    const Stopwatch stopwatch;
    client_.write(buffer.handle, Bytes::from_file(missing_file(ticket.client, ticket.sequence), 0, buffer.bytes()));
    return stopwatch.elapsed();
  }
  /// Launches a kernel on memory that an operation with that ticket has poisoned, on any stream. Expects it to fail.
  std::uint64_t launch_on_poisoned(const typename Compute::Kernel& kernel, CubeCount count, KernelArguments arguments,
                                   const Ticket& ticket) {
    expect_fault(ticket);
    const Stopwatch stopwatch;
    client_.launch(kernel, std::move(count), std::move(arguments));
    return stopwatch.elapsed();
  }
  /// Reads memory that an operation with that ticket has poisoned, directly or through a kernel that used it.
  void read_poisoned(const Handle& handle, const Ticket& ticket) {
    for (;;) {
      try {
        static_cast<void>(client_.read_one(handle));
        return truth_->violated(Law::Poison, ticket, "a read of poisoned memory fails", "no error");
      } catch (const ServerError&) {
        check_surfaced(*truth_, ticket, std::exchange(faults_, {}), std::current_exception());
        if (truth_->violations().any()) return;
      } catch (const IoError& error) {
        if (error.kind() == IoError::Kind::Poisoned &&
            is_of_fault(std::current_exception(), ticket.client, ticket.sequence))
          return;
        return truth_->violated(Law::Poison, ticket, "IoError Poisoned with the first cause", error.what());
      }
    }
  }

  /// The device was shut down after all work: checks the reads that were requested before.
  void end() {
    for (PendingRead& read : reads_) collect(read);
    reads_.clear();
    faults_.clear();
  }

  /// Waits for all work of the stream, and completes the remaining checks.
  void settle(const Ticket& ticket) {
    std::exception_ptr error;
    try {
      client_.sync().get();
    } catch (...) {
      error = std::current_exception();
    }
    check_surfaced(*truth_, ticket, std::exchange(faults_, {}), error);
    for (PendingRead& read : reads_) collect(read);
    reads_.clear();
  }

 private:
  void expect_fault(const Ticket& ticket) {
    constexpr std::size_t most_faults = 32;
    if (faults_.size() >= most_faults) settle(ticket);
    faults_.push_back(ticket.sequence);
  }

  struct PendingRead {
    Future<std::vector<Bytes>> future;
    Words expected;
    StreamFaults faults;
    Ticket ticket;
  };

  void collect(PendingRead& read) {
    std::exception_ptr error;
    std::vector<Bytes> got;
    try {
      got = read.future.get();
    } catch (...) {
      error = std::current_exception();
    }
    check_surfaced(*truth_, read.ticket, read.faults, error);
    if (error == nullptr) check_bytes(*truth_, read.ticket, read.expected, got.front().span());
  }

  Truth* truth_;
  Compute client_;
  StreamFaults faults_;
  std::vector<PendingRead> reads_;
};

}  // namespace cox::stress
