#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/collective_program.hpp>
#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;
using enum CollectiveOperation;

namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

constexpr std::chrono::milliseconds short_deadline{30};

/// Runs a program on a fleet: several threads make the calls of all devices, those of each in its order.
template <class Fleet>
class ProgramRun {
 public:
  using Client = typename Fleet::Client;

  ProgramRun(Fleet& fleet, const CollectiveProgram& program, const Handle& stale)
      : fleet_(fleet), program_(program), stale_(stale), devices_(program.shape().devices) {
    for (std::size_t device = 0; device < devices_.size(); ++device) {
      Device& its = devices_[device];
      // One more for collectives with faults, and one for reads.
      for (std::size_t stream = 0; stream < program.shape().streams + 2; ++stream) {
        its.streams.push_back(fleet[device]);
        its.streams.back().set_stream(StreamId::allocate());
      }
      for (std::size_t buffer = 0; buffer < program.shape().buffers; ++buffer)
        its.buffers.push_back(to_device(fleet[device], CollectiveProgram::initial(device, buffer)));
      if (!program.calls(device).empty()) ++left_;
    }
  }

  void run(std::size_t threads, std::uint64_t seed) {
    std::vector<std::thread> clients;
    for (std::size_t thread = 0; thread < threads; ++thread)
      clients.emplace_back([this, random = std::mt19937_64(seed + thread)]() mutable {
        while (left_.load() != 0) make_one_call(random() % devices_.size());
      });
    for (std::thread& client : clients) client.join();
    for (Device& device : devices_)
      for (auto& hold : device.holds) hold->open();
  }

  void check() {
    const auto outcome =
        program_.outcome({.keeps_first_cause = Fleet::keeps_first_cause, .keeps_contents = Fleet::keeps_contents});
    for (std::size_t device = 0; device < devices_.size(); ++device) {
      INFO("device " << device);
      check_failures(devices_[device], outcome.failures[device]);
      check_faults(device);
    }
    for (std::size_t device = 0; device < devices_.size(); ++device) {
      for (auto& [step, read] : devices_[device].reads) {
        const ProgramStep& of = program_.steps()[step];
        INFO("device " << device << ", read of step " << step);
        const CollectiveProgram::Content& right = outcome.reads.at(step);
        check_read(std::move(read), right, of.first, of.count);
      }
      for (std::size_t buffer = 0; buffer < devices_[device].buffers.size(); ++buffer) {
        INFO("device " << device << ", buffer " << buffer);
        const Handle& handle = devices_[device].buffers[buffer];
        const CollectiveProgram::Content& right = outcome.buffers[device][buffer];
        check_read(fleet_[device].read_async(std::vector<Handle>{handle}), right, 0, buffer_elements);
        const auto failure = handle.failure();
        REQUIRE(failure.has_value() == (right.poison != nullptr));
        if (failure) REQUIRE(right.poison->confirm(failure->cause));
      }
    }
  }

 private:
  struct Device {
    std::mutex mutex;
    std::size_t made = 0;  // calls; guarded by mutex, as all below
    std::vector<Client> streams;
    std::vector<Handle> buffers;
    std::map<std::size_t, Future<std::vector<Bytes>>> reads;  // by step
    std::vector<std::unique_ptr<typename Fleet::Hold>> holds;
  };

  void make_one_call(std::size_t index) {
    Device& device = devices_[index];
    const std::unique_lock lock(device.mutex, std::try_to_lock);
    const auto& calls = program_.calls(index);
    if (!lock || device.made == calls.size()) return;
    const auto [step, part] = calls[device.made];
    make(device, step, part);
    // Else a collective and a call behind it that is refused fail at the same position of the stream, in any order.
    const ProgramStep& made = program_.steps()[step];
    if (program_.shape().failures != 0 && (made.kind == StepKind::Collective || made.kind == StepKind::Group))
      launch(device.streams[made.parts[part].stream], Fleet::Backend::nothing());
    if (++device.made == calls.size()) --left_;
  }

  void make(Device& device, std::size_t number, std::size_t rank) {
    const ProgramStep& step = program_.steps()[number];
    const ProgramStep::Part& part = step.parts[rank];
    const Client& client = device.streams[part.stream];
    switch (step.kind) {
      case StepKind::Wait: return client.sync_collective();
      case StepKind::Renew:
        device.buffers[part.source] = to_device(client, CollectiveProgram::Buffer(buffer_elements, step.number));
        return;
      case StepKind::Kernel:
        return launch(client, Fleet::Backend::multiply_add(device.buffers[part.source], 3, step.number));
      case StepKind::Copy: {
        const Handle& from = device.buffers[part.source];
        const Handle& to = device.buffers[part.destination];
        auto work = Fleet::Backend::copy(from, to);
        if (step.overwrites)
          declare(work, KernelArguments{}.with_buffer(from, Access::Read).with_buffer(to, Access::Overwrite));
        return launch(client, std::move(work));
      }
      case StepKind::Overwrite: {
        const Handle to = window_of(device, step);
        auto work = Fleet::Backend::fill(to, step.number);
        declare(work, KernelArguments{}.with_buffer(to, Access::Overwrite));
        return launch(client, std::move(work));
      }
      case StepKind::Write:
        return client.write(window_of(device, step),
                            Bytes::copy_of(CollectiveProgram::Buffer(step.count, step.number)));
      case StepKind::Read:
        device.reads.emplace(number, client.read_async(std::vector<Handle>{window_of(device, step)}));
        return;
      case StepKind::Accept: return client.accept(window_of(device, step));
      case StepKind::Fail:
        if (step.is_held_up) {
          device.holds.push_back(std::make_unique<typename Fleet::Hold>());
          device.holds.back()->launch(client);
        }
        return fail(client, window_of(device, step), step.failure);
      case StepKind::Group: return group(device, client, step, part);
      case StepKind::Collective: return communicate(device, client, step, rank);
    }
  }

  static void fail(const Client& client, const Handle& to, ProgramFailure::Kind kind) {
    switch (kind) {
      case ProgramFailure::Kind::WriteSize: return client.write(to, Bytes::zeroed(to.size_in_used() + 4));
      case ProgramFailure::Kind::MissingFile:
        return client.write(to, Bytes::from_file("/nonexistent/file", 0, to.size_in_used()));
      case ProgramFailure::Kind::Late: return launch(client, Fleet::Backend::fail_on(client, to));
      default: return launch(client, Fleet::Backend::misused_on(to));
    }
  }
  /// The same launch with its buffers declared in another way.
  template <class Work>
  static void declare(Work& work, KernelArguments buffers) {
    work.arguments = std::move(buffers).with_info(work.arguments.info());
  }
  static Handle window_of(const Device& device, const ProgramStep& step) {
    return elements(device.buffers[step.parts[0].source].offset_start(step.first * 4), step.count);
  }

  // The reduction in two halves.
  void group(Device& device, const Client& client, const ProgramStep& step, const ProgramStep::Part& part) {
    const std::size_t half = step.count / 2;
    client.collective_group(set_of(step), [&](CollectiveGroup& both) {
      for (const auto& [first, count] : {std::pair{std::size_t{0}, half}, std::pair{half, step.count - half}}) {
        const auto window = [&, first = first, count = count](std::size_t buffer) {
          return elements(device.buffers[buffer].offset_start(first * 4), count);
        };
        both.all_reduce(window(part.source), window(part.destination), ElementType::U32, step.reduce_operation);
      }
    });
  }

  void communicate(Device& device, const Client& client, const ProgramStep& step, std::size_t rank) {
    const ProgramStep::Part& part = step.parts[rank];
    const CollectiveOperationFacts& facts = facts_of(step.operation);
    const std::size_t ranks = step.parts.size();
    const std::size_t count =
        step.fault == ProgramFault::Mismatch && rank == step.root ? step.count % 7 + 61 : step.count;
    const DeviceId root = fleet_.devices()[step.parts[step.root].device];
    const CommunicationId set = set_of(step);
    Handle source = elements(device.buffers[part.source], count * (facts.input_of_all_size ? ranks : 1));
    Handle destination = elements(device.buffers[part.destination], count * (facts.output_of_all_size ? ranks : 1));
    if (step.fault != ProgramFault::None)  // into memory of its own: nothing changes
      source = destination = client.empty(count * 4);
    if (step.fault == ProgramFault::StaleHandle && rank == step.root) source = destination = elements(stale_, count);
    switch (step.operation) {
      case AllReduce: return client.all_reduce(source, destination, ElementType::U32, set, step.reduce_operation);
      case Reduce: return client.reduce(source, destination, ElementType::U32, set, step.reduce_operation, root);
      case Broadcast: return client.broadcast(source, destination, ElementType::U32, set, root);
      case AllGather: return client.all_gather(source, destination, ElementType::U32, set);
      case ReduceScatter:
        return client.reduce_scatter(source, destination, ElementType::U32, set, step.reduce_operation);
      case AllToAll: return client.all_to_all(source, destination, ElementType::U32, set);
      case Barrier: return client.barrier(set);
      default: break;
    }
    const DeviceId other = fleet_.devices()[step.parts[1 - rank].device];
    if (rank == 0) return client.send(source, ElementType::U32, other);
    client.receive(destination, ElementType::U32, other);
  }

  [[nodiscard]] CommunicationId set_of(const ProgramStep& step) const {
    std::vector<DeviceId> devices;
    for (const ProgramStep::Part& part : step.parts) devices.push_back(fleet_.devices()[part.device]);
    if (step.fault == ProgramFault::MissingRank) devices.push_back(fleet_.devices().back());
    return devices;
  }
  static Handle elements(const Handle& buffer, std::size_t count) {
    return buffer.size_in_used() > count * 4 ? buffer.offset_end(buffer.size_in_used() - count * 4) : buffer;
  }

  // What the stream has to report: that, in this order, and nothing else.
  static void check_failures(const Client& client, const std::vector<ProgramFailure>& right) {
    const std::vector<std::exception_ptr> found = failures_on(client);
    std::string text;
    for (const ProgramFailure& failure : right) text += "\n  expected: " + failure.text();
    for (const std::exception_ptr& failure : found) text += "\n  reported: " + describe(failure);
    INFO(text);
    std::size_t reported = 0;
    for (const ProgramFailure& failure : right) {
      INFO("report " << reported);
      REQUIRE(reported < found.size());
      REQUIRE(failure.is(found[reported++], Fleet::Backend::late_kind));
      const std::size_t left = right.size() - static_cast<std::size_t>(&failure - right.data()) - 1;
      const bool is_again = !Fleet::reports_once && failure.kind == ProgramFailure::Kind::LateOrPoisoned &&
                            found.size() - reported > left && mentions(describe(found[reported]), {"kernel 'fill'"});
      if (is_again) ++reported;
    }
    REQUIRE(reported == found.size());
  }
  static void check_failures(const Device& device, const std::vector<std::vector<ProgramFailure>>& right) {
    for (std::size_t stream = 0; stream < right.size(); ++stream) {
      INFO("stream " << stream);
      check_failures(device.streams[stream], right[stream]);
    }
    REQUIRE(failures_on(device.streams.back()).empty());
  }
  // Every operation that was to fail has failed on every device that asked for it.
  void check_faults(std::size_t index) {
    std::size_t expected = 0;
    for (const auto& call : program_.calls(index))
      if (program_.steps()[call.step].fault != ProgramFault::None) ++expected;
    const auto found = failures_on(devices_[index].streams[program_.shape().streams]);
    for (const auto& each : found) REQUIRE_THROWS_AS(std::rethrow_exception(each), CollectiveError);
    REQUIRE(found.size() == expected);
  }
  static std::vector<std::exception_ptr> failures_on(const Client& client) {
    try {
      settle(client);
    } catch (const ServerError& error) {
      return error.errors();
    }
    return {};
  }
  static void check_read(Future<std::vector<Bytes>> read, const CollectiveProgram::Content& right, std::size_t first,
                         std::size_t count) {
    try {
      const auto found = get_soon(std::move(read)).front().template to_vector<std::uint32_t>();
      REQUIRE(right.poison == nullptr);
      const auto begin = right.numbers.begin() + static_cast<std::ptrdiff_t>(first);
      if (right.is_known)
        REQUIRE(found == CollectiveProgram::Buffer(begin, begin + static_cast<std::ptrdiff_t>(count)));
    } catch (const IoError& error) {
      INFO(error.what());
      REQUIRE(right.poison != nullptr);
      const ProgramFailure failure{ProgramFailure::Kind::Poisoned, right.poison};
      REQUIRE(failure.is(std::current_exception(), Fleet::Backend::late_kind));
    }
  }

  Fleet& fleet_;
  const CollectiveProgram& program_;
  const Handle stale_;
  std::vector<Device> devices_;
  std::atomic<std::size_t> left_{0};  // devices with calls to make
};

/// The sets with the last device, which does not come, get a deadline that a test can wait for.
template <class Fleet>
void open_impatiently(Fleet& fleet, const ProgramShape& shape) {
  set_settings({{"collectives.timeout", std::chrono::nanoseconds(short_deadline)}});
  std::vector<DeviceId> devices;
  for (std::size_t device = 0; device < shape.devices; ++device) devices.push_back(fleet.devices()[device]);
  devices.push_back(fleet.devices().back());
  fleet[0].ensure_init_collective(devices);
  reset_settings({"collectives.timeout"});
}

/// Ends the process with the flight recorders if no program ends for so long: they hang.
class HangWatch {
 public:
  HangWatch() = default;
  void note_progress() noexcept { ended_.fetch_add(1); }

 private:
  static constexpr std::chrono::minutes patience{sanitized ? 5 : 1};

  std::atomic<std::uint64_t> ended_{0};
  std::mutex mutex_;
  std::condition_variable_any never_;
  std::jthread watch_{[this](const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    for (std::uint64_t before = 0;;) {
      static_cast<void>(never_.wait_for(lock, stop, patience, [] { return false; }));
      if (stop.stop_requested()) return;
      if (ended_.load() == before) {
        std::cerr << "the programs hang: " << dump_flight_recorders() << std::endl;
        std::abort();
      }
      before = ended_.load();
    }
  }};
};

template <class Fleet>
void run_programs(std::size_t programs, std::uint64_t first_seed) {
  HangWatch watch;
  constexpr std::size_t at_once = 50;  // programs on one fleet
  for (std::size_t done = 0; done < programs;) {
    Fleet fleet(Fleet::max_devices());
    watch.note_progress();
    const Handle stale = to_device(fleet[0], CollectiveProgram::Buffer(buffer_elements, 0));
    fleet.reopen(0);
    for (std::size_t i = 0; i < at_once && done < programs; ++i, ++done) {
      const std::uint64_t seed = first_seed + done;
      std::mt19937_64 random(seed);
      // The last device is the one that does not come, if there are enough devices.
      const bool can_miss = fleet.size() > 3;
      const ProgramShape shape{.devices = can_miss ? 3 + random() % (fleet.size() - 3) : fleet.size(),
                               .communicators = 1 + random() % 5,
                               .buffers = 2 + random() % 5,
                               .streams = 1 + random() % 4,
                               .operations = 10 + random() % 50,
                               .faults = random() % 2 == 0 || !can_miss ? 0 : 0.1,
                               .failures = random() % 2 == 0 ? 0 : 0.1};
      INFO("seed " << seed);
      const CollectiveProgram program(seed, shape);
      if (can_miss) open_impatiently(fleet, shape);
      ProgramRun<Fleet> run(fleet, program, stale);
      run.run(1 + random() % 6, seed);
      run.check();
      watch.note_progress();
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("L14: random programs of overlapping communicators with faults equal their sequential execution", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 4);
  run_programs<TestType>((sanitized ? 40 : 300) / TestType::slowness, 1);
}

// COX_TEST_SEED: the seed of the first program, such as one that has failed before.
TEMPLATE_TEST_CASE("Ten thousand random programs of collectives, full length", "[.long]", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  const char* const seed = std::getenv("COX_TEST_SEED");
  run_programs<TestType>(10'000, seed != nullptr ? std::stoull(seed) : std::random_device{}());
}
