// Transfers between devices of different kinds, over a stand-in for the driver.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>
#include <coxswain/tests/servers/host/open_host.hpp>

#include <cstdint>
#include <numeric>
#include <vector>

using namespace cox;
using namespace cox::test;

TEST_CASE("to_client goes through the host between devices of different kinds, with padding, both ways") {
  FakeGpus gpus;
  OpenHost host;
  std::vector<std::uint32_t> numbers(6 * 7);
  std::iota(numbers.begin(), numbers.end(), 1U);
  const CudaClient gpu = gpus.client();
  const HostClient cpu = host.on_new_stream();
  const auto there_and_back = [&](const auto& from, const auto& to) {
    const Handle there = from.to_client(from.create(Bytes::copy_of(numbers)), to, ElementType::U32);
    CHECK(to.read_one(there).template to_vector<std::uint32_t>() == numbers);
    const Shape shape{6, 7};
    const MemoryLayout tensor = from.create_tensor(Bytes::copy_of(numbers), shape, sizeof(std::uint32_t));
    const MemoryLayout moved =
        from.to_client_tensor(tensor.copy_descriptor(shape, sizeof(std::uint32_t)), to, ElementType::U32);
    CHECK(to.read_one_tensor(moved.copy_descriptor(shape, sizeof(std::uint32_t))).template to_vector<std::uint32_t>() ==
          numbers);
    CHECK(kind_of<CollectiveError>([&] { static_cast<void>(from.to_client(from.empty(7), to, ElementType::U32)); }) ==
          CollectiveError::Kind::Validation);
  };
  there_and_back(gpu, cpu);
  there_and_back(cpu, gpu);
}
