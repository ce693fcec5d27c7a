#include <coxswain/tools/cox/stress/order_auditor.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/tools/cox/stress/injected_fault.hpp>

#include <string>
#include <utility>

namespace cox::stress {

void OrderAuditor::run(Canary& canary) {
  const Ticket& ticket = canary.ticket();
  Truth::Device& device = truth_->device(device_);
  check_surroundings(ticket);
  check_order(ticket);
  ++device.runs;
  device.previous = ticket;
  canary.run();
  if (ticket.fate == Fate::Throws) throw InjectedFault(ticket.client, ticket.sequence);
}

void OrderAuditor::run_unattended(Canary& canary) {
  try {
    run(canary);
  } catch (const InjectedFault&) {
    truth_->device(device_).thrown = canary.ticket();
    throw;
  }
}

void OrderAuditor::check_order(const Ticket& ticket) {
  Truth::Device& device = truth_->device(device_);
  Sequence& ran = device.lanes[ticket.client].ran;
  if (ran >= ticket.sequence && ticket.runs == 0) {
    truth_->violated(Law::Order, ticket, "it runs before " + to_string(ran) + " of the same client, submitted later",
                     "that one has already run");
  } else if (ran < ticket.after) {
    truth_->violated(Law::Order, ticket, to_string(ticket.after) + " of the same client, submitted earlier, has run",
                     "of that client, only operations up to " + to_string(ran) + " have run");
  }
  if (ran < ticket.sequence) ran = ticket.sequence;

  const Sequence foreign = device.lanes[ticket.foreign_client].ran;
  if (foreign < ticket.foreign) {
    const std::string other = "client " + std::to_string(ticket.foreign_client);
    truth_->violated(
        Law::Order, ticket,
        to_string(ticket.foreign) + " of " + other + " has run: its call had returned before this one began",
        "of " + other + ", only operations up to " + to_string(foreign) + " have run");
  }
}

void OrderAuditor::check_surroundings(const Ticket& ticket) {
  Truth::Device& device = truth_->device(device_);
  const StreamId current = StreamId::current();
  const StreamId own = truth_->streams(ticket.client)[ticket.stream];
  if (current != own) {
    truth_->violated(Law::Identity, ticket, "StreamId::current() in the task is " + std::to_string(own.value),
                     std::to_string(current.value));
  }
  const Ticket& before = device.previous;
  const bool again = before.client == ticket.client && before.sequence == ticket.sequence;
  if (!again && device.lanes[before.client].destroyed.load(std::memory_order_relaxed) < before.sequence.value) {
    truth_->violated(Law::Lifetime, before, "the closure is destroyed right after it ran",
                     "it still exists while the next one runs");
  }
  if (!device.thrown.sequence.none()) report_lost_error(*truth_, std::exchange(device.thrown, Ticket{}));
}

void OrderAuditor::on_task_error(const std::exception_ptr& error, StreamId stream) {
  const Ticket thrown = std::exchange(truth_->device(device_).thrown, Ticket{});
  const std::string expected = thrown.sequence.none() ? "no error" : "the error sink gets the injected fault";
  Ticket about = thrown;
  about.device = static_cast<std::uint8_t>(device_);
  try {
    std::rethrow_exception(error);
  } catch (const InjectedFault& fault) {
    if (thrown.sequence.none() || !fault.is(thrown.client, thrown.sequence))
      truth_->violated(Law::Isolation, about, expected, std::string("in the sink: ") + fault.what());
  } catch (...) {
    truth_->violated(Law::Isolation, about, expected, "in the sink: " + describe(error));
  }
  const StreamId own = truth_->streams(thrown.client)[thrown.stream];
  if (!thrown.sequence.none() && stream != own)
    truth_->violated(Law::Identity, thrown, "the error sink gets stream " + std::to_string(own.number()),
                     std::to_string(stream.number()));
}

void report_lost_error(Truth& truth, const Ticket& ticket) {
  truth.violated(Law::Isolation, ticket, "the service's error sink gets the exception of the task", "it was lost");
}

}  // namespace cox::stress
