// When NCCL creates the communicators of GPUs of one process: at the first operation that needs it.
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

constexpr ElementType type = ElementType::U32;

/// Sums on two devices, of so many elements each.
class Sums {
 public:
  [[nodiscard]] bool are_right(std::size_t count) const {
    const Handle first = one_.create(Bytes::copy_of(std::vector<std::uint32_t>(count, 1)));
    const Handle second = other_.create(Bytes::copy_of(std::vector<std::uint32_t>(count, 2)));
    submit(first, second);
    const std::vector<std::uint32_t> expected(count, 3);
    return one_.read_one(first).to_vector<std::uint32_t>() == expected &&
           other_.read_one(second).to_vector<std::uint32_t>() == expected;
  }
  /// Nothing is computed by the stand-in for NCCL.
  void large() const {
    const std::size_t bytes = detail::peer_kernel_limits(2).all_reduce + 4;
    submit(one_.empty(bytes), other_.empty(bytes));
    one_.sync().get();
    other_.sync().get();
  }

 private:
  void submit(const Handle& first, const Handle& second) const {
    one_.all_reduce(first, first, type, devices_);
    other_.all_reduce(second, second, type, devices_);
  }

  const CommunicationId devices_{{FakeGpus::device(0), FakeGpus::device(1)}};
  const CudaClient one_ = FakeGpus::client(0);
  const CudaClient other_ = FakeGpus::client(1);
};

}  // namespace

TEST_CASE("NCCL creates the communicators of a process when the first operation needs it, and then once") {
  FakeGpus gpus;
  const std::size_t before = FakeGpus::nccl_creations();
  {
    const Sums sums;
    for (const std::size_t count : {1U, 1'000U, 100'000U}) CHECK(sums.are_right(count));
    CHECK(FakeGpus::nccl_creations() == before);
    sums.large();
    CHECK(FakeGpus::nccl_creations() == before + 1);
    CHECK(sums.are_right(10));
    sums.large();
    CHECK(FakeGpus::nccl_creations() == before + 1);
  }
  CHECK(gpus.fake.misuse.empty());
}

TEST_CASE("Small sums go on while the others still have operations for which NCCL is being created") {
  FakeGpus gpus;
  const CommunicationId devices({FakeGpus::device(0), FakeGpus::device(1)});
  const std::size_t before = FakeGpus::nccl_creations();
  const std::size_t large = detail::peer_kernel_limits(2).all_reduce + 4;
  std::vector<CudaClient> clients;
  std::vector<std::vector<Handle>> sums(2);
  for (std::uint16_t rank = 0; rank < 2; ++rank) clients.push_back(FakeGpus::client(rank));
  // One rank after the other: the first has all operations, also that of NCCL, before the second has any.
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::uint32_t i = 0; i < 30; ++i) {
      sums[rank].push_back(clients[rank].create(Bytes::copy_of(std::vector<std::uint32_t>{i, 100})));
      clients[rank].all_reduce(sums[rank].back(), sums[rank].back(), type, devices);
      if (i != 10) continue;
      const Handle data = clients[rank].empty(large);
      clients[rank].all_reduce(data, data, type, devices);
    }
    FakeGpus::pass(static_cast<std::uint16_t>(rank));
  }
  for (std::size_t rank = 0; rank < 2; ++rank)
    for (std::uint32_t i = 0; i < 30; ++i)
      REQUIRE(clients[rank].read_one(sums[rank][i]).to_vector<std::uint32_t>() ==
              std::vector<std::uint32_t>{2 * i, 200});
  CHECK(FakeGpus::nccl_creations() == before + 1);
}
