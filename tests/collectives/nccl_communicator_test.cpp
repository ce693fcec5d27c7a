// The life of NCCL's communicators, over a library that stands in for NCCL and fails when it is told to.
#include <coxswain/tests/fake_nccl/fake_nccl.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/manual_device_event.hpp>

#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/collectives/nccl/nccl_communicator.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/config/process_settings.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using Kind = test::FakeNccl::Kind;
using test::ManualDeviceEvent;
using Time = NcclCommunicator::Time;

namespace {

constexpr std::size_t ranks = 3;
constexpr auto patience = 30s;

const std::string& fake_nccl_file() {
  static const std::string file = COX_FAKE_NCCL;
  return file;
}

/// The stand-in, as nothing had happened yet.
test::FakeNccl& fresh_nccl() {
  set_settings({{"collectives.nccl", fake_nccl_file()}});
  if (detail::find_nccl().nccl == nullptr) throw std::runtime_error(detail::find_nccl().error);
  void* const library = ::dlopen(fake_nccl_file().c_str(), RTLD_NOW | RTLD_NOLOAD);
  auto* const state = reinterpret_cast<test::FakeNccl* (*)()>(::dlsym(library, "cox_fake_nccl"));
  test::FakeNccl& fake = *state();
  const std::lock_guard lock(fake.mutex);
  fake.calls.clear();
  fake.misuse.clear();
  fake.ctas.clear();
  fake.calls_until_failure = -1;
  fake.async_error = 0;
  fake.hold_creation = false;
  fake.hold_abort = false;
  fake.at_end = nullptr;
  return fake;
}

/// NCCL's communicators of devices that are not there, and what becomes of its operations.
class Bench {
 public:
  explicit Bench(
      std::chrono::milliseconds timeout = 60s, const std::function<bool()>& lost = [] { return false; },
      std::chrono::milliseconds leave_within = 10s)
      : fake(fresh_nccl()),
        nccl(std::make_shared<NcclCommunicator>(
            NcclDevices{.devices = CommunicationId({{0, 0}, {0, 1}, {0, 2}}),
                        .ordinals = {0, 1, 2},
                        .open =
                            [this] {
                              while (hold_opening) std::this_thread::yield();
                              if (opening_fails) throw std::runtime_error("no device to be had");
                              return std::make_unique<Opened>(*this);
                            },
                        .quiesce = [this] { return quiet; },
                        .try_quiesce = [this](std::chrono::milliseconds within) -> std::shared_ptr<void> {
                          if (attempt) return attempt(within);
                          ++waiting;
                          while (hold_quiescence) std::this_thread::yield();
                          if (!never_quiescent) return quiet;
                          waited += within.count();
                          return nullptr;
                        },
                        .is_lost = lost,
                        .on_completed =
                            [this](std::size_t rank, std::span<const std::uint64_t> sequences) {
                              const std::lock_guard lock(begun);
                              for (const std::uint64_t sequence : sequences)
                                ++operations[sequence - 1]->parts[rank].ended;
                            },
                        .leave_within = leave_within},
            timeout)) {
    const std::lock_guard lock(fake.mutex);
    fake.at_end = [this](Kind) {
      if (quiet.use_count() == 1) ++ended_unguarded;
      ++ending;
    };
  }
  ~Bench() {
    end_all();
    nccl->close();
    nccl->abort(std::make_exception_ptr(std::runtime_error("the test is over")));
    static_cast<void>(wait_until_destroyed());
    while (nccl.use_count() > 1) std::this_thread::yield();  // its watch may be calling on_completed
    const std::lock_guard lock(fake.mutex);
    fake.at_end = nullptr;
  }

  bool create() {
    std::promise<void> made;
    auto is_made = made.get_future();
    if (!nccl->created([&] { made.set_value(); })) is_made.get();
    return nccl->broken() == nullptr;
  }
  /// Opens the devices, for operations that NCCL does not do.
  bool open() {
    std::promise<void> made;
    auto is_made = made.get_future();
    if (!nccl->devices_open([&] { made.set_value(); })) is_made.get();
    return nccl->broken() == nullptr;
  }
  void hold_creation(bool held) {
    const std::lock_guard lock(fake.mutex);
    fake.hold_creation = held;
  }

  /// What a rank has launched.
  struct Part final : NcclLaunch {
    void fail(const std::exception_ptr& cause) noexcept override {
      error = cause;
      ++failure_count;
    }

    std::shared_ptr<ManualDeviceEvent> before = std::make_shared<ManualDeviceEvent>();
    std::shared_ptr<ManualDeviceEvent> end = std::make_shared<ManualDeviceEvent>();
    std::atomic<int> failure_count{0};
    std::atomic<int> ended{0};  // so often it was said to be over on all devices
    std::exception_ptr error;   // that it was told, or could not be launched with
  };
  struct Operation {
    std::shared_ptr<NcclOperation> operation;
    std::array<Part, ranks> parts;

    /// The rank's part, not owned, as a device thread that has launched it passes it on.
    std::shared_ptr<NcclLaunch> launched(std::size_t rank) {
      Part& part = parts[rank];
      part.operation = operation;
      part.completion = part.end;
      part.dependencies.push_back(part.before);
      return {std::shared_ptr<void>(), &part};
    }
    /// Whether each rank's part was said to be over so often.
    [[nodiscard]] bool ended(int times) const {
      return std::ranges::all_of(parts, [times](const Part& part) { return part.ended == times; });
    }
  };

  Operation& begin(std::size_t requests = 1) {
    const std::lock_guard lock(begun);
    auto& made = *operations.emplace_back(std::make_unique<Operation>());
    made.operation = std::make_shared<NcclOperation>(CollectiveRequests(requests_of(requests)), ranks);
    made.operation->sequence = operations.size();
    return made;
  }
  /// As a device thread does. Returns whether the rank has launched its part.
  bool launch(Operation& of, std::size_t rank, std::size_t requests = 1) {
    return launch(std::vector<Operation*>{&of}, rank, requests);
  }
  /// Its parts of all these, which are noted together.
  bool launch(const std::vector<Operation*>& all, std::size_t rank, std::size_t requests = 1) {
    try {
      std::vector<std::shared_ptr<NcclLaunch>> launched;
      for (Operation* const of : all) {
        NcclCalls calls;
        for (const CollectiveRequest& request : requests_of(requests)) calls.push_back({.request = request});
        const NcclCommunicator::LaunchLock launching = nccl->begin_launch(rank);
        nccl->launch(launching, rank, calls, nullptr);
        launched.push_back(of->launched(rank));
      }
      nccl->add(nccl->lane(), rank, launched, completed_before[rank]);
      return true;
    } catch (...) {
      for (Operation* const of : all) of->parts[rank].error = std::current_exception();
      nccl->abort(std::current_exception());
      return false;
    }
  }
  /// The same by kernels that are not NCCL's.
  bool launch_kernel(Operation& of, std::size_t rank) {
    try {
      const NcclCommunicator::LaunchLock launching = nccl->begin_launch(rank);
      REQUIRE(launching.opened != nullptr);
      std::shared_ptr<NcclLaunch> launched = of.launched(rank);
      nccl->add(nccl->lane(), rank, {&launched, 1}, completed_before[rank]);
      return true;
    } catch (...) {
      of.parts[rank].error = std::current_exception();
      nccl->abort(std::current_exception());
      return false;
    }
  }
  void launch_kernels(Operation& of) {
    for (std::size_t rank = 0; rank < ranks; ++rank) static_cast<void>(launch_kernel(of, rank));
  }
  void launch_all(Operation& of, std::size_t requests = 1) {
    for (std::size_t rank = 0; rank < ranks; ++rank) static_cast<void>(launch(of, rank, requests));
  }
  static void end(Operation& of) {
    for (Part& part : of.parts) {
      part.before->reach();
      part.end->reach();
    }
  }
  void end_all() {
    const std::lock_guard lock(begun);
    for (const auto& operation : operations) end(*operation);
  }
  bool wait_until_destroyed() { return nccl->wait_until_destroyed(std::chrono::steady_clock::now() + patience); }
  std::size_t count(Kind kind) {
    const std::lock_guard lock(fake.mutex);
    return fake.count(kind);
  }
  int live() {
    const std::lock_guard lock(fake.mutex);
    return fake.live;
  }
  std::vector<std::string> misuse() {
    const std::lock_guard lock(fake.mutex);
    return fake.misuse;
  }

  test::FakeNccl& fake;
  std::shared_ptr<int> quiet = std::make_shared<int>();  // others hold it while nothing may be half launched
  std::shared_ptr<NcclCommunicator> nccl;
  std::atomic<int> opened{0};
  std::atomic<int> given_up{0};
  bool opening_fails = false;
  int ctas = 0;
  std::atomic<bool> hold_opening{false};
  std::atomic<bool> hold_quiescence{false};  // something is half launched
  std::atomic<int> waiting{0};               // how often NcclCommunicator has waited for the end of that
  std::atomic<bool> never_quiescent{false};  // such a wait is in vain
  std::function<std::shared_ptr<void>(std::chrono::milliseconds within)> attempt;  // replaces such waits; set at first
  std::atomic<std::int64_t> waited{0};     // how long they were, in milliseconds
  std::atomic<int> ending{0};              // calls of NCCL that destroy or abort
  std::atomic<int> ended_unguarded{0};     // of those, while something may be half launched
  std::atomic<std::thread::id> freeing{};  // the thread that has closed the devices
  std::atomic<bool> freed_in_quiescence{false};
  std::array<std::uint64_t, ranks> completed_before{};  // what the ranks know of their parts
  std::mutex begun;                                     // while operations are added, and ended by who gives up
  std::vector<std::unique_ptr<Operation>> operations;

 private:
  class Opened final : public NcclDeviceResources {
   public:
    explicit Opened(Bench& bench) : bench_(bench) { ++bench_.opened; }
    ~Opened() override {
      bench_.freed_in_quiescence = bench_.quiet.use_count() > 1;
      bench_.freeing = std::this_thread::get_id();
      --bench_.opened;
    }
    // Kernels that wait for other ranks end.
    void abort() noexcept override {
      bench_.end_all();
      ++bench_.given_up;
    }
    [[nodiscard]] CUstream_st* stream(std::size_t) const noexcept override { return nullptr; }
    [[nodiscard]] void* scratch(std::size_t rank) const noexcept override { return scratch_[rank].data(); }
    [[nodiscard]] std::shared_ptr<void> make_current(std::size_t) const override { return nullptr; }
    [[nodiscard]] bool is_idle(std::size_t) const override { return true; }
    void synchronize(std::size_t) const override {}
    [[nodiscard]] int ctas() const noexcept override { return bench_.ctas; }

   private:
    Bench& bench_;
    mutable std::array<std::array<std::byte, scratch_size>, ranks> scratch_{};
  };

  static CollectiveRequests requests_of(std::size_t count) {
    CollectiveRequests requests;
    for (std::size_t i = 0; i < count; ++i) requests.push_back({.count = 4});
    return requests;
  }
};

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return caught.what();
  }
}

std::optional<CollectiveError::Kind> kind_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveError& caught) {
    return caught.kind();
  } catch (...) {
    return std::nullopt;
  }
}

template <class Reached>
bool becomes_true(const Reached& reached) {
  const Time deadline = std::chrono::steady_clock::now() + patience;
  while (!reached() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  return reached();
}

}  // namespace

TEST_CASE("NCCL's communicators are made once, and destroyed when what was launched has ended") {
  Bench bench;
  REQUIRE(bench.create());
  CHECK(bench.create());  // they are there
  CHECK(bench.live() == ranks);
  CHECK(bench.opened == 1);
  auto& operation = bench.begin();
  bench.launch_all(operation);
  bench.nccl->close();
  CHECK_FALSE(bench.nccl->wait_until_destroyed(std::chrono::steady_clock::now() + 20ms));
  CHECK(bench.live() == ranks);
  Bench::end(operation);
  REQUIRE(bench.wait_until_destroyed());
  CHECK(operation.ended(1));
  CHECK(bench.count(Kind::Create) == 1);
  CHECK(bench.count(Kind::Destroy) == ranks);
  CHECK(bench.count(Kind::Abort) == 0);
  CHECK(bench.live() == 0);
  CHECK(bench.opened == 0);
  CHECK(bench.misuse().empty());
  for (const auto& part : operation.parts) CHECK(part.failure_count == 0);
}

TEST_CASE("NCCL's communicators of one process have the CTAs of their devices") {
  Bench bench;
  bench.ctas = 16;
  REQUIRE(bench.create());
  {
    const std::lock_guard lock(bench.fake.mutex);
    CHECK(bench.fake.ctas == std::vector<test::FakeNccl::Ctas>(ranks, {16, 16}));
  }
  auto& operation = bench.begin();
  bench.launch_all(operation);
  bench.end_all();
  bench.nccl->close();
  CHECK(bench.wait_until_destroyed());
  CHECK(bench.live() == 0);
  CHECK(bench.misuse().empty());
}

TEST_CASE("A creation with such CTAs that fails leaves nothing behind") {
  const int calls = GENERATE(0, 1, 2, 3, 4, 5, 6);
  Bench bench;
  bench.ctas = 16;
  bench.fake.calls_until_failure = calls;
  CHECK_FALSE(bench.create());
  CHECK(kind_of(bench.nccl->broken()) == CollectiveError::Kind::Backend);
  CHECK(bench.wait_until_destroyed());
  CHECK(bench.live() == 0);
  CHECK(bench.opened == 0);
  CHECK(bench.misuse().empty());
}

// On four GPUs the process hung: memory was freed while a collective of another communicator had been launched on some
// of its GPUs only.
TEST_CASE("T1: communicators are destroyed or aborted, and memory is freed, only while nothing is half launched") {
  Bench bench;
  REQUIRE(bench.create());
  bench.hold_quiescence = true;
  const bool is_aborted = GENERATE(false, true);
  if (is_aborted)
    bench.nccl->abort(std::make_exception_ptr(std::runtime_error("a rank has failed")));
  else
    bench.nccl->close();
  REQUIRE(becomes_true([&] { return bench.waiting == 1; }));
  CHECK(bench.live() == ranks);
  CHECK(bench.opened == 1);
  bench.hold_quiescence = false;
  REQUIRE(bench.wait_until_destroyed());
  CHECK(bench.live() == 0);
  CHECK(bench.opened == 0);
  CHECK(bench.freed_in_quiescence);
  CHECK(bench.ending == ranks);
  CHECK(bench.ended_unguarded == 0);
}

TEST_CASE("T1: without such a moment communicators are destroyed all the same, after a failure soon") {
  Bench bench;
  REQUIRE(bench.create());
  bench.never_quiescent = true;
  const bool is_aborted = GENERATE(false, true);
  if (is_aborted)
    bench.nccl->abort(std::make_exception_ptr(std::runtime_error("a rank has failed")));
  else
    bench.nccl->close();
  REQUIRE(bench.wait_until_destroyed());
  CHECK(bench.live() == 0);
  CHECK(bench.opened == 0);
  // For NCCL, and a second for the devices. The pauses in between count, too, but these waits return at once.
  const auto expected = is_aborted ? 2s : NcclCommunicator::patience_with_launches + 1s;
  CHECK(std::chrono::milliseconds(bench.waited) <= expected);
  CHECK(std::chrono::milliseconds(bench.waited) >= expected / 2);
}

TEST_CASE("T1: an attempt to find such a moment holds up launches for a second at most") {
  std::atomic<std::chrono::milliseconds> longest{0ms};
  Bench bench;
  bench.attempt = [&](std::chrono::milliseconds within) {
    longest = std::max(longest.load(), within);
    return nullptr;
  };
  REQUIRE(bench.create());
  bench.nccl->close();
  REQUIRE(bench.wait_until_destroyed());
  CHECK(longest.load() == 1s);
}

TEST_CASE("T1: launches go on after such an attempt for as long as it has held them up") {
  std::vector<std::pair<Time, Time>> attempts;  // begin and end
  Bench bench;
  bench.attempt = [&](std::chrono::milliseconds) -> std::shared_ptr<void> {
    const Time begun = std::chrono::steady_clock::now();
    const bool is_last = !attempts.empty();
    while (!is_last && std::chrono::steady_clock::now() < begun + 20ms) std::this_thread::yield();
    attempts.emplace_back(begun, std::chrono::steady_clock::now());
    return is_last ? bench.quiet : nullptr;
  };
  REQUIRE(bench.create());
  bench.nccl->close();
  REQUIRE(bench.wait_until_destroyed());
  REQUIRE(attempts.size() == 2);
  CHECK(attempts[1].first - attempts[0].second >= 20ms);
}

TEST_CASE("T1: the devices are closed by a helper thread, whichever thread has used them last") {
  Bench bench;
  REQUIRE(bench.create());
  std::shared_ptr<NcclDeviceResources> used = bench.nccl->opened();
  const bool is_aborted = GENERATE(false, true);
  if (is_aborted)
    bench.nccl->abort(std::make_exception_ptr(std::runtime_error("a rank has failed")));
  else
    bench.nccl->close();
  REQUIRE(becomes_true([&] { return bench.nccl->opened() == nullptr; }));
  CHECK(bench.opened == 1);
  used.reset();
  REQUIRE(bench.wait_until_destroyed());
  CHECK(bench.opened == 0);
  CHECK(bench.freed_in_quiescence);
  CHECK(bench.freeing.load() != std::this_thread::get_id());
}

TEST_CASE("T1: what a failed creation has made is aborted and freed while nothing is half launched") {
  Bench bench;
  const bool is_open = GENERATE(false, true);
  const bool is_aborted = GENERATE(false, true);
  if (is_open) REQUIRE(bench.open());
  bench.hold_creation(true);
  REQUIRE_FALSE(bench.nccl->created([] {}));
  REQUIRE(becomes_true([&] { return bench.count(Kind::Create) == 1; }));
  if (is_aborted) {
    bench.nccl->abort(std::make_exception_ptr(std::runtime_error("changed my mind")));
    CHECK(bench.quiet.use_count() == 1);  // NCCL may never return
  }
  {
    const std::lock_guard lock(bench.fake.mutex);
    bench.fake.calls_until_failure = 1;  // the ranks cannot meet
    bench.fake.hold_creation = false;
  }
  REQUIRE(becomes_true([&] { return bench.nccl->broken() != nullptr && bench.count(Kind::Abort) == ranks; }));
  bench.nccl->close();
  REQUIRE(bench.wait_until_destroyed());
  CHECK(bench.live() == 0);
  CHECK(bench.opened == 0);
  CHECK(bench.ending == ranks);
  CHECK(bench.ended_unguarded == 0);
  CHECK(bench.freed_in_quiescence);
  CHECK(bench.quiet.use_count() == 1);
}

TEST_CASE("T1: an abort opens nothing while NCCL aborts what a failed creation has made, unless NCCL does not return") {
  Bench bench;
  {
    const std::lock_guard lock(bench.fake.mutex);
    bench.fake.calls_until_failure = 3;  // the ranks cannot meet
    bench.fake.hold_abort = true;
  }
  REQUIRE_FALSE(bench.nccl->created([] {}));
  REQUIRE(becomes_true([&] { return bench.ending == 1; }));
  bench.nccl->abort(std::make_exception_ptr(std::runtime_error("changed my mind")));
  CHECK(bench.quiet.use_count() > 1);
  static_cast<void>(bench.nccl->check_deadlines(std::chrono::steady_clock::now() + 61s));
  CHECK(bench.quiet.use_count() == 1);
  CHECK(bench.wait_until_destroyed());  // a device can be shut down
  {
    const std::lock_guard lock(bench.fake.mutex);
    bench.fake.hold_abort = false;
  }
  REQUIRE(becomes_true([&] { return bench.opened == 0; }));
  CHECK(bench.live() == 0);
  CHECK(bench.freed_in_quiescence);
}

TEST_CASE("Other communicators do not wait for NCCL that does not abort what a failed creation has made") {
  Bench bench(60s, [] { return false; }, 20ms);
  const bool is_overdue = GENERATE(false, true);
  bench.hold_creation(true);
  REQUIRE_FALSE(bench.nccl->created([] {}));
  REQUIRE(becomes_true([&] { return bench.count(Kind::Create) == 1; }));
  if (is_overdue) static_cast<void>(bench.nccl->check_deadlines(std::chrono::steady_clock::now() + 61s));
  {
    const std::lock_guard lock(bench.fake.mutex);
    bench.fake.calls_until_failure = 1;  // the ranks cannot meet
    bench.fake.hold_abort = true;
    bench.fake.hold_creation = false;
  }
  REQUIRE(becomes_true([&] { return bench.ending == 1; }));
  CHECK(becomes_true([&] { return bench.quiet.use_count() == 1; }));
  CHECK((bench.nccl->broken() != nullptr) == is_overdue);  // the creation has not ended
  {
    const std::lock_guard lock(bench.fake.mutex);
    bench.fake.hold_abort = false;
  }
  REQUIRE(becomes_true([&] { return bench.opened == 0; }));
  CHECK(bench.live() == 0);
  CHECK(bench.freed_in_quiescence);
}

TEST_CASE("An abort while a closed communicator waits to be destroyed aborts it") {
  Bench bench;
  REQUIRE(bench.create());
  bench.hold_quiescence = true;
  bench.nccl->close();
  REQUIRE(becomes_true([&] { return bench.waiting == 1; }));
  bench.nccl->abort(std::make_exception_ptr(std::runtime_error("a rank has failed")));
  const bool is_in_vain = GENERATE(false, true);
  bench.never_quiescent = is_in_vain;
  bench.hold_quiescence = false;
  REQUIRE(bench.wait_until_destroyed());
  CHECK(bench.count(Kind::Abort) == ranks);
  CHECK(bench.count(Kind::Destroy) == 0);
  CHECK(bench.given_up == 1);
  CHECK((bench.ended_unguarded == 0) != is_in_vain);
  // After the abort a second for NCCL, and one for the devices, with pauses.
  CHECK(bench.waited <= (is_in_vain ? 2100 : 0));
  CHECK(bench.waited >= (is_in_vain ? 1100 : 0));
}

TEST_CASE("T14: NCCL is not called any more after a GPU fault while a communicator that ends waits for a launch") {
  std::atomic<bool> lost{false};
  Bench bench(60s, [&] { return lost.load(); });
  REQUIRE(bench.create());
  const bool is_aborted = GENERATE(false, true);
  const Kind end = is_aborted ? Kind::Abort : Kind::Destroy;
  const std::size_t ended = is_aborted ? 2 : 1;  // aborted at the same time, destroyed one after the other
  {
    const NcclCommunicator::LaunchLock launching = bench.nccl->begin_launch(1);
    if (is_aborted)
      bench.nccl->abort(std::make_exception_ptr(std::runtime_error("a rank has failed")));
    else
      bench.nccl->close();
    REQUIRE(becomes_true([&] { return bench.count(end) == ended; }));
    lost = true;
  }
  REQUIRE(bench.wait_until_destroyed());
  CHECK(bench.count(end) == ended);
  CHECK(bench.opened == 0);
  CHECK_THROWS(bench.nccl->begin_launch(1));
  const std::lock_guard lock(bench.fake.mutex);
  bench.fake.live = 0;  // they are lost with the GPUs
}

TEST_CASE("T14: NCCL is not called any more after a GPU fault while a communicator waits to be destroyed or aborted") {
  std::atomic<bool> lost{false};
  Bench bench(60s, [&] { return lost.load(); });
  REQUIRE(bench.create());
  bench.hold_quiescence = true;
  bench.never_quiescent = GENERATE(false, true);
  if (GENERATE(false, true))
    bench.nccl->abort(std::make_exception_ptr(std::runtime_error("a rank has failed")));
  else
    bench.nccl->close();
  REQUIRE(becomes_true([&] { return bench.waiting == 1; }));
  lost = true;
  bench.hold_quiescence = false;
  REQUIRE(bench.wait_until_destroyed());
  CHECK(bench.count(Kind::Abort) + bench.count(Kind::Destroy) == 0);
  CHECK(bench.given_up >= 1);
  CHECK(bench.opened == 0);
  CHECK(bench.waited <= 100);
  const std::lock_guard lock(bench.fake.mutex);
  bench.fake.live = 0;  // they are lost with the GPUs
}

TEST_CASE("Other communicators do not wait for NCCL that does not return from an abort") {
  Bench bench(60s, [] { return false; }, 20ms);
  REQUIRE(bench.create());
  {
    const std::lock_guard lock(bench.fake.mutex);
    bench.fake.hold_abort = true;
  }
  bench.nccl->abort(std::make_exception_ptr(std::runtime_error("a rank has failed")));
  REQUIRE(becomes_true([&] { return bench.ending == ranks; }));  // not all need have begun in time
  CHECK(becomes_true([&] { return bench.quiet.use_count() == 1; }));
  {
    const std::lock_guard lock(bench.fake.mutex);
    bench.fake.hold_abort = false;
  }
  REQUIRE(bench.wait_until_destroyed());
  CHECK(bench.live() == 0);
  CHECK(bench.freed_in_quiescence);
}

TEST_CASE("L13: an NcclCommunicator ends when its helper threads have ended, and a waiter finds them joined") {
  Bench bench;
  REQUIRE(bench.create());
  std::promise<void> go_on;
  const auto held = std::make_shared<int>();
  std::shared_ptr<int> function = held;
  bench.nccl->run_on_helper_thread("cox-nccl-test",
                                   [&go_on, function = std::move(function)] { go_on.get_future().wait(); });
  bench.nccl->run_on_helper_thread("cox-nccl-test", [] {});
  bench.nccl->close();
  CHECK_FALSE(bench.nccl->wait_until_destroyed(std::chrono::steady_clock::now() + 20ms));
  go_on.set_value();
  auto other = std::async(std::launch::async, [&] { return bench.wait_until_destroyed(); });
  CHECK(bench.wait_until_destroyed());
  CHECK(other.get());
  CHECK(held.use_count() == 1);
  CHECK(bench.live() == 0);
}

TEST_CASE("What a rank has launched before it closes is launched by the others after, and ends") {
  Bench bench;
  REQUIRE(bench.create());
  auto& operation = bench.begin();
  REQUIRE(bench.launch(operation, 0));
  operation.parts[0].end->reach();  // a root may be done before the others have begun
  if (GENERATE(false, true)) {
    bench.nccl->close();
    for (std::size_t rank = 1; rank < ranks; ++rank) REQUIRE(bench.launch(operation, rank));
  } else {  // in between
    const NcclCommunicator::LaunchLock launching = bench.nccl->begin_launch(1);
    bench.nccl->close();
    bench.nccl->launch(launching, 1, {{.request = {.count = 4}}}, nullptr);
    std::shared_ptr<NcclLaunch> launched = operation.launched(1);
    bench.nccl->add(bench.nccl->lane(), 1, {&launched, 1}, 0);
    REQUIRE(bench.launch(operation, 2));
  }
  CHECK_FALSE(bench.nccl->wait_until_destroyed({}));
  Bench::end(operation);
  REQUIRE(bench.wait_until_destroyed());
  CHECK(operation.ended(1));
  CHECK(bench.count(Kind::Destroy) == ranks);
  CHECK(bench.misuse().empty());
  CHECK_THROWS(bench.nccl->begin_launch(0));
  for (const auto& part : operation.parts) CHECK(part.failure_count == 0);
}

TEST_CASE("What is closed and given up while a rank has still to launch is told to those who have") {
  Bench bench;
  REQUIRE(bench.create());
  auto& operation = bench.begin();
  REQUIRE(bench.launch(operation, 0));
  bench.nccl->close();
  REQUIRE(bench.launch(operation, 1));
  bench.nccl->abort(std::make_exception_ptr(std::runtime_error("rank 2 has no memory")));
  CHECK_FALSE(bench.launch(operation, 2));
  REQUIRE(bench.wait_until_destroyed());
  CHECK(text_of(operation.parts[1].error) == "rank 2 has no memory");
  CHECK(text_of(operation.parts[2].error) == "rank 2 has no memory");
  CHECK(operation.parts[0].failure_count == 1);
  CHECK(operation.parts[1].failure_count == 1);
  CHECK(bench.count(Kind::Abort) == ranks);
  CHECK(bench.misuse().empty());
}

TEST_CASE("Operations that have ended are let go of while more are launched") {
  Bench bench;
  REQUIRE(bench.create());
  constexpr std::size_t count = 200;
  for (std::size_t i = 1; i <= count; ++i) {
    auto& operation = bench.begin();
    bench.launch_all(operation);
    Bench::end(operation);
    bench.completed_before.fill(i);
  }
  const auto ended = std::ranges::count_if(bench.operations, [](const auto& each) { return each->ended(1); });
  CHECK(ended >= static_cast<std::ptrdiff_t>(count) - 32);  // with no look of the watch
  bench.nccl->poll();
  CHECK(std::ranges::all_of(bench.operations, [](const auto& each) { return each->ended(1); }));
}

TEST_CASE("What one rank has not ended is kept, whatever the others have") {
  Bench bench;
  REQUIRE(bench.create());
  for (std::size_t i = 1; i <= 100; ++i) {
    auto& operation = bench.begin();
    bench.launch_all(operation);
    for (std::size_t rank = 0; rank + 1 < ranks; ++rank) {
      operation.parts[rank].before->reach();
      operation.parts[rank].end->reach();
      bench.completed_before[rank] = i;
    }
  }
  bench.nccl->poll();
  CHECK(std::ranges::all_of(bench.operations, [](const auto& each) { return each->ended(0); }));
}

TEST_CASE("Parts that a rank launches together end, or are told, one by one") {
  Bench bench;
  REQUIRE(bench.create());
  std::vector<Bench::Operation*> all;
  for (int i = 0; i < 40; ++i) all.push_back(&bench.begin());
  REQUIRE(bench.launch(all, 0));
  for (std::size_t rank = 1; rank < ranks; ++rank)
    for (Bench::Operation* const of : all) REQUIRE(bench.launch(*of, rank));
  Bench::end(*all[0]);
  Bench::end(*all[1]);
  bench.nccl->poll();
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i]->ended(i < 2 ? 1 : 0));
  bench.nccl->abort(std::make_exception_ptr(std::runtime_error("enough")));
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const auto& part : all[i]->parts) CHECK(part.failure_count == (i < 2 ? 0 : 1));
}

TEST_CASE("A creation that fails is told to all who wait for it, and leaves nothing behind") {
  Bench bench;
  SECTION("NCCL refuses") {
    bench.fake.calls_until_failure = 0;
    CHECK_FALSE(bench.create());
    CHECK(kind_of(bench.nccl->broken()) == CollectiveError::Kind::Backend);
    CHECK_THAT(text_of(bench.nccl->broken()), ContainsSubstring("the error that the test asked for"));
  }
  SECTION("the devices cannot be opened") {
    bench.opening_fails = true;
    CHECK_FALSE(bench.create());
    CHECK_THAT(text_of(bench.nccl->broken()), ContainsSubstring("no device to be had"));
  }
  SECTION("the ranks cannot meet") {
    bench.fake.calls_until_failure = 3;
    CHECK_FALSE(bench.create());
    CHECK(bench.count(Kind::Abort) == ranks);
  }
  CHECK(bench.wait_until_destroyed());
  CHECK(bench.live() == 0);
  CHECK(bench.opened == 0);
  CHECK_THROWS(bench.nccl->begin_launch(0));
  CHECK(bench.misuse().empty());
}

TEST_CASE("What is closed or given up while NCCL makes it is ended when it is there") {
  Bench bench;
  {
    const std::lock_guard lock(bench.fake.mutex);
    bench.fake.hold_creation = true;
  }
  std::atomic<bool> told{false};
  CHECK_FALSE(bench.nccl->created([&] { told = true; }));
  REQUIRE(becomes_true([&] { return bench.opened == 1; }));  // its thread would not begin once it is closed
  if (GENERATE(false, true)) {
    bench.nccl->close();
  } else {
    bench.nccl->abort(std::make_exception_ptr(std::runtime_error("changed my mind")));
  }
  CHECK_FALSE(bench.nccl->wait_until_destroyed({}));
  {
    const std::lock_guard lock(bench.fake.mutex);
    bench.fake.hold_creation = false;
  }
  REQUIRE(bench.wait_until_destroyed());
  CHECK(becomes_true([&] { return told.load(); }));
  CHECK(bench.nccl->broken() != nullptr);
  CHECK(bench.live() == 0);
  CHECK(bench.opened == 0);
  CHECK(bench.misuse().empty());
}

TEST_CASE("T8: when NCCL tells of an error all ranks are told once, all are revoked, then all aborted") {
  Bench bench(100ms);
  REQUIRE(bench.create());
  auto& operation = bench.begin();
  bench.launch_all(operation);
  {
    const std::lock_guard lock(bench.fake.mutex);
    bench.fake.async_error = 6;  // a remote error
  }
  REQUIRE(bench.wait_until_destroyed());
  for (const auto& part : operation.parts) {
    CHECK(part.failure_count == 1);
    CHECK(kind_of(part.error) == CollectiveError::Kind::Backend);
  }
  CHECK(operation.ended(0));
  CHECK(bench.given_up == 1);
  CHECK(bench.live() == 0);
  const std::lock_guard lock(bench.fake.mutex);
  std::vector<Kind> ends;
  for (const auto& call : bench.fake.calls)
    if (call.kind == Kind::Revoke || call.kind == Kind::Abort || call.kind == Kind::Destroy) ends.push_back(call.kind);
  std::vector<Kind> expected(ranks, Kind::Revoke);
  expected.insert(expected.end(), ranks, Kind::Abort);
  CHECK(ends == expected);
  CHECK(bench.fake.misuse.empty());
}

TEST_CASE("An operation that does not begin on a rank, or does not end, is overdue") {
  Bench bench(50ms);
  REQUIRE(bench.create());
  auto& operation = bench.begin();
  const bool begins = GENERATE(false, true);
  if (begins)
    for (auto& part : operation.parts) part.before = operation.parts[0].before;  // all arrive at the same time
  bench.launch_all(operation);
  for (const std::size_t rank : {0U, 2U}) operation.parts[rank].before->reach();
  REQUIRE(bench.wait_until_destroyed());
  for (const auto& part : operation.parts) {
    REQUIRE(part.failure_count == 1);
    CHECK(kind_of(part.error) == CollectiveError::Kind::Timeout);
    CHECK_THAT(text_of(part.error),
               ContainsSubstring(begins ? "has not completed after 50 ms" : "has not started after"));
    if (!begins) CHECK_THAT(text_of(part.error), ContainsSubstring("earlier work on host:1"));
  }
  CHECK(bench.count(Kind::Abort) == ranks);
  CHECK(bench.misuse().empty());
}

TEST_CASE("Operations that wait behind long work are not overdue as long as no rank's device has come to them") {
  Bench bench(20ms);
  REQUIRE(bench.create());
  auto& operation = bench.begin();
  bench.launch_all(operation);
  CHECK_FALSE(bench.nccl->wait_until_destroyed(std::chrono::steady_clock::now() + 200ms));
  CHECK(bench.nccl->broken() == nullptr);
}

TEST_CASE("NCCL is not called any more when the process has lost its GPUs") {
  std::atomic<bool> lost{false};
  Bench bench(60s, [&] { return lost.load(); });
  REQUIRE(bench.create());
  auto& operation = bench.begin();
  bench.launch_all(operation);
  lost = true;
  const auto before = [&] {
    const std::lock_guard lock(bench.fake.mutex);
    return bench.fake.calls.size();
  }();
  bench.nccl->abort(std::make_exception_ptr(std::runtime_error("a kernel has trapped")));
  bench.end_all();
  REQUIRE(bench.wait_until_destroyed());
  CHECK_THROWS(bench.nccl->begin_launch(0));
  const std::lock_guard lock(bench.fake.mutex);
  CHECK(bench.fake.calls.size() == before);
  bench.fake.live = 0;  // they are lost with the GPUs
  for (const auto& part : operation.parts) CHECK(part.failure_count == 1);
}

TEST_CASE("Whichever call of NCCL fails, each part ends or is told once, and no communicator is left over") {
  for (int k = 0;; ++k) {
    Bench bench;
    INFO("call " << k << " fails");
    {
      const std::lock_guard lock(bench.fake.mutex);
      bench.fake.calls_until_failure = k;
    }
    if (bench.create()) {
      for (const std::size_t requests : {1UL, 3UL}) {
        auto& operation = bench.begin(requests);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          if (bench.launch(operation, rank, requests)) continue;
          CHECK(kind_of(operation.parts[rank].error) == CollectiveError::Kind::Backend);
        }
        if (bench.nccl->broken() == nullptr) Bench::end(operation);
      }
      bench.nccl->close();
    }
    REQUIRE(bench.wait_until_destroyed());
    CHECK(bench.live() == 0);
    CHECK(bench.opened == 0);
    CHECK(bench.misuse().empty());
    const bool intact = bench.count(Kind::Abort) == 0;
    for (const auto& operation : bench.operations)
      for (const auto& part : operation->parts) {
        CHECK(part.failure_count <= 1);
        CHECK((part.error != nullptr || part.end->reached()));
        if (intact) CHECK(part.failure_count == 0);
      }
    const std::lock_guard lock(bench.fake.mutex);
    if (bench.fake.calls_until_failure < 0) continue;
    CHECK(k > 20);  // all calls of a life have failed once
    return;
  }
}

TEST_CASE("Ranks may launch while another thread gives the communicators up") {
  for (int round = 0; round < 50; ++round) {
    Bench bench;
    REQUIRE(bench.create());
    constexpr std::size_t count = 40;
    for (std::size_t i = 0; i < count; ++i) static_cast<void>(bench.begin());
    std::atomic<std::size_t> launched{0};
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        for (const auto& operation : bench.operations) {
          if (!bench.launch(*operation, rank)) return;
          ++launched;
        }
      });
    while (launched < static_cast<std::size_t>(round)) std::this_thread::yield();
    bench.nccl->abort(std::make_exception_ptr(std::runtime_error("enough")));
    for (std::thread& thread : threads) thread.join();
    bench.end_all();
    REQUIRE(bench.wait_until_destroyed());
    CHECK(bench.live() == 0);
    CHECK(bench.misuse().empty());
    for (const auto& operation : bench.operations)
      for (const auto& part : operation->parts) CHECK(part.failure_count <= 1);
  }
}

TEST_CASE("L10 L12: NCCL that does not come back from making a communicator is given up, and everybody is told") {
  Bench bench(1000ms);
  const auto hold = [&](bool held) {
    const std::lock_guard lock(bench.fake.mutex);
    bench.fake.hold_creation = held;
  };
  hold(true);
  bool told = false;
  const Time begun = std::chrono::steady_clock::now();
  REQUIRE_FALSE(bench.nccl->created([&] { told = true; }));
  REQUIRE(becomes_true([&] { return bench.count(Kind::Create) == 1; }));
  CHECK(bench.opened == 1);
  REQUIRE(bench.quiet.use_count() > 1);  // nobody else launches meanwhile
  REQUIRE(bench.nccl->check_deadlines(begun + 59s).has_value());
  CHECK_FALSE(told);
  CHECK_FALSE(bench.nccl->check_deadlines(std::chrono::steady_clock::now() + 61s).has_value());
  CHECK(told);
  CHECK(bench.nccl->created());
  CHECK(bench.quiet.use_count() == 1);
  CHECK_THAT(text_of(bench.nccl->broken()), ContainsSubstring("has not created the communicator"));
  CHECK(kind_of(bench.nccl->broken()) == CollectiveError::Kind::Timeout);
  CHECK_THROWS_AS(static_cast<void>(bench.nccl->begin_launch(0)), CollectiveError);
  CHECK(bench.wait_until_destroyed());  // a device can be shut down
  hold(false);                          // NCCL comes back after all
  REQUIRE(becomes_true([&] { return bench.opened == 0; }));
  CHECK(bench.wait_until_destroyed());
  CHECK(bench.live() == 0);
  CHECK(bench.count(Kind::Create) == 1);
  CHECK(bench.count(Kind::Abort) == ranks);
}

TEST_CASE("NCCL is not called before an operation needs it") {
  Bench bench;
  REQUIRE(bench.open());
  CHECK(bench.open());
  CHECK(bench.opened == 1);
  CHECK_FALSE(bench.nccl->created());
  auto& before = bench.begin();
  bench.launch_kernels(before);
  if (GENERATE(false, true)) {
    REQUIRE(bench.create());
    CHECK(bench.opened == 1);
    CHECK(bench.count(Kind::Create) == 1);
    auto& by_nccl = bench.begin();
    bench.launch_all(by_nccl);
    auto& after = bench.begin();
    bench.launch_kernels(after);
  }
  bench.nccl->close();
  CHECK_FALSE(bench.nccl->wait_until_destroyed(std::chrono::steady_clock::now() + 20ms));
  bench.end_all();
  REQUIRE(bench.wait_until_destroyed());
  for (const auto& operation : bench.operations) {
    CHECK(operation->ended(1));
    for (const auto& part : operation->parts) CHECK(part.failure_count == 0);
  }
  CHECK(bench.live() == 0);
  CHECK(bench.opened == 0);
  CHECK(bench.misuse().empty());
  CHECK_THROWS(bench.nccl->begin_launch(0));
  const std::lock_guard lock(bench.fake.mutex);
  if (bench.operations.size() == 1) CHECK(bench.fake.calls.empty());
}

TEST_CASE("NCCL's communicators that are asked for while the devices are opened are made right after") {
  Bench bench;
  bench.hold_opening = true;
  std::atomic<int> told{0};
  CHECK_FALSE(bench.nccl->devices_open([&] { ++told; }));
  CHECK_FALSE(bench.nccl->created([&] { ++told; }));
  const auto end = GENERATE(as<std::string>(), "", "close", "abort", "fail");
  if (end == "fail") bench.opening_fails = true;
  if (end == "close") bench.nccl->close();
  if (end == "abort") bench.nccl->abort(std::make_exception_ptr(std::runtime_error("changed my mind")));
  bench.hold_opening = false;
  REQUIRE(becomes_true([&] { return told == 2; }));
  CHECK(bench.nccl->devices_open());
  CHECK(bench.nccl->created());
  CHECK((bench.nccl->broken() == nullptr) == end.empty());
  bench.nccl->close();
  REQUIRE(bench.wait_until_destroyed());
  CHECK(bench.count(Kind::Create) == (end.empty() ? 1 : 0));
  CHECK(bench.opened == 0);
  CHECK(bench.misuse().empty());
}

TEST_CASE("What is in flight when NCCL fails to make its communicators ends as if nothing had happened") {
  Bench bench;
  REQUIRE(bench.open());
  auto& operation = bench.begin();
  bench.launch_kernels(operation);
  {
    const std::lock_guard lock(bench.fake.mutex);
    bench.fake.calls_until_failure = GENERATE(0, 3);
  }
  CHECK_FALSE(bench.create());
  CHECK_THROWS(bench.nccl->begin_launch(0));
  CHECK_FALSE(bench.nccl->wait_until_destroyed(std::chrono::steady_clock::now() + 20ms));
  CHECK(bench.opened == 1);
  Bench::end(operation);
  REQUIRE(bench.wait_until_destroyed());
  CHECK(operation.ended(1));
  for (const auto& part : operation.parts) CHECK(part.failure_count == 0);
  CHECK(bench.live() == 0);
  CHECK(bench.opened == 0);
  CHECK(bench.misuse().empty());
}

TEST_CASE("T8: an abort while NCCL creates its communicators notifies and ends what is in flight at once") {
  Bench bench(100ms);
  REQUIRE(bench.open());
  bench.hold_creation(true);
  std::atomic<bool> told{false};
  CHECK_FALSE(bench.nccl->created([&] { told = true; }));
  REQUIRE(becomes_true([&] { return bench.count(Kind::Create) == 1; }));
  auto& operation = bench.begin();
  bench.launch_kernels(operation);
  if (GENERATE(false, true)) {
    operation.parts[0].before->reach();  // it is overdue before NCCL is
    REQUIRE(becomes_true([&] { return bench.nccl->broken() != nullptr; }));
    CHECK(kind_of(bench.nccl->broken()) == CollectiveError::Kind::Timeout);
  } else {
    bench.nccl->abort(std::make_exception_ptr(std::runtime_error("a rank has failed")));
  }
  REQUIRE(becomes_true([&] { return told && bench.given_up >= 1; }));
  for (const auto& part : operation.parts) {
    CHECK(part.failure_count == 1);
    CHECK(part.end->reached());
  }
  CHECK(bench.quiet.use_count() == 1);  // others go on
  CHECK(bench.opened == 1);
  CHECK_FALSE(bench.nccl->wait_until_destroyed(std::chrono::steady_clock::now() + 20ms));
  bench.hold_creation(false);
  REQUIRE(bench.wait_until_destroyed());
  CHECK(operation.ended(0));
  CHECK(bench.count(Kind::Abort) == ranks);
  CHECK(bench.live() == 0);
  CHECK(bench.opened == 0);
  CHECK(bench.misuse().empty());
}

TEST_CASE("L10 L12: A creation from which NCCL does not return is abandoned, also if an operation was overdue before") {
  Bench bench(100ms);
  REQUIRE(bench.open());
  bench.hold_creation(true);
  REQUIRE_FALSE(bench.nccl->created([] {}));
  REQUIRE(becomes_true([&] { return bench.count(Kind::Create) == 1; }));
  auto& operation = bench.begin();
  bench.launch_kernels(operation);
  operation.parts[0].before->reach();
  REQUIRE(becomes_true([&] { return bench.nccl->broken() != nullptr; }));
  CHECK_THAT(text_of(bench.nccl->broken()), ContainsSubstring("has not started"));
  CHECK_FALSE(bench.nccl->wait_until_destroyed({}));
  CHECK_FALSE(bench.nccl->check_deadlines(std::chrono::steady_clock::now() + 61s).has_value());
  CHECK(bench.wait_until_destroyed());  // a device can be shut down
  bench.hold_creation(false);
  REQUIRE(becomes_true([&] { return bench.opened == 0; }));
  CHECK(bench.live() == 0);
}

TEST_CASE(
    "A GPU fault while NCCL creates its communicators notifies and ends what is in flight, and frees the others") {
  std::atomic<bool> lost{false};
  Bench bench(60s, [&] { return lost.load(); });
  REQUIRE(bench.open());
  bench.hold_creation(true);
  std::atomic<bool> told{false};
  REQUIRE_FALSE(bench.nccl->created([&] { told = true; }));
  REQUIRE(becomes_true([&] { return bench.count(Kind::Create) == 1; }));
  auto& operation = bench.begin();
  bench.launch_kernels(operation);
  lost = true;
  static_cast<void>(bench.nccl->check_deadlines(std::chrono::steady_clock::now()));
  CHECK(told);
  CHECK(kind_of(bench.nccl->broken()) == CollectiveError::Kind::Backend);
  for (const auto& part : operation.parts) CHECK(part.failure_count == 1);
  CHECK(bench.given_up == 1);
  CHECK(bench.quiet.use_count() == 1);
  CHECK(bench.wait_until_destroyed());  // NCCL may not return any more
  bench.hold_creation(false);
  REQUIRE(becomes_true([&] { return bench.opened == 0; }));
  CHECK(bench.count(Kind::Abort) + bench.count(Kind::Destroy) == 0);
  const std::lock_guard lock(bench.fake.mutex);
  bench.fake.live = 0;  // they are lost with the GPUs
}

TEST_CASE(
    "L10 L12: NCCL that does not come back from making communicators of open devices does not keep a device open") {
  Bench bench(1000ms);
  REQUIRE(bench.open());
  bench.hold_creation(true);
  REQUIRE_FALSE(bench.nccl->created([] {}));
  REQUIRE(becomes_true([&] { return bench.count(Kind::Create) == 1; }));
  auto& operation = bench.begin();
  bench.launch_kernels(operation);  // no rank's device comes to it
  CHECK_FALSE(bench.nccl->check_deadlines(std::chrono::steady_clock::now() + 61s).has_value());
  CHECK_THAT(text_of(bench.nccl->broken()), ContainsSubstring("NCCL has not created the communicator"));
  for (const auto& part : operation.parts) CHECK(part.failure_count == 1);
  CHECK(bench.wait_until_destroyed());
  bench.hold_creation(false);
  REQUIRE(becomes_true([&] { return bench.opened == 0; }));
  CHECK(bench.live() == 0);
}
