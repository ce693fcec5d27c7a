#pragma once

#include <coxswain/tests/collectives/launch_model.hpp>
#include <coxswain/tests/collectives/launch_of.hpp>

#include <coxswain/collectives/sequencer/sequencer.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace cox::test {

/// A rank submits its next operation on a communicator.
struct Submission {
  std::size_t communicator;
  std::size_t rank;
  LaunchModel::Operations after = {};  ///< What the rank's compute stream waits for by then.
};

/// A set of communicators and, per rank, as many operations as every other rank of it has.
struct Program {
  std::size_t devices;
  std::vector<CommunicationId> communicators;
  std::vector<Submission> submissions;  // in the order in which one thread makes them

  [[nodiscard]] DeviceId device_of(const Submission& submission) const {
    return communicators[submission.communicator].devices()[submission.rank];
  }
};

inline Program random_communicators(std::mt19937_64& random, std::size_t devices, std::size_t communicators) {
  Program program{devices, {}, {}};
  std::vector<DeviceId> all;
  for (std::size_t d = 0; d < devices; ++d) all.push_back({.type = 0, .index = static_cast<std::uint16_t>(d)});
  for (std::size_t c = 0; c < communicators; ++c) {
    std::ranges::shuffle(all, random);
    program.communicators.emplace_back(std::span(all).first(2 + random() % (devices - 1)));
  }
  return program;
}

/// Every rank submits when it likes.
inline Program random_program(std::mt19937_64& random, std::size_t devices, std::size_t communicators, int operations) {
  Program program = random_communicators(random, devices, communicators);
  for (std::size_t c = 0; c < communicators; ++c)
    for (std::size_t rank = 0; rank < program.communicators[c].world_size(); ++rank)
      program.submissions.insert(program.submissions.end(), static_cast<std::size_t>(operations), Submission{c, rank});
  std::ranges::shuffle(program.submissions, random);
  return program;
}

/// Every device does its part of one list of operations, in the order of that list; the devices run apart.
inline Program agreed_program(std::mt19937_64& random, std::size_t devices, std::size_t communicators, int operations) {
  Program program = random_communicators(random, devices, communicators);
  std::vector<std::vector<Submission>> of_device(devices);
  for (int i = 0; i < operations * static_cast<int>(communicators); ++i) {
    const std::size_t c = random() % communicators;
    for (std::size_t rank = 0; rank < program.communicators[c].world_size(); ++rank)
      of_device[program.communicators[c].devices()[rank].index].push_back({c, rank});
  }
  std::vector<std::size_t> turns;
  for (std::size_t d = 0; d < devices; ++d) turns.insert(turns.end(), of_device[d].size(), d);
  std::ranges::shuffle(turns, random);
  std::vector<std::size_t> next(devices);
  for (const std::size_t d : turns) program.submissions.push_back(of_device[d][next[d]++]);
  return program;
}

/// Now and then a device's compute stream waits for one of the operations that the device has submitted; so do all
/// launches that it submits after that.
inline void add_waits(std::mt19937_64& random, Program& program, unsigned one_in) {
  std::vector<std::map<std::size_t, std::uint64_t>> submitted(program.devices);  // of a device: per communicator
  std::vector<std::map<std::size_t, std::uint64_t>> waited_for(program.devices);
  for (Submission& submission : program.submissions) {
    const std::size_t device = program.device_of(submission).index;
    if (!submitted[device].empty() && random() % one_in == 0) {
      const auto& [communicator, last] =
          *std::next(submitted[device].begin(), static_cast<std::ptrdiff_t>(random() % submitted[device].size()));
      std::uint64_t& waited = waited_for[device][communicator];
      waited = std::max(waited, 1 + random() % last);
    }
    submission.after.assign(waited_for[device].begin(), waited_for[device].end());
    ++submitted[device][submission.communicator];
  }
}

/// What the sequencer releases to a model of the devices.
class Run {
 public:
  /// `keep_waits` false: the sequencer is not told what launches wait for, the devices know it.
  explicit Run(const Program& program, bool keep_waits = true)
      : program_(program), keep_waits_(keep_waits), model_(program.devices), orders_(program.devices) {
    for (const CommunicationId& devices_of : program.communicators)
      numbers_.push_back(sequencer_.open(devices_of, std::chrono::hours(1)));
  }

  std::uint64_t submit(const Submission& submission, std::size_t count = 1) {
    ++submitted_;
    const DeviceId device = program_.device_of(submission);
    CollectiveSubmission arrival{.requests = {{.count = count}},
                                 .launch = launch_of([this, device, &submission](const LaunchGrant& grant) {
                                   answer(device, submission, grant);
                                 })};
    if (keep_waits_)
      for (const auto& [communicator, sequence] : submission.after)
        arrival.dependencies.push_back({numbers_[communicator], sequence});
    return sequencer_.submit(numbers_[submission.communicator], submission.rank, std::move(arrival));
  }
  void abort(std::size_t communicator) { sequencer_.abort(numbers_[communicator], nullptr); }
  void leave(DeviceId device) { sequencer_.leave(device); }
  void close() {
    for (const CommunicatorNumber number : numbers_) sequencer_.close(number);
  }

  [[nodiscard]] std::size_t launched() const {
    std::size_t launched = 0;
    for (const auto& orders : orders_) launched += orders.size();
    return launched;
  }
  [[nodiscard]] std::size_t submitted() const { return submitted_; }
  [[nodiscard]] std::size_t answered() const { return answered_; }
  [[nodiscard]] std::size_t in_rings() const { return in_rings_; }
  /// On every device the launches came in the one order, and the devices finish.
  [[nodiscard]] bool in_order() const {
    return std::ranges::all_of(orders_, [](const auto& orders) {
      return std::ranges::adjacent_find(orders, std::ranges::greater_equal()) == orders.end();
    });
  }
  [[nodiscard]] std::size_t stuck() const { return model_.stuck(program_.communicators); }
  [[nodiscard]] std::set<LaunchModel::Operation> refused() const { return model_.refused(); }

 private:
  // No lock: the sequencer promises one launch at a time on one device.
  void answer(DeviceId device, const Submission& submission, const LaunchGrant& grant) {
    ++answered_;
    const LaunchModel::Operation operation{submission.communicator, grant.sequence};
    if (grant.refusal) {
      if (would_deadlock(grant.refusal)) ++in_rings_;
      return model_.refuse(device, operation);
    }
    model_.launch(device, operation, submission.after);
    orders_[device.index].push_back(grant.order);
  }
  static bool would_deadlock(const std::exception_ptr& refusal) {
    try {
      std::rethrow_exception(refusal);
    } catch (const CollectiveError& error) {
      return error.kind() == CollectiveError::Kind::WouldDeadlock;
    }
  }

  const Program& program_;
  const bool keep_waits_;
  LaunchModel model_;
  std::vector<std::vector<std::uint64_t>> orders_;
  std::atomic<std::size_t> answered_{0};
  std::atomic<std::size_t> submitted_{0};
  std::atomic<std::size_t> in_rings_{0};
  std::vector<CommunicatorNumber> numbers_;
  Sequencer sequencer_{{.max_ahead = 1U << 20U, .recorded_operations = 4}};
};

}  // namespace cox::test
