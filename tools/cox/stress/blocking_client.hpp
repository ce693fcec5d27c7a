#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/call_options.hpp>
#include <coxswain/tools/cox/stress/hopeless.hpp>
#include <coxswain/tools/cox/stress/injected_fault.hpp>
#include <coxswain/tools/cox/stress/program.hpp>
#include <coxswain/tools/cox/stress/question.hpp>
#include <coxswain/tools/cox/stress/stopwatch.hpp>
#include <coxswain/tools/cox/stress/ticket_book.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cox::stress {

/// Does submit_blocking, with its faults. Handle is DeviceHandle<OrderAuditor> or stands in for it. One thread.
template <class Handle>
class BlockingClient {
 public:
  BlockingClient(TicketBook& book, std::vector<Handle> devices) : book_(book), devices_(std::move(devices)) {}

  /// Returns how long the call took, in nanoseconds.
  std::uint64_t blocking(const Plan& plan) {
    Random random(plan.choice);
    if (plan.fault == Fault::Cancel || plan.fault == Fault::Expire) return blocking_dropped(plan, random);
    const Fate fate = plan.fault == Fault::Throw ? Fate::Throws : Fate::Runs;
    const Ticket ticket = book_.write(plan.device, Sequence::of(plan.number, 0), fate, 0, random);
    std::optional<CallOptions> options;
    if (random.below(8) == 0) {
      using namespace std::chrono_literals;
      options = CallOptions{.deadline = Stopwatch::Clock::now() + 1h, .stop = {}, .label = "stress submit_blocking"};
    }
    Tally& tally = book_.tally(plan.device);
    ++tally.audited;
    ++(fate == Fate::Throws ? tally.failed : tally.completed);
    return fate == Fate::Throws ? ask_for_fault(ticket, std::move(options)) : ask(ticket, std::move(options));
  }

  /// Waits until everything that the client has submitted to the device before the operation `number` has run.
  void barrier(std::size_t device, std::uint64_t number) {
    constexpr std::uint64_t step = Sequence::steps - 2;  // no operation has so many
    const Ticket ticket = book_.write(device, Sequence::of(number - 1, step), Fate::Runs, 0);
    ++book_.tally(device).audited;
    ++book_.tally(device).completed;
    static_cast<void>(ask(ticket, std::nullopt));
  }

  /// The device was shut down and opened again.
  void reopened(std::size_t device, const Handle& handle) { devices_[device] = handle; }

 private:
  std::uint64_t call(const Ticket& ticket, std::optional<CallOptions> options) {
    Handle& device = devices_[ticket.device];
    if (options) return device.submit_blocking(Question(book_, ticket), std::move(*options));
    return device.submit_blocking(Question(book_, ticket));
  }

  std::uint64_t ask(const Ticket& ticket, std::optional<CallOptions> options) {
    const Stopwatch stopwatch;
    const std::uint64_t answer = call(ticket, std::move(options));
    const std::uint64_t time = stopwatch.elapsed();
    book_.accepted(ticket);
    if (answer != Question::answer(ticket))
      violated(Law::Isolation, ticket, "the caller gets what its closure returned", "another value");
    check_after_call(book_, ticket);
    return time;
  }

  std::uint64_t ask_for_fault(const Ticket& ticket, std::optional<CallOptions> options) {
    std::string got = "the call returned";
    std::uint64_t time = 0;
    const Stopwatch stopwatch;
    try {
      static_cast<void>(call(ticket, std::move(options)));
    } catch (const InjectedFault& fault) {
      time = stopwatch.elapsed();
      got = fault.is(ticket.client, ticket.sequence) ? "" : fault.what();
    }
    book_.accepted(ticket);
    if (!got.empty()) violated(Law::Isolation, ticket, "the caller gets the injected fault", got);
    check_after_call(book_, ticket);
    return time;
  }

  std::uint64_t blocking_dropped(const Plan& plan, Random& random) {
    CallOptions options = hopeless_options(devices_[plan.device], book_, plan, random);
    const bool expires = plan.fault == Fault::Expire;
    const Ticket ticket = book_.write(plan.device, Sequence::of(plan.number, 1), Fate::Dropped, 0, random);
    Tally& tally = book_.tally(plan.device);
    ++(expires ? tally.expired : tally.cancelled);
    const auto kind = expires ? CallError::Kind::Expired : CallError::Kind::Cancelled;
    std::string got = "the call returned";
    std::uint64_t time = 0;
    const Stopwatch stopwatch;
    try {
      static_cast<void>(call(ticket, std::move(options)));
    } catch (const CallError& error) {
      time = stopwatch.elapsed();
      got = error.kind() == kind ? "" : error.what();
    }
    if (!got.empty()) violated(Law::Isolation, ticket, std::string("CallError ") + to_string(kind), got);
    return time;
  }

  void violated(Law law, const Ticket& ticket, std::string expected, std::string got) {
    book_.truth().violated(law, ticket, std::move(expected), std::move(got));
  }

  TicketBook& book_;
  std::vector<Handle> devices_;
};

}  // namespace cox::stress
