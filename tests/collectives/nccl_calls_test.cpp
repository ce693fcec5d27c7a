// The calls of NCCL for the operations of a rank, over a library that stands in for NCCL.
#include <coxswain/tests/fake_nccl/fake_nccl.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/collectives/nccl/nccl_calls.hpp>
#include <coxswain/collectives/nccl/nccl_operation.hpp>
#include <coxswain/runtime/config/process_settings.hpp>

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace cox;

namespace {

test::FakeNccl& find_nccl_stand_in() {
  const std::string file = COX_FAKE_NCCL;
  set_settings({{"collectives.nccl", file}});
  if (detail::find_nccl().nccl == nullptr) throw std::runtime_error(detail::find_nccl().error);
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  return *reinterpret_cast<test::FakeNccl* (*)()>(::dlsym(library, "cox_fake_nccl"))();
}

/// The first rank of a communicator of three. `fake.launch` counts what NCCL launches.
class Rank {
 public:
  Rank() {
    const std::lock_guard lock(fake.mutex);
    fake.calls.clear();
    fake.misuse.clear();
    fake.calls_until_failure = -1;
    fake.launch = [this](const std::vector<test::FakeNccl::Operation>& operations) {
      launched += operations.size();
      return 0;
    };
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    detail::abort_communicators({comms.begin(), comms.end()});
    const std::lock_guard lock(fake.mutex);
    fake.launch = nullptr;
  }

  [[nodiscard]] NcclCall call(CollectiveOperation operation) {
    return {.request = {.operation = operation, .element_type = ElementType::I32, .count = 4},
            .source = source.data(),
            .destination = destination.data()};
  }
  void launch(const NcclCalls& calls) {
    detail::launch_nccl_calls(comms.front(), comms.size(), calls, scratch.data(), nullptr);
  }
  void fail_after(int calls) {
    const std::lock_guard lock(fake.mutex);
    fake.calls_until_failure = calls;
  }
  [[nodiscard]] bool stop_failing() {
    const std::lock_guard lock(fake.mutex);
    return std::exchange(fake.calls_until_failure, -1) < 0;
  }

  test::FakeNccl& fake = find_nccl_stand_in();
  std::array<detail::NcclComm, 3> comms = create();
  std::size_t launched = 0;
  std::array<std::byte, 256> source{};
  std::array<std::byte, 256> destination{};
  std::array<std::byte, 256> scratch{};

 private:
  static std::array<detail::NcclComm, 3> create() {
    std::array<detail::NcclComm, 3> made{};
    const std::array<int, 3> devices{0, 1, 2};
    REQUIRE(detail::nccl().init_all(made.data(), 3, devices.data()) == detail::NcclResult::Success);
    return made;
  }
};

}  // namespace

// While a group is open on a thread, NCCL launches nothing there and reports no error.
TEST_CASE("Whichever call of NCCL fails in a launch, the thread's next operation is launched") {
  using enum CollectiveOperation;
  const auto [first, second] =
      GENERATE(std::pair(AllToAll, Barrier), std::pair(AllToAll, AllReduce), std::pair(AllReduce, AllToAll),
               std::pair(Reduce, Barrier), std::pair(AllReduce, Broadcast), std::pair(Send, Receive));
  const bool alone = GENERATE(true, false);
  Rank rank;
  NcclCalls calls;
  calls.push_back(rank.call(first));
  if (!alone) calls.push_back(rank.call(second));
  int failures = 0;
  for (;; ++failures) {
    INFO("after " << failures << " calls");
    rank.fail_after(failures);
    std::string error;
    try {
      rank.launch(calls);
    } catch (const std::exception& caught) {
      error = caught.what();
    }
    const bool has_failed = rank.stop_failing();
    CHECK(error.empty() != has_failed);
    if (!has_failed) break;
    CHECK(rank.launched == 0);
    rank.launch({rank.call(AllReduce)});
    CHECK(rank.launched == 1);
    rank.launched = 0;
  }
  CHECK(failures >= 1);
  CHECK(rank.launched >= calls.size());
  const std::lock_guard lock(rank.fake.mutex);
  CHECK(rank.fake.misuse.empty());
}
