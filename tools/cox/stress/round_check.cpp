#include <coxswain/tools/cox/stress/round_check.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/tools/cox/stress/round_values.hpp>
#include <coxswain/tools/cox/stress/stream_faults.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace cox::stress {
namespace {

using Kind = CollectiveError::Kind;

// The first cause of an error of the stream, of a refused launch or of poisoned memory; null if there are several.
std::exception_ptr only_cause(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ServerError& unhealthy) {
    if (unhealthy.kind() != ServerError::Kind::Unhealthy) return error;
    return unhealthy.errors().size() == 1 ? only_cause(unhealthy.errors().front()) : nullptr;
  } catch (const LaunchError& launch) {
    return launch.kind() == LaunchError::Kind::Io && launch.cause() != nullptr ? only_cause(launch.cause()) : error;
  } catch (const IoError& io) {
    return io.kind() == IoError::Kind::Poisoned && io.cause() != nullptr ? io.cause() : error;
  } catch (...) {
    return error;
  }
}

bool is_collective_error(const std::exception_ptr& cause, Kind kind, const std::vector<std::string>& any_of_texts) {
  try {
    std::rethrow_exception(cause);
  } catch (const CollectiveError& error) {
    const std::string text = error.what();
    return error.kind() == kind &&
           (any_of_texts.empty() || std::ranges::any_of(any_of_texts, [&](const std::string& part) {
              return text.find(part) != std::string::npos;
            }));
  } catch (...) {
    return false;
  }
}

// Whether a shutdown explains the error. An abort must contain one of `causes`: "host:1 was shut down" for each device
// of the round.
bool is_of_shutdown(const std::exception_ptr& error, const std::vector<std::string>& causes) {
  if (error == nullptr) return false;
  try {
    std::rethrow_exception(error);
  } catch (const ServerError& unhealthy) {
    return unhealthy.kind() == ServerError::Kind::Unhealthy &&
           std::ranges::all_of(unhealthy.errors(), [&](const auto& each) { return is_of_shutdown(each, causes); });
  } catch (const CollectiveError& collective) {
    if (collective.kind() == Kind::RankFailed) return is_of_shutdown(collective.cause(), causes);
    return is_collective_error(error, Kind::Aborted, causes);
  } catch (const CallError& call) {
    return call.kind() == CallError::Kind::Closed;
  } catch (const IoError& io) {
    return io.kind() == IoError::Kind::StaleHandle;
  } catch (...) {
    return false;
  }
}

// Whether the error consists only of aborts of the communicator that name `cause`.
bool is_of_abort(const std::exception_ptr& error, const std::string& cause) {
  try {
    std::rethrow_exception(error);
  } catch (const ServerError& unhealthy) {
    return unhealthy.kind() == ServerError::Kind::Unhealthy &&
           std::ranges::all_of(unhealthy.errors(), [&](const auto& each) { return is_of_abort(each, cause); });
  } catch (const CollectiveError& collective) {
    return (collective.kind() == Kind::Aborted || collective.kind() == Kind::RankFailed) &&
           std::string_view(collective.what()).find(cause) != std::string_view::npos;
  } catch (...) {
    return false;
  }
}

class RoundCheck {
 public:
  RoundCheck(Truth& truth, RoundBook& book, Round& round) : truth_(truth), book_(book), round_(round) {}

  std::uint64_t check(const std::vector<RankOutcome>& outcomes) {
    std::uint64_t explained = 0;
    if (round_.poisoning.valid()) check_poisoning();
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
      if (!round_.ranks[rank].called) continue;
      if (outcomes[rank].error == nullptr)
        check_values(rank, outcomes[rank].values);
      else if (explains(outcomes[rank].error))
        ++explained;
      else
        violated(Law::Errors, rank, expectation(), describe(outcomes[rank].error));
      check_dependent(rank, outcomes[rank]);
    }
    return explained;
  }

 private:
  [[nodiscard]] std::string faulty_device() const {
    return book_.device(round_.line->devices[round_.faulty_rank]).to_string();
  }
  // As faulty_device(), but a device of this process has another name in its own operations.
  [[nodiscard]] std::vector<std::string> names_of_faulty_device() const {
    const std::optional<std::size_t> own = round_.line->lanes[round_.faulty_rank].device;
    if (!own) return {faulty_device()};
    return {faulty_device(), truth_.device(*own).id.to_string()};
  }
  [[nodiscard]] std::vector<std::string> shutdowns() const {
    std::vector<std::string> causes;
    for (const std::size_t device : round_.line->devices)
      causes.push_back(book_.device(device).to_string() + " was shut down");
    return causes;
  }
  [[nodiscard]] bool must_fail() const {
    return round_.fault == Fault::Missing || round_.fault == Fault::Mismatch || round_.fault == Fault::Poison;
  }

  [[nodiscard]] std::string expectation() const {
    const std::string name(to_string(round_.operation));
    if (round_.fault == Fault::Missing)
      return name + " ends in CollectiveError Timeout: " + faulty_device() + " is missing";
    if (round_.fault == Fault::Mismatch)
      return name + " ends in CollectiveError Mismatch that names " + faulty_device();
    if (round_.fault == Fault::Poison)
      return name + " ends in CollectiveError RankFailed that names " + faulty_device() + ", with the injected fault";
    if (round_.shaken.load(std::memory_order_acquire))
      return name + " succeeds, or ends in CollectiveError Aborted that names the device that was shut down";
    if (const std::string* const cause = round_.abort_cause.load(std::memory_order_acquire))
      return name + " succeeds, or ends in CollectiveError with the cause: " + *cause;
    return name + " succeeds";
  }

  bool explains(const std::exception_ptr& error) {
    if (round_.shaken.load(std::memory_order_acquire) && is_of_shutdown(error, shutdowns())) return true;
    const std::string* const aborted = round_.abort_cause.load(std::memory_order_acquire);
    if (aborted != nullptr && is_of_abort(error, *aborted)) return true;
    const std::exception_ptr cause = only_cause(error);
    if (cause == nullptr) return false;
    if (round_.fault == Fault::Missing)
      return is_collective_error(cause, Kind::Timeout, {faulty_device() + " is missing"});
    // If requests of two processes differ, the error names the processes.
    if (round_.fault == Fault::Mismatch && round_.agenda_number && is_collective_error(cause, Kind::Mismatch, {}))
      return true;
    if (round_.fault == Fault::Mismatch &&
        is_collective_error(cause, Kind::Mismatch, {faulty_device() + " and ", " and " + faulty_device()}))
      return true;
    if (round_.fault == Fault::Poison && is_collective_error(cause, Kind::RankFailed, names_of_faulty_device()) &&
        is_of_injected_fault(cause))
      return true;
    if (!is_collective_error(cause, Kind::Timeout, {}) || !book_.may_time_out(round_)) return false;
    book_.broken(round_);
    return true;
  }

  // Of a rank of another process only the text of the cause is known.
  [[nodiscard]] bool is_of_injected_fault(const std::exception_ptr& error) const {
    const auto& [client, sequence] = std::pair(round_.fault_ticket.client, round_.fault_ticket.sequence);
    if (round_.line->lanes[round_.faulty_rank].device) return is_of_fault(error, client, sequence);
    const std::string fault = "fault of client " + std::to_string(client) + ", " + to_string(sequence);
    return describe(error).find(fault) != std::string::npos;
  }

  // L14: a value that another stream computes from a result is right, or its read fails with the same cause.
  void check_dependent(std::size_t rank, const RankOutcome& outcome) {
    if (outcome.dependent_error != nullptr) {
      const std::exception_ptr one = only_cause(outcome.dependent_error);
      const std::exception_ptr& cause = one != nullptr ? one : outcome.dependent_error;
      if (round_.fault == Fault::Poison && is_of_injected_fault(cause)) return;
      if (!explains(cause))
        violated(Law::Poison, rank, "a kernel that depends on the result: " + expectation(),
                 describe(outcome.dependent_error));
    } else if (!outcome.dependent.empty()) {
      if (must_fail())
        return violated(Law::Poison, rank, "a kernel that depends on the result: " + expectation(), "no error");
      if (round_.parts.front().rounded) return;
      compare(rank, 0, values_of(0).result_of(rank), outcome.dependent.front().span());
    }
  }

  // The failed kernel or upload is reported on its own stream. After a shutdown the report may be lost with the device.
  void check_poisoning() {
    std::exception_ptr error;
    try {
      std::exchange(round_.poisoning, {}).get();
    } catch (...) {
      error = std::current_exception();
    }
    if (round_.shaken.load(std::memory_order_acquire)) return;
    check_surfaced(truth_, round_.fault_ticket, {round_.fault_ticket.sequence}, error);
  }

  void check_values(std::size_t rank, const std::vector<Bytes>& values) {
    if (must_fail()) return violated(Law::Errors, rank, expectation(), "no error");
    if (round_.vote) return check_vote(values);
    std::size_t next = 0;
    for (std::size_t part = 0; part < round_.parts.size(); ++part) {
      if (!round_.ranks[rank].results[part]) continue;
      const std::span<const std::byte> got = values[next++].span();
      const bool overwritten = round_.ranks[rank].overwritten;
      if (round_.agenda_number && !overwritten) book_.add_to_digest(round_, rank, part, got);
      if (round_.parts[part].rounded && !overwritten) continue;  // the digests of two runs are compared
      const ByteVector expected =
          overwritten ? overwriting(round_.parts[part], round_.world_size(), rank) : values_of(part).result_of(rank);
      compare(rank, part, expected, got);
    }
  }

  void check_vote(const std::vector<Bytes>& values) {
    std::uint32_t stop = 0;
    std::memcpy(&stop, values.front().span().data(), sizeof stop);
    book_.agenda()->decide(*round_.agenda_number, stop != 0);
  }

  void compare(std::size_t rank, std::size_t part, const ByteVector& expected, std::span<const std::byte> got) {
    if (expected.size() == got.size() && std::memcmp(expected.data(), got.data(), got.size()) == 0) return;
    const auto wrong = std::ranges::mismatch(expected, got).in1;
    const RoundPart& about = round_.parts[part];
    const auto offset = static_cast<std::size_t>(wrong - expected.begin());
    violated(Law::Data, rank,
             std::string(to_string(about.operation)) + " of " + std::to_string(about.count) + " " +
                 std::string(to_string(about.type)) + " of " + round_.line->group->id.to_string() +
                 " equals the result computed on the CPU",
             "element " + std::to_string(offset / element_size(about.type)) + " of " +
                 std::to_string(expected.size() / element_size(about.type)) + " differs");
  }

  const RoundValues& values_of(std::size_t part) {
    values_.resize(round_.parts.size());
    if (!values_[part]) values_[part].emplace(round_.parts[part], round_.world_size());
    return *values_[part];
  }

  void violated(Law law, std::size_t rank, std::string expected, std::string got) {
    truth_.violations().add({.law = law,
                             .expected = std::move(expected),
                             .got = std::move(got),
                             .client = round_.ticket.client,
                             .device = book_.device(round_.line->devices[rank]),
                             .stream = round_.ranks[rank].stream.number(),
                             .sequence = round_.ticket.sequence});
  }

  Truth& truth_;
  RoundBook& book_;
  Round& round_;
  std::vector<std::optional<RoundValues>> values_;  // by part
};

}  // namespace

std::uint64_t check_round(Truth& truth, RoundBook& book, Round& round, const std::vector<RankOutcome>& outcomes) {
  const std::uint64_t explained = RoundCheck(truth, book, round).check(outcomes);
  // Release pairs with the acquire in RoundBook::is_callable: the rank that was left out may make its next call.
  if (round.fault == Fault::Missing) round.timed_out.store(true, std::memory_order_release);
  return explained;
}

ByteVector overwriting(const RoundPart& part, std::size_t ranks, std::size_t rank) {
  constexpr std::uint64_t other = 0x0FF;
  RoundPart noise = part;
  noise.seed ^= other;
  return source_of(noise, ranks, rank);
}

}  // namespace cox::stress
