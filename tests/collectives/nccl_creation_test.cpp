// The creation of NCCL's communicators over several processes, whose ranks are threads here, and how a process leaves
// NCCL: over a library that stands in for NCCL.
#include <coxswain/tests/fake_nccl/fake_nccl.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/nccl/nccl_communicator.hpp>
#include <coxswain/collectives/nccl/nccl_creation.hpp>
#include <coxswain/collectives/nccl/nccl_exchange.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/config/process_settings.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;
using namespace std::chrono_literals;
using cox::detail::NcclCreation;
using cox::detail::NcclCreationPlan;
using cox::detail::NcclExchange;
using cox::detail::NcclUniqueId;
using Kind = test::FakeNccl::Kind;

namespace {

constexpr auto patience = 30s;

test::FakeNccl& fresh_nccl() {
  const std::string file = COX_FAKE_NCCL;
  set_settings({{"collectives.nccl", file}});
  if (detail::find_nccl().nccl == nullptr) throw std::runtime_error(detail::find_nccl().error);
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  auto* const state = reinterpret_cast<test::FakeNccl* (*)()>(::dlsym(library, "cox_fake_nccl"));
  test::FakeNccl& fake = *state();
  const std::lock_guard lock(fake.mutex);
  fake.calls.clear();
  fake.misuse.clear();
  fake.names.clear();
  fake.ctas.clear();
  fake.calls_until_failure = -1;
  fake.async_error = 0;
  fake.hold_abort = false;
  return fake;
}

using Message = PeerMemoryExchange::Message;

/// The only rank of a communicator: what is read back is what it has written, but for one reading.
class Exchange final : public PeerMemoryExchange {
 public:
  explicit Exchange(int garbled_reading = 0) : garbled_reading_(garbled_reading) {}

  [[nodiscard]] Message message(std::size_t) noexcept override { return sent; }
  [[nodiscard]] bool begin(const std::vector<Message>& messages) noexcept override {
    received = messages;
    return true;
  }
  [[nodiscard]] std::optional<bool> advance() noexcept override { return has_access; }
  void end(bool all_have_access) noexcept override { ended = all_have_access; }
  void write(std::size_t, std::span<const std::byte> bytes) const override {
    written_.assign(bytes.begin(), bytes.end());
  }
  // NCCL's kernels may end with anything as their result if another rank aborts its communicator.
  void read(std::size_t, std::span<std::byte> bytes) const override {
    REQUIRE(bytes.size() == written_.size());
    std::ranges::copy(written_, bytes.begin());
    if (++readings == garbled_reading_) std::ranges::fill(bytes, std::byte{0xee});
  }

  Message sent{std::byte{7}, std::byte{8}};
  bool has_access = true;
  mutable std::atomic<int> readings{0};
  std::vector<Message> received;
  std::optional<bool> ended;

 private:
  const int garbled_reading_;
  mutable std::vector<std::byte> written_;
};

/// Devices that are not there.
class Opened final : public NcclDeviceResources {
 public:
  explicit Opened(bool idle = true, PeerMemoryExchange* exchange = nullptr, int ctas = 0)
      : is_idle_(idle), exchange_(exchange), ctas_(ctas) {}
  void abort() noexcept override {}
  [[nodiscard]] CUstream_st* stream(std::size_t) const noexcept override { return nullptr; }
  [[nodiscard]] void* scratch(std::size_t) const noexcept override { return scratch_.data(); }
  [[nodiscard]] std::shared_ptr<void> make_current(std::size_t) const override { return nullptr; }
  [[nodiscard]] bool is_idle(std::size_t) const override { return is_idle_; }
  void synchronize(std::size_t) const override {}
  [[nodiscard]] PeerMemoryExchange* exchange() noexcept override { return exchange_; }
  [[nodiscard]] int ctas() const noexcept override { return ctas_; }

 private:
  const bool is_idle_;
  PeerMemoryExchange* const exchange_;
  const int ctas_;
  mutable std::array<std::byte, scratch_size> scratch_{};
};

NcclCreation creation_of(std::vector<int> ranks, std::size_t world_size, bool idle = true) {
  return {std::move(ranks), world_size, "cox.7.2", std::make_shared<Opened>(idle)};
}

/// What create() throws; nothing if it succeeds. Ends what was created.
std::string outcome_of(NcclCreation& creation, const NcclUniqueId& id) {
  std::string text;
  try {
    creation.create({.id = id});
  } catch (const std::exception& error) {
    text = error.what();
  }
  creation.abort();
  return text;
}

int live(test::FakeNccl& fake) {
  const std::lock_guard lock(fake.mutex);
  return fake.live;
}

std::exception_ptr gone() { return std::make_exception_ptr(std::runtime_error("process 1 is gone")); }

}  // namespace

TEST_CASE("The ranks of several processes are created non-blocking, and split into blocking communicators") {
  test::FakeNccl& fake = fresh_nccl();
  const int before = live(fake);
  const NcclUniqueId id = NcclCreation::make_id();
  NcclCreation first = creation_of({0, 1}, 3);
  NcclCreation second = creation_of({2}, 3);
  auto other = std::async(std::launch::async, [&] { second.create({.id = id}); });
  first.create({.id = id});
  other.get();
  const auto comms = first.take();
  REQUIRE(comms.size() == 2);
  for (const NcclCreation::Comms& each : comms) CHECK((each.parent != nullptr && each.child != nullptr));
  CHECK(live(fake) == before + 6);
  second.abort();
  for (const NcclCreation::Comms& each : comms)
    for (detail::NcclComm comm : {each.child, each.parent}) detail::nccl().abort(comm);
  CHECK(live(fake) == before);
  const std::lock_guard lock(fake.mutex);
  CHECK(fake.misuse.empty());
  CHECK(fake.names == std::vector<std::string>(3, "cox.7.2"));
  // Nothing is launched on those that are split.
  using Ctas = test::FakeNccl::Ctas;
  CHECK(std::ranges::count(fake.ctas, Ctas{1, 1}) == 3);
  CHECK(std::ranges::count(fake.ctas, Ctas{detail::NcclConfig::undefined, detail::NcclConfig::undefined}) == 3);
}

TEST_CASE("The communicators on which operations are launched have the CTAs of the plan") {
  test::FakeNccl& fake = fresh_nccl();
  NcclCreation creation = creation_of({0}, 1);
  creation.create({.id = NcclCreation::make_id(), .ctas = 16});
  creation.abort();
  const std::lock_guard lock(fake.mutex);
  CHECK(fake.ctas == std::vector<test::FakeNccl::Ctas>{{1, 1}, {16, 16}});
}

TEST_CASE("A creation whose peer never comes is cancelled, wherever it is") {
  test::FakeNccl& fake = fresh_nccl();
  const int before = live(fake);
  const NcclUniqueId id = NcclCreation::make_id();
  SECTION("before it began") {
    NcclCreation creation = creation_of({0}, 2);
    creation.cancel(gone());
    CHECK(outcome_of(creation, id) == "process 1 is gone");
    const std::lock_guard lock(fake.mutex);
    CHECK(fake.count(Kind::InitRank) == 0);
  }
  SECTION("while NCCL waits for the peer") {
    NcclCreation creation = creation_of({0}, 2);
    auto outcome = std::async(std::launch::async, [&] { return outcome_of(creation, id); });
    while (live(fake) == before) std::this_thread::yield();
    creation.cancel(gone());
    creation.cancel(std::make_exception_ptr(std::runtime_error("another cause")));
    CHECK(outcome.get() == "process 1 is gone");
  }
  SECTION("while the ranks are connected") {
    NcclCreation first = creation_of({0}, 2, false);
    NcclCreation second = creation_of({1}, 2);
    auto other = std::async(std::launch::async, [&] { return outcome_of(second, id); });
    auto outcome = std::async(std::launch::async, [&] { return outcome_of(first, id); });
    CHECK(other.get().empty());
    first.cancel(gone());
    CHECK(outcome.get() == "process 1 is gone");
    const std::lock_guard lock(fake.mutex);
    CHECK(fake.count(Kind::Revoke) <= 1);
  }
  CHECK(live(fake) == before);
}

TEST_CASE("Whichever call of NCCL fails, the creation ends with its error and leaves nothing") {
  test::FakeNccl& fake = fresh_nccl();
  const int before = live(fake);
  int failures = 0;
  for (int calls = 0;; ++calls) {
    const NcclUniqueId id = NcclCreation::make_id();
    NcclCreation creation = creation_of({0}, 1);
    {
      const std::lock_guard lock(fake.mutex);
      fake.calls_until_failure = calls;
    }
    const std::string outcome = outcome_of(creation, id);
    CHECK(live(fake) == before);
    const std::lock_guard lock(fake.mutex);
    const bool has_failed = std::exchange(fake.calls_until_failure, -1) < 0;
    if (!has_failed) break;
    if (!outcome.empty()) ++failures;  // an abort that fails is logged
  }
  CHECK(failures >= 8);
}

TEST_CASE("The processes exchange what they need to share memory") {
  test::FakeNccl& fake = fresh_nccl();
  const int before = live(fake);
  Exchange exchange;
  exchange.has_access = GENERATE(true, false);
  NcclCreation creation({0}, 1, "cox.7.2", std::make_shared<Opened>(true, &exchange));
  CHECK(outcome_of(creation, NcclCreation::make_id()).empty());
  CHECK(exchange.received == std::vector{exchange.sent});
  CHECK(exchange.ended == exchange.has_access);
  CHECK(live(fake) == before);
}

TEST_CASE("L16: garbage as the result of NCCL, after another process has ended, is not used") {
  test::FakeNccl& fake = fresh_nccl();
  const int before = live(fake);
  const int garbled = GENERATE(1, 2);
  Exchange exchange(garbled);
  NcclCreation creation({0}, 1, "cox.7.2", std::make_shared<Opened>(true, &exchange));
  const NcclUniqueId id = NcclCreation::make_id();
  SECTION("the creation ends with the cause, which comes later") {
    auto outcome = std::async(std::launch::async, [&] { return outcome_of(creation, id); });
    while (exchange.readings < garbled) std::this_thread::yield();
    creation.cancel(gone());
    CHECK(outcome.get() == "process 1 is gone");
  }
  SECTION("or with an error of NCCL, if there is no cause") {
    CHECK(outcome_of(creation, id).find("has returned wrong data") != std::string::npos);
  }
  CHECK(exchange.received.size() == static_cast<std::size_t>(garbled - 1));
  CHECK_FALSE(exchange.ended.has_value());
  CHECK(live(fake) == before);
}

namespace {

/// A communicator of two processes, of which this one has rank 0. The other one is a thread.
struct TwoProcesses : NcclExchange {
  TwoProcesses() { set_of_process(this); }
  TwoProcesses(const TwoProcesses&) = delete;
  TwoProcesses& operator=(const TwoProcesses&) = delete;
  ~TwoProcesses() {
    set_of_process(nullptr);
    at_once.clear();  // they refer to it
    kept.clear();
    while (!nccl.expired()) std::this_thread::yield();  // its watch may be looking at it
  }

  void share_plan(const SharedCommunicator&, std::span<const std::byte> plan) override {
    plan_shared.set_value(NcclCreationPlan::decode(plan).value());
  }
  void mark(const SharedSequence&, std::uint64_t operation, const std::exception_ptr&,
            UniqueFunction<void()> noted) noexcept override {
    if (operation == 0) ++marks;
    const std::lock_guard lock(mutex);
    (notes_at_once ? at_once : kept).push_back(std::move(noted));
    if (notes_at_once) at_once.back()();
  }

  NcclDevices devices() {
    NcclWorldPart world{.communicator = {.devices = CommunicationId({{0, 0, 1}, {0, 0, 2}}), .epoch = 1},
                        .number = CommunicatorNumber{77},
                        .ranks = {0},
                        .meet =
                            [this](UniqueFunction<void(const std::exception_ptr&)> met) {
                              ++meetings;
                              met(refusal);
                            },
                        .end_meeting = [this] { --meetings; },
                        .refuse =
                            [this](const std::exception_ptr&) {
                              ++refusals;
                              while (holds_refusals) std::this_thread::yield();
                            },
                        .mark =
                            [this](CommunicatorNumber, std::uint64_t, const std::exception_ptr&, DeviceId device) {
                              const std::lock_guard lock(mutex);
                              marked.push_back(device);
                            },
                        .ended = [](CommunicatorNumber, std::size_t, std::uint64_t) {},
                        .cannot_leave =
                            [this](const std::string& text) {
                              cannot_leave.set_value(text);
                              const std::lock_guard lock(fake.mutex);
                              fake.hold_abort = false;
                            }};
    return {.devices = world.communicator.devices,
            .ordinals = {0},
            .open = [this] { return std::make_unique<Opened>(true, nullptr, ctas); },
            .quiesce = [] { return std::make_shared<int>(); },
            .try_quiesce =
                [this](std::chrono::milliseconds) {
                  ++waiting;
                  while (hold_quiescence) std::this_thread::yield();
                  return std::make_shared<int>();
                },
            .hold_while_busy =
                [this](const std::shared_ptr<void>& token) {
                  const std::lock_guard lock(mutex);
                  if (is_busy) other_work.push_back(token);
                },
            .is_lost = [this] { return has_fault.load(); },
            .on_completed = [](std::size_t, std::span<const std::uint64_t>) {},
            .world = std::move(world),
            .leave_within = leave_within};
  }
  std::shared_ptr<NcclCommunicator> begin() {
    auto made = NcclCommunicator::find_or_create(CommunicatorNumber{77}, devices(), timeout);
    nccl = made;
    REQUIRE_FALSE(made->created([this] { created.set_value(); }));
    return made;
  }

  test::FakeNccl& fake = fresh_nccl();
  int ctas = 0;
  std::weak_ptr<NcclCommunicator> nccl;
  std::exception_ptr refusal;
  std::chrono::milliseconds leave_within{30s};
  std::chrono::milliseconds timeout{60s};
  std::promise<NcclCreationPlan> plan_shared;
  std::promise<void> created;
  std::promise<std::string> cannot_leave;
  std::atomic<int> meetings{0};
  std::atomic<int> refusals{0};
  std::atomic<bool> holds_refusals{false};
  std::atomic<bool> has_fault{false};
  std::atomic<int> marks{0};
  std::atomic<int> waiting{0};  // how often a moment was waited for in which nothing is half launched
  std::atomic<bool> hold_quiescence{false};
  std::mutex mutex;
  bool is_busy = false;                           // guarded by mutex, as the next one
  std::vector<std::shared_ptr<void>> other_work;  // what hold_while_busy() holds
  std::vector<DeviceId> marked;
  bool notes_at_once = true;
  std::vector<UniqueFunction<void()>> at_once;
  std::vector<UniqueFunction<void()>> kept;
};

bool wait_until_destroyed(NcclCommunicator& nccl) {
  return nccl.wait_until_destroyed(std::chrono::steady_clock::now() + patience);
}

}  // namespace

TEST_CASE("NCCL is not entered if the processes do not meet") {
  TwoProcesses world;
  world.refusal = std::make_exception_ptr(std::runtime_error("process 1 is missing"));
  const auto nccl = world.begin();
  world.created.get_future().get();
  CHECK(world.meetings == 1);  // it has not begun, so it does not end
  CHECK(nccl->broken() != nullptr);
  CHECK(wait_until_destroyed(*nccl));
  const std::lock_guard lock(world.fake.mutex);
  CHECK(world.fake.count(Kind::UniqueId) + world.fake.count(Kind::InitRank) == 0);
}

TEST_CASE("L16: a process that is gone while NCCL waits for it ends the creation") {
  TwoProcesses world;
  const auto nccl = world.begin();
  static_cast<void>(world.plan_shared.get_future().get());
  NcclCommunicator::lose_process(1, gone());
  world.created.get_future().get();
  CHECK(wait_until_destroyed(*nccl));
  CHECK(world.meetings == 0);
  CHECK(world.refusals == 1);
  CHECK(world.marks == 1);
  CHECK(live(world.fake) == 0);
}

TEST_CASE("The process of rank 0 decides for all how many CTAs NCCL has") {
  TwoProcesses world;
  world.ctas = 16;
  const auto nccl = world.begin();
  const NcclCreationPlan plan = world.plan_shared.get_future().get();
  CHECK(plan.ctas == 16);
  const NcclCreationPlan::Encoded bytes = plan.encode();
  const auto decoded = NcclCreationPlan::decode(bytes);
  REQUIRE(decoded);
  CHECK(decoded->id.bytes == plan.id.bytes);
  CHECK(decoded->ctas == 16);
  CHECK_FALSE(NcclCreationPlan::decode(std::span(bytes).first(bytes.size() - 1)));
  NcclCreationPlan::Encoded damaged = bytes;
  damaged.back() = std::byte{200};
  CHECK_FALSE(NcclCreationPlan::decode(damaged));
  NcclCreation other = creation_of({1}, 2);
  other.create(plan);
  world.created.get_future().get();
  CHECK(nccl->broken() == nullptr);
  nccl->close();
  other.abort();
}

TEST_CASE("L14: NCCL is aborted only when the other processes have marked what failed") {
  TwoProcesses world;
  world.notes_at_once = false;
  const auto nccl = world.begin();
  NcclCreation other = creation_of({1}, 2);
  other.create(world.plan_shared.get_future().get());
  world.created.get_future().get();
  REQUIRE(nccl->broken() == nullptr);
  nccl->abort(gone());
  CHECK_FALSE(nccl->wait_until_destroyed(std::chrono::steady_clock::now() + 50ms));
  {
    const std::lock_guard lock(world.fake.mutex);
    CHECK(world.fake.count(Kind::Abort) + world.fake.count(Kind::Revoke) == 0);
  }
  {
    const std::lock_guard lock(world.mutex);
    REQUIRE(world.kept.size() == 1);
    world.kept.front()();
  }
  CHECK(wait_until_destroyed(*nccl));
  other.abort();
  CHECK(live(world.fake) == 0);
}

TEST_CASE("L14: a mark is noted only when another thread has ended its own marking") {
  TwoProcesses world;
  const auto nccl = world.begin();
  NcclCreation other = creation_of({1}, 2);
  other.create(world.plan_shared.get_future().get());
  world.created.get_future().get();
  world.holds_refusals = true;
  auto aborting = std::async(std::launch::async, [&] { nccl->abort(gone()); });
  while (world.refusals == 0) std::this_thread::yield();
  std::promise<void> noted;
  auto is_noted = noted.get_future();
  NcclCommunicator::receive_mark({world.devices().world->communicator}, 0, gone(), [&] { noted.set_value(); });
  CHECK(is_noted.wait_for(50ms) == std::future_status::timeout);
  world.holds_refusals = false;
  is_noted.get();
  aborting.get();
  CHECK(wait_until_destroyed(*nccl));
  other.abort();
  CHECK(live(world.fake) == 0);
}

TEST_CASE("L14: a mark of a transfer concerns only the device that takes part in it") {
  TwoProcesses world;
  const auto nccl = world.begin();
  NcclCreation other = creation_of({1}, 2);
  other.create(world.plan_shared.get_future().get());
  world.created.get_future().get();
  constexpr TransferRanks transfer{.from = 0, .to = 1};
  constexpr DeviceId device{.type = 0, .index = 5};
  static_cast<void>(nccl->transfers(CommunicatorNumber{78}, transfer, {.device = device, .in_sequence = 0},
                                    [](std::size_t, std::span<const std::uint64_t>) {}));
  std::promise<void> noted;
  NcclCommunicator::receive_mark({world.devices().world->communicator, transfer}, 1, gone(),
                                 [&] { noted.set_value(); });
  noted.get_future().get();
  {
    const std::lock_guard lock(world.mutex);
    CHECK(world.marked == std::vector{device});
  }
  nccl->close();
  CHECK(wait_until_destroyed(*nccl));
  other.abort();
  CHECK(live(world.fake) == 0);
}

TEST_CASE("A process that leaves its world launches nothing more on idle communicators, which are not aborted") {
  TwoProcesses world;
  const auto nccl = world.begin();
  NcclCreation other = creation_of({1}, 2);
  other.create(world.plan_shared.get_future().get());
  world.created.get_future().get();
  CHECK_NOTHROW(nccl->begin_launch(0));
  NcclCommunicator::lose_world(gone(), true);
  CHECK_THROWS_WITH(nccl->begin_launch(0), "process 1 is gone");
  CHECK_THROWS_WITH(nccl->add(nccl->lane(), 0, {}, 0), "process 1 is gone");  // of a launch that had begun before
  nccl->close();
  CHECK(wait_until_destroyed(*nccl));
  CHECK(world.marks == 0);
  {
    const std::lock_guard lock(world.fake.mutex);
    CHECK(world.fake.count(Kind::Destroy) == 1);
  }
  other.abort();
  CHECK(live(world.fake) == 0);
}

TEST_CASE("L14: a communicator that lost its world while a rank was launching is aborted, not destroyed") {
  TwoProcesses world;
  world.notes_at_once = false;
  const auto nccl = world.begin();
  NcclCreation other = creation_of({1}, 2);
  other.create(world.plan_shared.get_future().get());
  world.created.get_future().get();
  NcclCommunicator::lose_world(gone(), true);  // it is idle: a rank has launched, but not added its launch
  world.hold_quiescence = true;                // that launch is counted
  nccl->close();
  while (world.waiting == 0) std::this_thread::yield();
  CHECK_THROWS(nccl->add(nccl->lane(), 0, {}, 0));
  nccl->abort(gone());
  world.hold_quiescence = false;
  CHECK_FALSE(nccl->wait_until_destroyed(std::chrono::steady_clock::now() + 20ms));  // it is not noted
  {
    const std::lock_guard lock(world.mutex);
    REQUIRE(world.kept.size() == 1);
    world.kept.front()();
  }
  CHECK(wait_until_destroyed(*nccl));
  {
    const std::lock_guard lock(world.fake.mutex);
    CHECK(world.fake.count(Kind::Destroy) == 0);
    CHECK(world.fake.count(Kind::Abort) == 2);  // with its parent
  }
  other.abort();
  CHECK(live(world.fake) == 0);
}

TEST_CASE("After a GPU fault during the creation, NCCL is not called") {
  TwoProcesses world;
  const int before = live(world.fake);
  const auto nccl = world.begin();
  static_cast<void>(world.plan_shared.get_future().get());
  while (live(world.fake) == before) std::this_thread::yield();
  world.has_fault = true;
  nccl->abort(gone());
  CHECK(wait_until_destroyed(*nccl));
  const std::lock_guard lock(world.fake.mutex);
  CHECK(world.fake.count(Kind::Abort) + world.fake.count(Kind::Destroy) == 0);
  CHECK(std::exchange(world.fake.live, before) == before + 1);  // it was leaked
}

namespace {

/// NCCL does not return from the abort of a communicator that has been created.
struct HeldAbort final : TwoProcesses {
  explicit HeldAbort(std::chrono::milliseconds its_timeout = 60s) {
    leave_within = 20ms;
    timeout = its_timeout;
    own = begin();
    other.create(plan_shared.get_future().get());
    created.get_future().get();
    const std::lock_guard lock(fake.mutex);
    fake.hold_abort = true;
  }
  void end() {
    CHECK(wait_until_destroyed(*own));
    own.reset();
    other.abort();
    CHECK(live(fake) == 0);
  }

  std::shared_ptr<NcclCommunicator> own;
  NcclCreation other = creation_of({1}, 2);
};

}  // namespace

TEST_CASE("A process that NCCL does not let go ends") {
  HeldAbort world;
  world.own->abort(gone());
  const std::string text = world.cannot_leave.get_future().get();
  CHECK(text.find("process 1 is gone") != std::string::npos);
  world.end();
}

TEST_CASE("A process that NCCL does not let go does not end while other work of its devices runs") {
  HeldAbort world;
  world.is_busy = true;  // no other thread reads it yet
  auto ended = world.cannot_leave.get_future();
  world.own->abort(gone());
  CHECK(ended.wait_for(200ms) == std::future_status::timeout);  // ten times as long
  SECTION("but NCCL returns when that has completed") {
    {
      const std::lock_guard lock(world.fake.mutex);
      world.fake.hold_abort = false;
    }
    world.end();
    CHECK(ended.wait_for(0s) == std::future_status::timeout);
  }
  SECTION("and ends if NCCL does not return after that") {
    std::vector<std::shared_ptr<void>> completed;
    {
      const std::lock_guard lock(world.mutex);
      CHECK_FALSE(world.other_work.empty());
      world.is_busy = false;
      completed.swap(world.other_work);
    }
    completed.clear();
    CHECK(ended.get().find("process 1 is gone") != std::string::npos);
    world.end();
  }
}

TEST_CASE("A process that NCCL does not let go ends after the timeout, whatever else runs on its devices") {
  HeldAbort world(100ms);
  world.is_busy = true;  // no other thread reads it yet
  world.own->abort(gone());
  CHECK(world.cannot_leave.get_future().get().find("process 1 is gone") != std::string::npos);
  world.end();
}
