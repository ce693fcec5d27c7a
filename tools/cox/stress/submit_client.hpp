#pragma once

#include <coxswain/device_handle/base/call_options.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/tools/cox/stress/cargo.hpp>
#include <coxswain/tools/cox/stress/hopeless.hpp>
#include <coxswain/tools/cox/stress/program.hpp>
#include <coxswain/tools/cox/stress/stopwatch.hpp>
#include <coxswain/tools/cox/stress/ticket_book.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cox::stress {

/// Does submit, with its faults. Handle is DeviceHandle<OrderAuditor> or stands in for it. One thread.
template <class Handle>
class SubmitClient {
 public:
  SubmitClient(TicketBook& book, std::vector<Handle> devices) : book_(book), devices_(std::move(devices)) {}

  /// Returns how long the call took, in nanoseconds.
  std::uint64_t submit(const Plan& plan) {
    Random random(plan.choice);
    if (plan.fault == Fault::Cancel || plan.fault == Fault::Expire) return submit_dropped(plan, random);

    const auto stream = static_cast<std::uint8_t>(random.below(Truth::streams_per_client));
    const Fate fate = plan.fault == Fault::Throw ? Fate::Throws : Fate::Runs;
    const Ticket ticket = book_.write(plan.device, Sequence::of(plan.number, 0), fate, stream, random);
    const std::uint64_t choice = random.below(64);
    const Stopwatch stopwatch;
    if (stream == 0) {
      post(ticket, choice);
    } else {
      const StreamScope scope(book_.truth().streams(book_.client())[stream]);
      post(ticket, choice);
    }
    const std::uint64_t time = stopwatch.elapsed();
    book_.accepted(ticket);
    Tally& tally = book_.tally(plan.device);
    ++tally.audited;
    ++(fate == Fate::Throws ? tally.failed : tally.completed);
    return time;
  }

  /// The device was shut down and opened again.
  void reopened(std::size_t device, const Handle& handle) { devices_[device] = handle; }

 private:
  // Most closures fit the cache line. Some are stored in recycled blocks or on the heap, or need a larger alignment.
  void post(const Ticket& ticket, std::uint64_t choice) {
    Handle& device = devices_[ticket.device];
    switch (choice) {
      case 0: return post_laden<LadenClosure<700>>(ticket);
      case 1: return post_laden<LadenClosure<8, 128>>(ticket);
      case 2:
      case 3:
      case 4: return post_laden<LadenClosure<100>>(ticket);
      case 5:
      case 6:
      case 7: return post_laden<LadenClosure<8>>(ticket);
      case 8: {
        using namespace std::chrono_literals;
        CallOptions options{.deadline = Stopwatch::Clock::now() + 1h, .stop = {}, .label = "stress submit"};
        return device.submit(SmallClosure{book_.canary(ticket)}, std::move(options));
      }
      default: return device.submit(SmallClosure{book_.canary(ticket)});
    }
  }

  template <class Closure>
  void post_laden(const Ticket& ticket) {
    devices_[ticket.device].submit(Closure(book_.truth(), book_.canary(ticket)));
  }

  std::uint64_t submit_dropped(const Plan& plan, Random& random) {
    Handle& device = devices_[plan.device];
    CallOptions options = hopeless_options(device, book_, plan, random);
    const Ticket ticket = book_.write(plan.device, Sequence::of(plan.number, 1), Fate::Dropped, 0, random);
    const Stopwatch stopwatch;
    device.submit(SmallClosure{book_.canary(ticket)}, std::move(options));
    const std::uint64_t time = stopwatch.elapsed();
    Tally& tally = book_.tally(plan.device);
    ++(plan.fault == Fault::Expire ? tally.expired : tally.cancelled);
    return time;
  }

  TicketBook& book_;
  std::vector<Handle> devices_;
};

}  // namespace cox::stress
