#pragma once

#include <coxswain/perf/recovery/contents.hpp>
#include <coxswain/perf/recovery/journal.hpp>
#include <coxswain/perf/recovery/recovery_options.hpp>
#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/kept/kept_set.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

// The program that fails, for `cox run`: updates kept memory on all its devices until a signal ends it.
//   SIGUSR1 with a Cause   a GPU fault
//   SIGUSR2                finishes the step, compares all memory, and ends with code 0
//   SIGTERM                ends by the signal, after a report
namespace cox::perf {

constexpr int wrong_contents = 3;  ///< exit code; nothing restarts it

/// What the workers of each kind of device have of their own.
template <class Client>
struct WorkerDevices {
  std::vector<Client> clients;
  /// Writes those words as they are after the update.
  std::function<void(std::size_t device, const Handle& memory, Access access, Contents::Part part,
                     std::uint64_t update)>
      write;
  /// The number of words that are not as they are after the update. Blocks.
  std::function<std::uint64_t(std::size_t device, const Handle& memory, std::uint64_t update)> count_wrong;
  /// Queues a GPU fault. Any thread.
  std::function<void(Cause)> fail;
};

/// The signals for a worker, blocked for all threads: call it first in main.
inline sigset_t block_worker_signals() noexcept {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

template <class Client>
class Worker {
 public:
  Worker(const RecoveryOptions& options, const Contents& contents, const Journal& journal,
         const WorkerDevices<Client>& devices)
      : options_(options),
        contents_(contents),
        journal_(journal),
        devices_(devices),
        ids_(options.devices),
        all_(options.devices) {}

  /// Runs until a signal, prints what it throws, and ends the process: the thread that takes the signals may still run.
  /// `exit_code_of`: what the process ends with instead of a code.
  [[noreturn]] void run_to_end(const sigset_t& signals, int (*exit_code_of)(int)) {
    int code = 1;
    try {
      code = run(signals);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "perf_recovery: %s\n", error.what());
    }
    std::fflush(nullptr);
    std::_Exit(exit_code_of(code));
  }

 private:
  int run(const sigset_t& signals) {
    std::thread([this, signals] { obey(signals); }).detach();
    for (const Client& client : devices_.clients) {
      gradients_.push_back(client.create(Bytes::zeroed(sizeof(float))));
      if (options_.passes != 0) scratch_.push_back(client.empty(options_.pass_bytes));
    }
    meet();
    finish();
    journal_.report(Moment::Joined);
    KeptSet set("state", ids_, {.schema = "perf_recovery 1", .mode = options_.mode, .collective_between = true});
    journal_.report(Moment::SetOpen);
    for (const Client& client : devices_.clients) static_cast<void>(client.kept(set, "words", options_.bytes));
    const KeptState state = set.state();
    const Book& book = journal_.book();
    const std::uint64_t begun = book.begun.load();
    journal_.report(Moment::Kept, static_cast<std::uint32_t>(state.kind),
                    state.kind == KeptState::Kind::Whole && begun > state.epoch ? begun - state.epoch : 0);
    if (const std::string why = fault_of(set, state, book.finished.load()); !why.empty()) {
      std::fprintf(stderr, "perf_recovery: the state is reported as '%s', but %s\n", state.to_string().c_str(),
                   why.c_str());
      return wrong_contents;
    }
    journal_.report(Moment::Compared);
    std::uint64_t update = state.last_epoch;
    if (state.kind != KeptState::Kind::Whole) step(set, ++update, true);
    journal_.report(Moment::Restored);
    for (bool is_first = true; is_first || !ends_.load(); is_first = false) {
      step(set, ++update, options_.mode == KeptMode::Double);
      if (is_first) journal_.report(Moment::Stepped);
    }
    for (std::size_t i = 0; i < devices_.clients.size(); ++i)
      if (devices_.count_wrong(i, devices_.clients[i].kept_current(set, "words"), update) != 0) {
        std::fprintf(stderr, "perf_recovery: the last update has wrong contents\n");
        return wrong_contents;
      }
    return 0;
  }

  // The thread that takes the signals.
  void obey(const sigset_t& signals) {
    for (;;) {
      siginfo_t info{};
      const int signal = sigwaitinfo(&signals, &info);
      if (signal == SIGUSR2) ends_.store(true);
      if (signal == SIGUSR1) {
        journal_.report(Moment::Fault);
        try {
          devices_.fail(static_cast<Cause>(info.si_value.sival_int));
        } catch (const std::exception& error) {
          std::fprintf(stderr, "perf_recovery: %s\n", error.what());
        }
      }
      if (signal == SIGTERM) {
        journal_.report(Moment::Fault);
        std::signal(SIGTERM, SIG_DFL);
        pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
        std::raise(SIGTERM);
      }
    }
  }

  // Why the memory is not as the state says; empty: it is.
  std::string fault_of(KeptSet& set, const KeptState& state, std::uint64_t finished) {
    using Kind = KeptState::Kind;
    if (state.kind == Kind::Corrupt) return "nothing else has written it";
    if (state.kind == Kind::Empty && finished != 0) return "update " + std::to_string(finished) + " had finished";
    if (state.kind == Kind::Torn && options_.mode == KeptMode::Double && finished != 0) return "it has two copies";
    if (state.kind == Kind::Whole && state.epoch < finished)
      return "update " + std::to_string(finished) + " had finished";
    for (std::size_t i = 0; i < devices_.clients.size(); ++i) {
      const KeptState::Device& found = state.devices[i];
      if (found.epoch == 0) continue;  // poisoned
      const std::string name = found.device.to_string();
      const std::uint64_t wrong = devices_.count_wrong(i, devices_.clients[i].kept_current(set, "words"), found.epoch);
      if (wrong != 0) return std::to_string(wrong) + " words of " + name + " are not those of its epoch";
      if (state.kind != Kind::Whole) continue;
      std::uint64_t value = 0;
      if (!found.values || found.values->size() != sizeof(value)) return "the values of " + name + " are missing";
      std::memcpy(&value, found.values->data(), sizeof(value));
      if (value != state.epoch) return "the values of " + name + " are those of update " + std::to_string(value);
    }
    return {};
  }

  void step(KeptSet& set, std::uint64_t update, bool writes_all) {
    const auto begin = monotonic_time();
    for (unsigned pass = 0; pass < options_.passes; ++pass)
      for (std::size_t i = 0; i < scratch_.size(); ++i)
        devices_.write(i, scratch_[i], Access::Overwrite, {0, options_.pass_bytes / sizeof(std::uint64_t)}, update);
    meet();
    journal_.book().begun.store(update);
    for (std::size_t i = 0; i < devices_.clients.size(); ++i) {
      const Client& client = devices_.clients[i];
      client.begin_update(set, update);
      devices_.write(i, client.kept_next(set, "words"), writes_all ? Access::Overwrite : Access::Write,
                     writes_all ? contents_.all() : contents_.slice_of(update), update);
      client.commit(set, std::as_bytes(std::span(&update, 1)));
    }
    finish();
    journal_.book().finished.store(update);
    journal_.book().step_nanoseconds.store((monotonic_time() - begin).count());
  }

  // An operation of all devices, as the sum of gradients is: none begins an update if one has failed before.
  void meet() {
    if (devices_.clients.size() == 1) return;
    for (std::size_t i = 0; i < devices_.clients.size(); ++i) {
      devices_.clients[i].all_reduce(gradients_[i], gradients_[i], ElementType::F32, all_);
      devices_.clients[i].sync_collective();
    }
  }
  void finish() {
    for (const Client& client : devices_.clients) client.sync().get();
  }

  const RecoveryOptions& options_;
  const Contents contents_;
  const Journal& journal_;
  const WorkerDevices<Client>& devices_;
  const std::vector<DeviceId> ids_;
  const CommunicationId all_;
  std::vector<Handle> gradients_;
  std::vector<Handle> scratch_;
  std::atomic<bool> ends_{false};
};

}  // namespace cox::perf
