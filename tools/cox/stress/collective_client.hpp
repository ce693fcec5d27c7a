#pragma once

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/client/compute_client.hpp>
#include <coxswain/runtime/tensor/memory_layout.hpp>
#include <coxswain/tools/cox/stress/cargo.hpp>
#include <coxswain/tools/cox/stress/device_table.hpp>
#include <coxswain/tools/cox/stress/latencies.hpp>
#include <coxswain/tools/cox/stress/program.hpp>
#include <coxswain/tools/cox/stress/round_book.hpp>
#include <coxswain/tools/cox/stress/round_call.hpp>
#include <coxswain/tools/cox/stress/round_check.hpp>
#include <coxswain/tools/cox/stress/round_plan.hpp>
#include <coxswain/tools/cox/stress/stream_pool.hpp>
#include <coxswain/tools/cox/stress/stress_kernels.hpp>
#include <coxswain/tools/cox/stress/ticket_book.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cox::stress {

/// Does collectives and transfers: adds a round to the book for each, makes calls of any rounds that have calls left,
/// including rounds of other clients, and checks rounds whose calls have all been made. So the calls of a round are
/// made by different threads, in random order. One thread.
///
/// A stream with several calls must not wait for a round that lacks calls: on another device the calls could be in the
/// reverse order, and the streams would wait for each other in a cycle. Therefore an operation that makes a stream wait
/// for such a round (a read, a write to its source, sync_collective) uses only a stream that has no other call until
/// the round is checked.
template <class Backend>
class CollectiveClient {
 public:
  using Table = DeviceTable<Backend>;
  using Handle = typename Table::Handle;
  using Compute = typename Table::Compute;

  CollectiveClient(const Options& options, TicketBook& tickets, RoundBook& rounds, StreamPool& streams, Table& table,
                   Latencies& latencies)
      : options_(options),
        tickets_(tickets),
        rounds_(rounds),
        streams_(streams),
        table_(table),
        latencies_(latencies),
        random_(Random::derived(options.seed, ~std::uint64_t{tickets.client()})) {
    for (std::size_t device = 0; device < table.size(); ++device)
      known_.push_back({0, table.handle(device), table.compute(device)});
  }

  /// Begins the plan's round and makes some calls. The client that checks the round records its latency: from the first
  /// rank's call to the check. Returns the fault that it injects: in a SharedRun, where the agenda chooses the round,
  /// it may be another one than that of the plan.
  Fault begin(const Plan& plan) {
    if (rounds_.agenda() != nullptr) return begin_shared(plan);
    if (plan.fault == Fault::Stall) stall(plan.device);
    if (plan.fault == Fault::Shutdown) shut_down(plan.device);
    if (plan.fault == Fault::Leave) leave(plan);
    if (plan.fault == Fault::Throw)
      begin_between_throws(plan);
    else
      put(plan);
    return plan.fault;
  }
  /// In a SharedRun: all rounds of the run have begun.
  [[nodiscard]] bool is_over() const { return rounds_.agenda() != nullptr && rounds_.agenda()->is_over(); }
  /// Begins no more rounds. Blocks until the checks of this client are done; in the last client, until all rounds of
  /// all clients have been checked. After a violation it blocks only until all calls have been made.
  void finish();
  /// Call after finish(), while no device can be shut down. Checks that no unreported failure is left (L12).
  void check_idle();

  /// Errors of calls that a fault explains, so far.
  [[nodiscard]] std::uint64_t explained() const noexcept { return explained_; }

 private:
  struct Known {
    std::uint64_t openings;
    Handle handle;
    Compute compute;
  };
  struct Check {
    std::shared_ptr<Round> round;
    [[nodiscard]] bool ready() const {
      for (const RoundRank& rank : round->ranks)
        if (rank.read.valid() && !rank.read.ready()) return false;
      return true;
    }
  };

  [[nodiscard]] bool gave_up() const noexcept { return tickets_.truth().violations().any(); }
  // Whether collectives may end in errors. If so, a stream has one at a time, so that each error can be attributed.
  [[nodiscard]] bool breaks() const noexcept { return options_.faults.break_collectives(); }

  // Returns the current handles of the device, also if it was opened again.
  [[nodiscard]] Known& device(std::size_t index) {
    Known& known = known_[index];
    if (const std::uint64_t openings = table_.openings(index); openings != known.openings) {
      const auto use = table_.use(index);
      known = {openings, table_.handle(index), table_.compute(index)};
    }
    return known;
  }
  static void poison(Round& round);
  void shut_down(std::size_t device);
  void leave(const Plan& plan);
  void put(const Plan& plan);
  [[nodiscard]] Fault begin_shared(const Plan& plan);
  [[nodiscard]] std::shared_ptr<Round> append_shared(const Plan& plan, std::uint64_t number);
  void call_some();
  [[nodiscard]] std::vector<std::shared_ptr<Round>> make_rounds(const Plan& plan, RoundLine& line, Random& random);
  [[nodiscard]] bool copy_at_once(const std::shared_ptr<Round>& round);
  void begin_between_throws(const Plan& plan);
  void call_between_throws(const Plan& plan);
  void throw_on(std::size_t device, const Plan& plan, std::uint64_t step);
  void stall(std::size_t device);

  bool make_call() {
    return rounds_.call_next(random_, [this](Round& round, std::size_t rank) { call(round, rank); });
  }
  void call(Round& round, std::size_t rank);
  // A stream that may have several calls: the thread's own, unless launches on it may fail; the client's round stream;
  // or one that all clients share.
  [[nodiscard]] StreamId shared_stream() {
    const std::uint64_t choice = random_.below(4);
    // A client that waits for its thread's own stream makes no calls; those of another process may wait for them.
    if (choice == 0 && options_.faults.throws == 0 && !options_.shared) return StreamId::current();
    if (choice <= 1) return tickets_.truth().streams(tickets_.client())[Truth::round_stream];
    return streams_.shared(random_);
  }
  void pick_stream(RoundRank& rank, Compute& client);
  void follow_up(RoundCall<Compute>& made, Round& round, std::size_t rank, const Compute& client);
  void request_results(Round& round, std::size_t rank, const Compute& client) {
    std::vector<CopyDescriptor> results;
    for (const auto& result : round.ranks[rank].results)
      if (result) results.push_back(*result);
    if (!results.empty()) round.ranks[rank].read = client.read_tensor_async(std::move(results));
  }

  // Blocks until the check is ready; false if a violation was found before.
  [[nodiscard]] bool wait_for(const Check& check) const {
    constexpr std::chrono::milliseconds look(50);
    for (const RoundRank& rank : check.round->ranks)
      while (rank.read.valid() && !rank.read.wait_for(look))
        if (gave_up()) return false;
    return true;
  }
  bool begin_check();
  bool end_checks();
  void end_check(Check& check);
  [[nodiscard]] RankOutcome outcome(RoundRank& rank);
  void renew(RoundGroup& group);
  // Makes a call or checks a round; if there is neither, waits a moment.
  void step();
  void check_idle_stream(std::size_t device, StreamId stream);

  static constexpr std::size_t max_checks = 4;

  const Options& options_;
  TicketBook& tickets_;
  RoundBook& rounds_;
  StreamPool& streams_;
  Table& table_;
  std::vector<Known> known_;  // by device
  Latencies& latencies_;
  Random random_;  // for choices outside the plan; they depend on what other clients do
  std::vector<Check> checks_;
  bool on_round_stream_ = false;  // the next call uses Truth::round_stream
  std::uint64_t explained_ = 0;
};

// Chooses the rank to be poisoned: the first one, from the picked rank on, whose source is read.
template <class Backend>
void CollectiveClient<Backend>::poison(Round& round) {
  const std::size_t ranks = round.world_size();
  for (std::size_t i = 0; i < ranks; ++i) {
    const std::size_t rank = (round.faulty_rank + i) % ranks;
    if (source_bytes(round.parts.front(), ranks, rank) == 0) continue;
    round.fault = Fault::Poison;
    round.faulty_rank = rank;
    return;
  }
}

template <class Backend>
void CollectiveClient<Backend>::put(const Plan& plan) {
  Random random(plan.choice);
  while (!rounds_.has_room(plan.bytes) && !gave_up()) step();
  for (;;) {
    if (gave_up()) return;
    const auto made = make_rounds(plan, rounds_.pick_line(plan.operation, random), random);
    if (plan.operation == Operation::Transfer && made.front()->fault == Fault::None && random.below(4) == 0 &&
        copy_at_once(made.front()))
      break;
    if (rounds_.append(made, plan.fault == Fault::Missing)) break;
    step();
  }
  call_some();
}

template <class Backend>
void CollectiveClient<Backend>::call_some() {
  const std::size_t calls = 2 + static_cast<std::size_t>(random_.below(options_.devices.size()));
  for (std::size_t i = 0; i < calls; ++i) make_call();
  begin_check();
  end_checks();
  while (checks_.size() >= max_checks && !gave_up()) step();
}

// Begins the next round of the agenda that has a rank of this process, instead of one of the plan's own.
template <class Backend>
Fault CollectiveClient<Backend>::begin_shared(const Plan& plan) {
  while (!rounds_.has_room(options_.payload.largest) && !gave_up()) step();
  if (gave_up()) return Fault::None;
  std::shared_ptr<Round> begun;
  const bool any = rounds_.agenda()->begin_next([&](std::uint64_t number) {
    begun = append_shared(plan, number);
    return begun != nullptr;
  });
  if (!any) step();
  const bool own_fault = plan.fault == Fault::Stall || plan.fault == Fault::Throw;
  if (plan.fault == Fault::Stall) stall(plan.device);
  if (plan.fault == Fault::Throw) call_between_throws(plan);
  call_some();
  return own_fault ? plan.fault : any ? begun->fault : Fault::None;
}

// `plan`: of the client; its ticket names the round in reports.
template <class Backend>
std::shared_ptr<Round> CollectiveClient<Backend>::append_shared(const Plan& plan, std::uint64_t number) {
  const Plan shared = rounds_.agenda()->plan(number);
  Random random(shared.choice);
  const bool vote = Agenda::is_vote(number);
  RoundLine& line = vote ? rounds_.line_of_all() : rounds_.pick_line(shared.operation, random);
  if (line.own == 0) return nullptr;
  const std::shared_ptr<Round> round = make_rounds(shared, line, random).front();
  round->ticket = tickets_.write(plan.device, Sequence::of(plan.number, 0), Fate::Runs, Truth::round_stream);
  round->agenda_number = number;
  if (vote) {
    round->vote = true;
    round->wants_stop = rounds_.agenda()->wants_stop();
    round->parts = {RoundPart{.type = ElementType::U32, .reduce = ReduceOperation::Max}};
  }
  static_cast<void>(rounds_.append({round}, false));  // no group rests in a SharedRun
  return round;
}

template <class Backend>
std::vector<std::shared_ptr<Round>> CollectiveClient<Backend>::make_rounds(const Plan& plan, RoundLine& line,
                                                                           Random& random) {
  constexpr std::uint64_t most_after_missing = 2;
  const std::uint64_t more = plan.fault == Fault::Missing ? random.below(most_after_missing + 1) : 0;
  const auto faulty = static_cast<std::size_t>(random.below(line.devices.size()));
  std::vector<std::shared_ptr<Round>> rounds;
  for (std::uint64_t i = 0; i <= more; ++i) {
    auto round = std::make_shared<Round>(line.devices.size());
    round->operation = plan.operation;
    round->parts = plan_parts(plan, line.devices.size(), options_.reductions, random);
    // Fractions only where every implementation gives the same bits: host devices add in the order of ranks, and the
    // sum of two ranks does not depend on the order.
    if (options_.shared && (options_.reductions == Reductions::All || line.devices.size() == 2))
      choose_rounded(round->parts, random);
    round->line = &line;
    round->ticket = tickets_.write(plan.device, Sequence::of(plan.number, 0), Fate::Runs, Truth::round_stream);
    round->fault_ticket = round->ticket;
    if (options_.shared) round->fault_ticket.client = std::numeric_limits<std::uint16_t>::max();
    if (plan.fault == Fault::Missing || plan.fault == Fault::Mismatch) round->fault = plan.fault;
    round->faulty_rank = faulty;
    if (plan.fault == Fault::Poison) poison(*round);
    if (i > 0) round->missing_before = rounds.front();
    rounds.push_back(std::move(round));
  }
  return rounds;
}

// A single to_client makes the calls of both ranks.
template <class Backend>
bool CollectiveClient<Backend>::copy_at_once(const std::shared_ptr<Round>& round) {
  return rounds_.append_and_call(round, [this](Round& copied) {
    copied.first_call.store(Round::Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    RoundRank& from = copied.ranks[0];
    RoundRank& to = copied.ranks[1];
    from.called = to.called = true;
    from.results.resize(1);
    to.results.resize(1);
    Compute source = device(copied.line->devices[0]).compute;
    Compute destination = device(copied.line->devices[1]).compute;
    for (auto [rank, client] : {std::pair(&from, &source), std::pair(&to, &destination)}) {
      rank->exclusive = true;
      rank->stream = streams_.acquire(random_);
      client->set_stream(rank->stream);
    }
    RoundPart& part = copied.parts.front();
    const std::size_t size = element_size(part.type);
    try {
      const std::size_t rows = 1 + static_cast<std::size_t>(random_.below(4));
      if (part.count >= rows && random_.below(2) == 0) {
        part.count = part.count / rows * rows;
        const Shape shape{rows, part.count / rows};
        const MemoryLayout tensor = source.create_tensor(Bytes::copy_of(source_of(part, 2, 0)), shape, size);
        to.results[0] = source.to_client_tensor(tensor.copy_descriptor(shape, size), destination, part.type)
                            .copy_descriptor(shape, size);
      } else {
        const stress::ByteVector content = source_of(part, 2, 0);
        const auto memory = source.create(Bytes::copy_of(content));
        to.results[0] = source.to_client(memory, destination, part.type).copy_descriptor({content.size()}, {1}, 1);
      }
    } catch (...) {
      to.refused = std::current_exception();
    }
  });
}

template <class Backend>
void CollectiveClient<Backend>::call(Round& round, std::size_t rank) {
  RoundRank& mine = round.ranks[rank];
  mine.called = true;
  Round::Clock::rep none = 0;
  round.first_call.compare_exchange_strong(none, Round::Clock::now().time_since_epoch().count(),
                                           std::memory_order_relaxed);
  const std::size_t device = *round.line->lanes[rank].device;
  Compute client = this->device(device).compute;
  pick_stream(mine, client);
  try {
    RoundCall<Compute> made(client, options_.ranks(), round, rank, random_);
    made.make();
    if (rounds_.timeout())
      client.device_handle().submit([self = round.shared_from_this(), rank](auto&) {
        self->arrivals[rank].store(Round::Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
      });
    follow_up(made, round, rank, client);
  } catch (...) {
    mine.refused = std::current_exception();
  }
}

template <class Backend>
void CollectiveClient<Backend>::pick_stream(RoundRank& rank, Compute& client) {
  rank.exclusive = breaks() || (!on_round_stream_ && random_.below(2) == 0);
  rank.stream = rank.exclusive     ? streams_.acquire(random_)
                : on_round_stream_ ? tickets_.truth().streams(tickets_.client())[Truth::round_stream]
                                   : shared_stream();
  client.set_stream(rank.stream);
}

// Work that is enqueued on the stream after the call, without waiting for the call to complete.
template <class Backend>
void CollectiveClient<Backend>::follow_up(RoundCall<Compute>& made, Round& round, std::size_t rank,
                                          const Compute& client) {
  RoundRank& mine = round.ranks[rank];
  if (round.vote) return;
  const bool sends = round.operation == Operation::Transfer && rank == 0;
  if (mine.exclusive && ((sends && breaks()) || random_.below(4) == 0)) made.overwrite_sources();
  if (random_.below(4) == 0)  // memory that the call still needs must not be reused (L11)
    static_cast<void>(client.create(Bytes::copy_of(overwriting(round.parts.front(), round.world_size(), rank))));
  if (mine.exclusive && !mine.overwritten && random_.below(4) == 0) made.use_result();
  if (!mine.exclusive) {
    // The digest needs all results.
    if (!options_.shared && random_.below(8) == 0) mine.results.assign(mine.results.size(), std::nullopt);
    return;
  }
  if (random_.below(4) == 0) {
    client.sync_collective();
    mine.synced = true;
  }
  if (random_.below(3) == 0) request_results(round, rank, client);
}

template <class Backend>
bool CollectiveClient<Backend>::begin_check() {
  if (checks_.size() >= max_checks) return false;
  const std::shared_ptr<Round> round = rounds_.take_called(random_);
  if (round == nullptr) return false;
  bool may_wait = round->line->own == round->world_size();  // else other processes may wait for calls of this client
  for (std::size_t i = 0; i < round->world_size(); ++i) {
    RoundRank& rank = round->ranks[i];
    if (rank.synced) may_wait = false;  // perhaps with a round that lacks calls, which may be ours to make
    if (!rank.called || rank.refused != nullptr || rank.read.valid()) continue;
    Compute client = device(*round->line->lanes[i].device).compute;
    // The read waits for calls of other processes, and no call of this one may wait for the read.
    if (!rank.exclusive && options_.shared) {
      rank.exclusive = true;
      rank.stream = streams_.acquire(random_);
    }
    client.set_stream(rank.exclusive ? rank.stream : shared_stream());
    try {
      request_results(*round, i, client);
    } catch (...) {
      rank.refused = std::current_exception();
    }
  }
  checks_.push_back({round});
  if (may_wait && random_.below(4) == 0) {
    if (!wait_for(checks_.back())) return true;
    end_check(checks_.back());
    checks_.pop_back();
  }
  return true;
}

template <class Backend>
bool CollectiveClient<Backend>::end_checks() {
  bool any = false;
  for (std::size_t i = 0; i < checks_.size();) {
    if (!checks_[i].ready()) {
      ++i;
      continue;
    }
    Check check = std::move(checks_[i]);
    checks_.erase(checks_.begin() + static_cast<std::ptrdiff_t>(i));
    end_check(check);
    any = true;
  }
  return any;
}

template <class Backend>
RankOutcome CollectiveClient<Backend>::outcome(RoundRank& rank) {
  RankOutcome outcome{.values = {}, .error = rank.refused, .dependent = {}, .dependent_error = nullptr};
  if (rank.dependent.valid()) {
    try {
      outcome.dependent = rank.dependent.get();
    } catch (...) {
      outcome.dependent_error = std::current_exception();
    }
  }
  if (outcome.error != nullptr || !rank.read.valid()) return outcome;
  try {
    outcome.values = rank.read.get();
  } catch (...) {
    outcome.error = std::current_exception();
  }
  if (rank.exclusive) streams_.release(rank.stream);
  return outcome;
}

template <class Backend>
void CollectiveClient<Backend>::end_check(Check& check) {
  Round& round = *check.round;
  std::vector<RankOutcome> outcomes;
  for (RoundRank& rank : round.ranks) {
    const bool asked = rank.read.valid();
    outcomes.push_back(outcome(rank));
    if (!asked && outcomes.back().error == nullptr) rank.results.assign(rank.results.size(), std::nullopt);
  }
  explained_ += check_round(tickets_.truth(), rounds_, round, outcomes);
  const auto time = Round::Clock::now().time_since_epoch().count() - round.first_call.load(std::memory_order_relaxed);
  if (round.missing_before == nullptr) latencies_[round.operation].record(static_cast<std::uint64_t>(time));
  for (RoundRank& rank : round.ranks) rank.results.clear();
  if (RoundGroup* const group = rounds_.ended(round)) renew(*group);
}

// No round of the group is open.
template <class Backend>
void CollectiveClient<Backend>::renew(RoundGroup& group) {
  const struct Renewed {
    RoundBook& rounds;
    RoundGroup& group;
    ~Renewed() { rounds.renewed(group); }
  } renewed{rounds_, group};
  device(group.members[random_.below(group.members.size())]).compute.ensure_init_collective(group.id);
}

template <class Backend>
void CollectiveClient<Backend>::step() {
  using namespace std::chrono_literals;
  const bool called = make_call();
  const bool begun = begin_check();
  if (end_checks() || called || begun) return;
  for (const Check& check : checks_) {
    for (const RoundRank& rank : check.round->ranks)
      if (rank.read.valid() && !rank.read.wait_for(200us)) return;
  }
  if (checks_.empty()) std::this_thread::sleep_for(50us);
}

template <class Backend>
void CollectiveClient<Backend>::throw_on(std::size_t device, const Plan& plan, std::uint64_t step) {
  const auto use = table_.try_use(device);
  if (!use) return;
  const Ticket ticket =
      tickets_.write(device, Sequence::of(plan.number, step), Fate::Throws, Truth::round_stream, random_);
  const StreamScope scope(tickets_.truth().streams(tickets_.client())[Truth::round_stream]);
  this->device(device).handle.submit(SmallClosure{tickets_.canary(ticket)});
  tickets_.accepted(ticket);
  ++tickets_.tally(device).audited;
  ++tickets_.tally(device).failed;
}

// A task throws before and after a call on the same stream. This must not affect the collective.
template <class Backend>
void CollectiveClient<Backend>::begin_between_throws(const Plan& plan) {
  put(plan);
  call_between_throws(plan);
}

template <class Backend>
void CollectiveClient<Backend>::call_between_throws(const Plan& plan) {
  on_round_stream_ = true;
  const bool made = rounds_.call_next(random_, [&](Round& round, std::size_t rank) {
    const std::size_t device = *round.line->lanes[rank].device;
    throw_on(device, plan, 0);
    call(round, rank);
    throw_on(device, plan, 1);
  });
  on_round_stream_ = false;
  if (!made) throw_on(plan.device, plan, 0);
}

// Shuts the device down while rounds are open. Either all their calls are made before, so that they end in values; or
// the calls that the other ranks have left are dropped, and those of the device are made while it is closing. No other
// rank may call after the shutdown has begun: its call would be the first one of a new communicator.
template <class Backend>
void CollectiveClient<Backend>::shut_down(std::size_t device) {
  std::unique_lock one_at_a_time(rounds_.shutdowns(), std::defer_lock);
  while (!one_at_a_time.try_lock()) {
    if (gave_up()) return;
    step();
  }
  rounds_.shake(device);
  if (random_.below(4) != 0) {
    while (!rounds_.called_all(device) && !gave_up()) step();
  } else {
    rounds_.drop_calls(device, true);
  }
  table_.reopen(device, [&] { rounds_.drop_calls(device, false); });
  for (RoundGroup* const group : rounds_.released(device)) renew(*group);
}

// A rank aborts its communicator while rounds are open, some of whose calls have yet to be made. On every rank, the
// open rounds of that communicator end in values or in an error with the cause of the abort. Rounds of other
// communicators end in values only.
template <class Backend>
void CollectiveClient<Backend>::leave(const Plan& plan) {
  constexpr std::uint64_t one_shutdown_in = 4;
  Random random(plan.choice);
  if (random.below(one_shutdown_in) == 0) return shut_down(plan.device);
  std::unique_lock one_at_a_time(rounds_.shutdowns(), std::defer_lock);
  while (!one_at_a_time.try_lock()) {
    if (gave_up()) return;
    step();
  }
  RoundGroup& group = *rounds_.pick_line(plan.operation, random).group;
  const std::string cause =
      "client " + std::to_string(tickets_.client()) + " gave up in its operation " + std::to_string(plan.number);
  if (!rounds_.begin_abort(group, cause)) return;
  const Compute client = device(group.members.front()).compute;
  client.abort_collective(group.id, std::make_exception_ptr(std::runtime_error(cause)));
  // A call after the group was renewed would be the first of the new communicator.
  while (!rounds_.called_all(group) && !gave_up()) step();
  if (rounds_.released(group)) renew(group);
}

template <class Backend>
void CollectiveClient<Backend>::stall(std::size_t device) {
  const auto use = table_.try_use(device);
  if (!use) return;
  const std::chrono::milliseconds time(1 + random_.below(4));
  if (random_.below(2) == 0) {
    this->device(device).handle.submit([time](OrderAuditor&) { std::this_thread::sleep_for(time); });
    return;
  }
  Compute client = this->device(device).compute;
  client.set_stream(streams_.shared(random_));
  KernelsOf<Compute>::stall(client, time);
}

template <class Backend>
void CollectiveClient<Backend>::finish() {
  const bool others_work = rounds_.leave();
  while (!gave_up() && (!checks_.empty() || (!others_work && rounds_.open() > 0))) step();
  while (make_call()) continue;
  checks_.clear();
}

template <class Backend>
void CollectiveClient<Backend>::check_idle() {
  if (gave_up() || breaks()) return;
  for (std::size_t device = 0; device < table_.size(); ++device)
    check_idle_stream(device, tickets_.truth().streams(tickets_.client())[Truth::round_stream]);
}

// A failure that sync() throws here is one that no call has reported.
template <class Backend>
void CollectiveClient<Backend>::check_idle_stream(std::size_t device, StreamId stream) {
  Compute client = this->device(device).compute;
  client.set_stream(stream);
  try {
    client.sync().get();
  } catch (...) {
    const Ticket ticket = tickets_.write(device, {}, Fate::Runs, Truth::round_stream);
    tickets_.truth().violated(Law::Errors, ticket, "all collectives of the stream succeeded",
                              describe(std::current_exception()));
  }
}

}  // namespace cox::stress
