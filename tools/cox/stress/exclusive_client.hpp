#pragma once

#include <coxswain/tools/cox/stress/cargo.hpp>
#include <coxswain/tools/cox/stress/injected_fault.hpp>
#include <coxswain/tools/cox/stress/program.hpp>
#include <coxswain/tools/cox/stress/question.hpp>
#include <coxswain/tools/cox/stress/stopwatch.hpp>
#include <coxswain/tools/cox/stress/ticket_book.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cox::stress {

/// Does exclusive: several calls inside it, with no other client's call between them. Handle is
/// DeviceHandle<OrderAuditor> or stands in for it. One thread.
template <class Handle>
class ExclusiveClient {
 public:
  ExclusiveClient(TicketBook& book, std::vector<Handle> devices) : book_(book), devices_(std::move(devices)) {}

  /// Returns how long the call took, in nanoseconds.
  std::uint64_t exclusive(const Plan& plan) {
    Random random(plan.choice);
    const bool throws = plan.fault == Fault::Throw;
    const Ticket outer =
        book_.write(plan.device, Sequence::of(plan.number, outer_step), throws ? Fate::Throws : Fate::Runs, 0, random);
    Ticket inner = book_.write(plan.device, Sequence::of(plan.number, 0), Fate::Runs, 0, random);
    count(plan.device, throws);
    std::string got;
    std::uint64_t time = 0;
    const Stopwatch stopwatch;
    try {
      const std::uint64_t ran =
          devices_[plan.device].exclusive([this, &inner, throws, canary = book_.canary(outer)]() mutable {
            canary.run();
            const std::uint64_t closures = run_inside(inner);
            if (throws) throw InjectedFault(canary.ticket().client, canary.ticket().sequence);
            return closures;
          });
      time = stopwatch.elapsed();
      if (throws) got = "the call returned";
      if (ran != calls)
        book_.truth().violated(Law::Exclusion, outer, std::to_string(calls) + " closures run, all of the same client",
                               std::to_string(ran) + " ran");
    } catch (const InjectedFault& fault) {
      time = stopwatch.elapsed();
      if (!throws || !fault.is(outer.client, outer.sequence)) got = fault.what();
    }
    book_.accepted(inner);
    if (!got.empty())
      book_.truth().violated(Law::Isolation, outer, throws ? "the caller gets the injected fault" : "the call returns",
                             got);
    check_after_call(book_, outer);
    return time;
  }

  /// The device was shut down and opened again.
  void reopened(std::size_t device, const Handle& handle) { devices_[device] = handle; }

 private:
  static constexpr std::uint64_t calls = 3;                         // inside exclusive
  static constexpr std::uint64_t outer_step = Sequence::steps - 1;  // destroyed after the inner closures

  // Device thread only. Returns how many closures ran during the call; leaves the ticket of the last call in `inner`.
  std::uint64_t run_inside(Ticket& inner) {
    Handle& device = devices_[inner.device];
    const auto runs = [](OrderAuditor& auditor) { return auditor.runs(); };
    const std::uint64_t operation = inner.sequence.operation();
    const std::uint64_t before = device.submit_blocking(runs);
    static_cast<void>(device.submit_blocking(Question(book_, inner)));
    inner.after = std::exchange(inner.sequence, Sequence::of(operation, 1));
    device.submit(SmallClosure{book_.canary(inner)});
    inner.after = std::exchange(inner.sequence, Sequence::of(operation, 2));
    static_cast<void>(device.submit_blocking(Question(book_, inner)));
    return device.submit_blocking(runs) - before;
  }

  void count(std::size_t device, bool throws) {
    Tally& tally = book_.tally(device);
    tally.completed += calls + 2;  // two more calls read how many have run
    tally.audited += calls;
    ++(throws ? tally.failed : tally.completed);
  }

  TicketBook& book_;
  std::vector<Handle> devices_;
};

}  // namespace cox::stress
