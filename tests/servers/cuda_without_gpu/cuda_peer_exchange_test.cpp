#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>
#include <coxswain/tests/servers/launch_on.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/open_descriptors.hpp>
#include <coxswain/tests/support/settings_scope.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/servers/cuda/peer/cuda_peer_exchange.hpp>
#include <coxswain/servers/cuda/stream/launch_batch.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::detail;
using namespace cox::test;
using Catch::Matchers::ContainsSubstring;

namespace {

using Message = PeerMemoryExchange::Message;

/// What two processes with a GPU each do, in this process.
class TwoProcesses {
 public:
  explicit TwoProcesses(std::array<bool, 2> is_reproducible = {false, false}) {
    for (std::size_t process = 0; process < 2; ++process) {
      COX_CUDA_TRY(stream_create(streams_[process].out(), CU_STREAM_NON_BLOCKING, 0));
      COX_CUDA_TRY(host_alloc(memory_[process].out(), 4096, 0));
      std::vector<CudaPeerExchange::Rank> ranks{
          {.own = {process, FakeGpus::device(static_cast<std::uint16_t>(process)), contexts_[process]},
           .scratch = reinterpret_cast<CUdeviceptr>(memory_[process].get()),
           .stream = streams_[process].get()}};
      exchanges[process] = std::make_unique<CudaPeerExchange>(
          CommunicationId(std::vector<DeviceId>{{cuda_device_type, 0, 1}, {cuda_device_type, 1, 2}}), std::move(ranks),
          is_reproducible[process],
          [this, process](CudaPeerExchange::Result result) { results[process] = std::move(result); });
    }
  }

  [[nodiscard]] std::vector<Message> messages() { return {exchanges[0]->message(0), exchanges[1]->message(0)}; }
  /// Whether the processes are going to share memory: they agree.
  [[nodiscard]] bool begin(const std::vector<Message>& messages) {
    const bool first = exchanges[0]->begin(messages);
    REQUIRE(exchanges[1]->begin(messages) == first);
    return first;
  }
  /// As NcclCreation, which passes on the smaller answer.
  void agree() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    std::array<std::optional<bool>, 2> answers;
    while (!answers[0] || !answers[1]) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      for (std::size_t process = 0; process < 2; ++process)
        if (!answers[process]) answers[process] = exchanges[process]->advance();
    }
    for (const auto& exchange : exchanges) exchange->end(*answers[0] && *answers[1]);
  }

  /// Sums of all elements, by the kernels of both.
  [[nodiscard]] bool sums(std::uint32_t first) {
    CollectiveRequest request{.operation = CollectiveOperation::AllReduce, .element_type = ElementType::U32};
    request.count = elements;
    for (std::size_t process = 0; process < 2; ++process) {
      PeerKernels& kernels = *results[process]->kernels;
      kernels.prepare(request, [] { return std::shared_ptr<void>(); });
      for (std::size_t i = 0; i < elements; ++i) in(process)[i] = static_cast<std::uint32_t>(first + process + i);
      const NcclCall call{.request = request, .source = in(process), .destination = out(process)};
      const auto counter = reinterpret_cast<CUdeviceptr>(out(process) + elements);
      const auto launch = [&](const KernelLaunch& kernel) { launch_on(streams_[process].get(), kernel); };
      kernels.launch(CollectiveAlgorithm::PeerLines, process, {call}, launched_[process], {counter, 1}, launch);
    }
    bool right = true;
    for (std::size_t process = 0; process < 2; ++process) {
      COX_CUDA_TRY(stream_synchronize(streams_[process].get()));
      for (std::size_t i = 0; i < elements; ++i) right = right && out(process)[i] == 2 * (first + i) + 1;
    }
    return right;
  }

 private:
  static constexpr std::size_t elements = 100;
  [[nodiscard]] std::uint32_t* in(std::size_t process) const noexcept {
    return static_cast<std::uint32_t*>(memory_[process].get());
  }
  [[nodiscard]] std::uint32_t* out(std::size_t process) const noexcept { return in(process) + elements; }

  const std::array<std::shared_ptr<CudaContext>, 2> contexts_{CudaContext::open(0), CudaContext::open(1)};
  const CurrentContext current_{*contexts_.front()};
  std::array<DriverStream, 2> streams_;
  std::array<DriverHostMemory, 2> memory_;
  std::array<std::uint32_t, 2> launched_{};

 public:
  std::array<std::unique_ptr<CudaPeerExchange>, 2> exchanges;
  std::array<std::optional<CudaPeerExchange::Result>, 2> results;
};

}  // namespace

TEST_CASE("Kernels of two processes sum in memory that the processes have exchanged") {
  FakeGpus gpus;
  const std::size_t descriptors = open_descriptors();
  {
    TwoProcesses processes;
    REQUIRE(processes.begin(processes.messages()));
    processes.agree();
    for (const auto& result : processes.results) {
      REQUIRE(result.has_value());
      REQUIRE(result->kernels != nullptr);
      CHECK(result->why_not.empty());
    }
    for (const std::uint32_t first : {1U, 1000U, 7U}) CHECK(processes.sums(first));
  }
  CHECK(open_descriptors() == descriptors);
  CHECK(gpus.live() == 0);
}

TEST_CASE("Processes that differ in what matters share no memory, and say why") {
  FakeGpus gpus;
  const auto require_none = [](TwoProcesses& processes, const std::string& why) {
    for (const auto& result : processes.results) {
      REQUIRE(result.has_value());
      CHECK(result->kernels == nullptr);
      CHECK_THAT(result->why_not, ContainsSubstring(why));
    }
  };
  SECTION("the order of reductions") {
    TwoProcesses processes({false, true});
    REQUIRE_FALSE(processes.begin(processes.messages()));
    require_none(processes, "the setting collectives.reproducible is not the same in all processes");
  }
  SECTION("the setting of one process") {
    TwoProcesses processes;
    std::vector<Message> messages = processes.messages();
    {
      const SettingsScope settings({{"collectives.peer_memory", false}});
      messages[1] = processes.exchanges[1]->message(0);
    }
    REQUIRE_FALSE(processes.begin(messages));
    require_none(processes, "the setting collectives.peer_memory is false in the process of p1/cuda:1");
  }
  SECTION("the host") {
    TwoProcesses processes;
    std::vector<Message> messages = processes.messages();
    messages[0][0] ^= std::byte{1};  // of descriptor_neighbourhood()
    REQUIRE_FALSE(processes.begin(messages));
    require_none(processes, "not all processes of the communicator are on one host");
  }
  SECTION("the kernels") {
    TwoProcesses processes;
    std::vector<Message> messages = processes.messages();
    messages[1][8] ^= std::byte{1};  // of their checksum
    REQUIRE_FALSE(processes.begin(messages));
    require_none(processes, "not all processes have the same kernels in peer memory");
  }
  SECTION("a process that can say nothing") {
    TwoProcesses processes;
    std::vector<Message> messages = processes.messages();
    messages[0] = {};
    REQUIRE_FALSE(processes.begin(messages));
    require_none(processes, "the process of p0/cuda:0 cannot exchange memory with others");
  }
}

TEST_CASE("Whichever call of the driver fails in one of two processes, none has kernels in shared memory") {
  FakeGpus gpus;
  bool have_all_failed = false;
  for (int calls = 0; !have_all_failed; ++calls) {
    INFO("call " << calls);
    {
      TwoProcesses processes;
      const std::vector<Message> messages = processes.messages();
      gpus.fail_after(calls);
      REQUIRE(processes.begin(messages));
      processes.agree();
      const char* const failed = gpus.stop_failing();
      INFO("failed: " << (failed == nullptr ? "none" : failed));
      have_all_failed = failed == nullptr;
      for (const auto& result : processes.results) {
        CHECK((result->kernels != nullptr) == have_all_failed);
        CHECK(result->why_not.empty() == have_all_failed);
      }
      if (!have_all_failed)  // at least one of them has the cause
        CHECK((processes.results[0]->cause != nullptr || processes.results[1]->cause != nullptr));
    }
    REQUIRE(gpus.live() == 0);
    REQUIRE(calls < 100);
  }
}

TEST_CASE("A process whose exchange has ended keeps the others from waiting") {
  FakeGpus gpus;
  TwoProcesses processes;
  const std::vector<Message> messages = processes.messages();
  REQUIRE(processes.exchanges[0]->begin(messages));
  processes.exchanges[1].reset();  // it is gone
  const auto begun = std::chrono::steady_clock::now();
  std::optional<bool> answer;
  while (!(answer = processes.exchanges[0]->advance()))
    REQUIRE(std::chrono::steady_clock::now() - begun < std::chrono::seconds(8));
  CHECK_FALSE(*answer);
  processes.exchanges[0]->end(false);
  CHECK_THAT(describe_cause(processes.results[0]->cause), ContainsSubstring("exchange of file descriptors"));
}

TEST_CASE("GPUs of one process that cannot access each other's memory share none with another process") {
  FakeGpus gpus;
  const std::array contexts{CudaContext::open(0), CudaContext::open(1)};
  const CurrentContext current(*contexts.front());
  DriverStream stream;
  COX_CUDA_TRY(stream_create(stream.out(), CU_STREAM_NON_BLOCKING, 0));
  std::vector<CudaPeerExchange::Rank> ranks;
  for (std::size_t rank = 0; rank < 2; ++rank)
    ranks.push_back({.own = {rank, FakeGpus::device(static_cast<std::uint16_t>(rank)), contexts[rank]},
                     .scratch = 0,
                     .stream = stream.get()});
  // The third rank is of a process that has listened, and does nothing.
  const CommunicationId devices(
      std::vector<DeviceId>{{cuda_device_type, 0, 1}, {cuda_device_type, 1, 1}, {cuda_device_type, 2, 2}});
  std::optional<CudaPeerExchange::Result> result;
  CudaPeerExchange exchange(devices, ranks, false, [&](CudaPeerExchange::Result its) { result = std::move(its); });
  CudaPeerExchange other(devices, {ranks.front()}, false, [](CudaPeerExchange::Result) {});
  const bool reach = GENERATE(true, false);
  {
    const std::lock_guard lock(gpus.fake.mutex);
    gpus.fake.has_peer_access = reach;
  }
  REQUIRE(exchange.begin({exchange.message(0), exchange.message(1), other.message(0)}));
  CHECK(exchange.advance() == (reach ? std::nullopt : std::optional(false)));
  exchange.end(false);
  REQUIRE(result.has_value());
  CHECK(result->kernels == nullptr);
  if (!reach)
    CHECK_THAT(describe_cause(result->cause),
               ContainsSubstring("not all GPUs of this process can access each other's memory"));
}

TEST_CASE("Memory for the kernels that does not fit is std::bad_alloc, and leaves nothing behind") {
  FakeGpus gpus;
  const auto context = CudaContext::open(0);
  {
    const std::lock_guard lock(gpus.fake.mutex);
    gpus.fake.largest_piece = 1;
  }
  const int before = gpus.live();
  for (const auto sharing : {PeerMemory::Sharing::None, PeerMemory::Sharing::OtherProcesses})
    CHECK_THROWS_AS(PeerMemory::create(context, PeerKernels::memory_size(2), sharing), std::bad_alloc);
  CHECK(gpus.live() == before);
}
