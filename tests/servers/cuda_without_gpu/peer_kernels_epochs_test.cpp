// The numbers of the kernels of small collectives where they wrap, over a stand-in for the driver.
#include <coxswain/tests/servers/launch_on.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

using namespace cox;
using namespace cox::detail;
using namespace cox::test;

namespace {

/// Two ranks that have launched so many kernels of each way before, on memory that none of those has used: as if all
/// had been of fewer elements.
class Ranks {
 public:
  explicit Ranks(std::uint32_t launched) : launched_{launched, launched} {
    for (DriverStream& stream : streams_) COX_CUDA_TRY(stream_create(stream.out(), CU_STREAM_NON_BLOCKING, 0));
    for (DriverHostMemory& memory : memory_)
      COX_CUDA_TRY(host_alloc(memory.out(), 2 * most * sizeof(std::uint32_t) + 64, 0));
  }

  /// The next sum of so many elements, which is `way`'s; rank 0 is given to the driver first. Whether it is right on
  /// both.
  [[nodiscard]] bool sums(CollectiveAlgorithm way, std::size_t count) {
    CollectiveRequest request{.operation = CollectiveOperation::AllReduce, .element_type = ElementType::U32};
    request.count = count;
    kernels_.prepare(request, [] { return std::shared_ptr<void>(); });
    REQUIRE(PeerKernels::algorithm_of({request}, 2, false) == way);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      for (std::size_t i = 0; i < count; ++i) in(rank)[i] = static_cast<std::uint32_t>(10 * rank + i + 1);
      const NcclCall call{.request = request, .source = in(rank), .destination = out(rank)};
      const CUdeviceptr counter = reinterpret_cast<CUdeviceptr>(out(rank) + most);
      kernels_.launch(way, rank, {call}, launched_[rank], {counter, ++counted_},
                      [&](const KernelLaunch& kernel) { launch_on(streams_[rank].get(), kernel); });
    }
    bool right = true;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      COX_CUDA_TRY(stream_synchronize(streams_[rank].get()));
      for (std::size_t i = 0; i < count; ++i) right = right && out(rank)[i] == 2 * i + 12;
    }
    return right;
  }

  static constexpr std::size_t most = std::size_t{1} << 17U;  // elements

 private:
  [[nodiscard]] std::uint32_t* in(std::size_t rank) const noexcept {
    return static_cast<std::uint32_t*>(memory_[rank].get());
  }
  [[nodiscard]] std::uint32_t* out(std::size_t rank) const noexcept { return in(rank) + most; }

  const std::vector<std::shared_ptr<CudaContext>> contexts_{CudaContext::open(0), CudaContext::open(1)};
  const CurrentContext current_{*contexts_.front()};
  PeerKernels kernels_{std::vector{FakeGpus::device(0), FakeGpus::device(1)}, contexts_};
  std::array<std::uint32_t, 2> launched_;
  std::uint32_t counted_ = 0;
  std::array<DriverStream, 2> streams_;
  std::array<DriverHostMemory, 2> memory_;
};

}  // namespace

// Lines and flags are zero before they are first written: an operation of the number 0 would find them there, "from
// all ranks". Lines of even and of odd numbers take turns, also where the numbers wrap.
TEST_CASE("Sums are right where the numbers of their kernels wrap") {
  FakeGpus gpus;
  gpus.run_in_order();
  for (std::uint32_t before = 0xFFFF'FFFC; before != 2; ++before) {
    INFO("after " << before << " kernels");
    Ranks by_lines(before);
    for (const std::size_t count : {100U, 16000U, 100U, 16000U, 8000U})
      REQUIRE(by_lines.sums(CollectiveAlgorithm::PeerLines, count));
    Ranks by_flags(before);
    for (const std::size_t count : {70000U, 120000U, 70000U, 120000U, 90000U})
      REQUIRE(by_flags.sums(CollectiveAlgorithm::PeerFlags, count));
  }
}
