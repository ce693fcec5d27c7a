#pragma once

#include <coxswain/device_handle/base/call_options.hpp>
#include <coxswain/tools/cox/stress/cargo.hpp>
#include <coxswain/tools/cox/stress/program.hpp>
#include <coxswain/tools/cox/stress/stopwatch.hpp>
#include <coxswain/tools/cox/stress/ticket_book.hpp>

#include <stop_token>
#include <utility>

namespace cox::stress {

/// Options with which a call never runs, as the plan's fault requires: its deadline has passed, or its stop_token is
/// triggered, either now by the caller or later by a closure that is queued ahead of the call.
template <class Handle>
[[nodiscard]] CallOptions hopeless_options(Handle& device, TicketBook& book, const Plan& plan, Random& random) {
  CallOptions options{.deadline = {}, .stop = {}, .label = "stress, to be dropped"};
  if (plan.fault == Fault::Expire) {
    options.deadline = Stopwatch::Clock::now();
    return options;
  }
  std::stop_source source;
  options.stop = source.get_token();
  if (random.below(2) == 0) {
    source.request_stop();
    return options;
  }
  const Ticket ticket = book.write(plan.device, Sequence::of(plan.number, 0), Fate::Runs, 0, random);
  device.submit([canary = book.canary(ticket), source = std::move(source)](OrderAuditor& auditor) mutable {
    auditor.run_unattended(canary);
    source.request_stop();
  });
  book.accepted(ticket);
  Tally& tally = book.tally(plan.device);
  ++tally.completed;
  ++tally.audited;
  return options;
}

}  // namespace cox::stress
