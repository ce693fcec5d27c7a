#include <coxswain/tests/servers/cuda/compiler.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/communication/reducible_types.hpp>
#include <coxswain/servers/cuda/compile/compile.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels_source.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::detail;

TEST_CASE("What is small enough is reduced in the memory of the other GPUs") {
  const auto algorithm = [](std::size_t bytes, ElementType type = ElementType::F32,
                            ReduceOperation operation = ReduceOperation::Sum) {
    CollectiveRequests requests;
    requests.push_back({.element_type = type, .count = bytes / element_size(type), .reduce_operation = operation});
    return PeerKernels::algorithm_of(requests, 4, false);
  };
  CHECK(algorithm(0) == CollectiveAlgorithm::Nccl);
  CHECK(algorithm(8) == CollectiveAlgorithm::OneShot);
  CHECK(algorithm(PeerKernels::max_one_shot_bytes) == CollectiveAlgorithm::OneShot);
  CHECK(algorithm(PeerKernels::max_one_shot_bytes + 8) == CollectiveAlgorithm::TwoShots);
  CHECK(algorithm(PeerKernels::max_two_shots_bytes) == CollectiveAlgorithm::TwoShots);
  CHECK(algorithm(PeerKernels::max_two_shots_bytes + 8) == CollectiveAlgorithm::Nccl);
  CHECK(algorithm(8, ElementType::F8E4M3) == CollectiveAlgorithm::Nccl);
  CHECK(algorithm(8, ElementType::I32, ReduceOperation::Mean) == CollectiveAlgorithm::OneShot);
  CHECK(algorithm(8, ElementType::F16, ReduceOperation::Mean) == CollectiveAlgorithm::OneShot);
}

TEST_CASE("A group is done like one operation, if its tensors are of one type and small together") {
  const CollectiveRequest sum{.count = 2};
  const auto algorithm = [](const CollectiveRequests& requests) {
    return PeerKernels::algorithm_of(requests, 4, false);
  };
  CollectiveRequests group{sum, sum};
  CHECK(algorithm(group) == CollectiveAlgorithm::TwoShots);
  CHECK(algorithm({sum, {.element_type = ElementType::F16, .count = 2}}) == CollectiveAlgorithm::Nccl);
  CHECK(algorithm({sum, {.count = 2, .reduce_operation = ReduceOperation::Max}}) == CollectiveAlgorithm::Nccl);
  CHECK(algorithm({sum, {.operation = CollectiveOperation::Barrier}}) == CollectiveAlgorithm::Nccl);
  CHECK(algorithm({{.count = 0}, {.count = 0}}) == CollectiveAlgorithm::Nccl);
  const CollectiveRequest half{.count = PeerKernels::max_two_shots_bytes / sizeof(float) / 2};
  CHECK(algorithm({half, half}) == CollectiveAlgorithm::TwoShots);
  // Each tensor begins with a unit of its own.
  CHECK(algorithm({half, {.count = half.count - 3}, {.count = 1}}) == CollectiveAlgorithm::Nccl);
  while (group.size() < peer_kernel_pieces) group.push_back(sum);
  CHECK(algorithm(group) == CollectiveAlgorithm::TwoShots);
  group.push_back(sum);
  CHECK(algorithm(group) == CollectiveAlgorithm::Nccl);
}

TEST_CASE("Blocks are written to the other ranks as long as all of them are small") {
  const auto algorithm = [](CollectiveOperation operation, std::size_t count, ElementType type = ElementType::U8) {
    return PeerKernels::algorithm_of({{.operation = operation, .element_type = type, .count = count}}, 4, false);
  };
  constexpr std::size_t most = PeerKernels::max_two_shots_bytes / 4;
  for (const auto operation : {CollectiveOperation::AllGather, CollectiveOperation::ReduceScatter}) {
    CHECK(algorithm(operation, 0) == CollectiveAlgorithm::Nccl);
    CHECK(algorithm(operation, 1) == CollectiveAlgorithm::TwoShots);
    CHECK(algorithm(operation, most) == CollectiveAlgorithm::TwoShots);
    CHECK(algorithm(operation, most + 1) == CollectiveAlgorithm::Nccl);
  }
  CHECK(algorithm(CollectiveOperation::Broadcast, PeerKernels::max_broadcast_bytes) == CollectiveAlgorithm::TwoShots);
  CHECK(algorithm(CollectiveOperation::Broadcast, PeerKernels::max_broadcast_bytes + 1) == CollectiveAlgorithm::Nccl);
  // What does not reduce has no type.
  CHECK(algorithm(CollectiveOperation::AllGather, 1, ElementType::F8E4M3) == CollectiveAlgorithm::TwoShots);
  CHECK(algorithm(CollectiveOperation::ReduceScatter, 1, ElementType::F8E4M3) == CollectiveAlgorithm::Nccl);
  CHECK(PeerKernels::code_of({.operation = CollectiveOperation::AllGather, .element_type = ElementType::F64}) ==
        PeerKernels::code_of({.operation = CollectiveOperation::Broadcast, .reduce_operation = ReduceOperation::Max}));
  CHECK(PeerKernels::code_of({.element_type = ElementType::F64}) ==
        PeerKernelCode{true, ElementType::F64, ReduceOperation::Sum});
}

TEST_CASE("Another operation, and more ranks than there is memory for are NCCL's") {
  CHECK(PeerKernels::algorithm_of({{.operation = CollectiveOperation::AllToAll, .count = 2}}, 4, false) ==
        CollectiveAlgorithm::Nccl);
  CHECK(PeerKernels::algorithm_of({{.count = 2}}, 8, false) == CollectiveAlgorithm::OneShot);
  CHECK(PeerKernels::algorithm_of({{.count = 2}}, 9, false) == CollectiveAlgorithm::Nccl);
}

TEST_CASE("What NCCL does not reduce, or not exactly, is done here, whatever its size") {
  const CollectiveRequest shorts{.element_type = ElementType::I16, .count = std::size_t{64} << 20U};
  const CollectiveRequest mean{
      .element_type = ElementType::I64, .count = std::size_t{64} << 20U, .reduce_operation = ReduceOperation::Mean};
  const CollectiveRequest scatter{
      .operation = CollectiveOperation::ReduceScatter, .element_type = ElementType::U16, .count = 5};
  const CollectiveRequest sum{.count = std::size_t{64} << 20U};
  const CollectiveRequest barrier{.operation = CollectiveOperation::Barrier};
  const auto algorithm = [](const CollectiveRequests& requests) {
    return PeerKernels::algorithm_of(requests, 4, false);
  };
  CHECK(algorithm({shorts}) == CollectiveAlgorithm::TwoShots);
  CHECK(algorithm({mean}) == CollectiveAlgorithm::TwoShots);
  CHECK(algorithm({scatter}) == CollectiveAlgorithm::TwoShots);
  CHECK(algorithm({sum}) == CollectiveAlgorithm::Nccl);
  CHECK(algorithm({sum, shorts, scatter}) == CollectiveAlgorithm::TwoShots);  // as NCCL's groups are launched as one
  CHECK(algorithm({barrier, shorts}) == CollectiveAlgorithm::Nccl);           // which cannot do it: refused
  CHECK(PeerKernels::is_needed(shorts, false));
  CHECK(PeerKernels::is_needed(mean, false));
  CHECK_FALSE(PeerKernels::is_needed(sum, false));
  CHECK_FALSE(PeerKernels::is_needed(barrier, false));
}

TEST_CASE("If sums must not depend on the size, floating-point elements are reduced by kernels at any size") {
  const auto algorithm = [](const CollectiveRequests& requests) {
    return PeerKernels::algorithm_of(requests, 4, true);
  };
  const CollectiveRequest large{.count = std::size_t{64} << 20U};
  CollectiveRequest mean = large;
  mean.reduce_operation = ReduceOperation::Mean;
  CollectiveRequest narrow = large;
  narrow.element_type = ElementType::F8E4M3;
  CollectiveRequest integers = large;
  integers.element_type = ElementType::I32;
  const CollectiveRequest gather{.operation = CollectiveOperation::AllGather, .count = std::size_t{64} << 20U};
  CHECK(algorithm({{.count = 2}}) == CollectiveAlgorithm::OneShot);
  CHECK(algorithm({large}) == CollectiveAlgorithm::TwoShots);
  CHECK(algorithm({large, mean, large}) == CollectiveAlgorithm::TwoShots);
  CHECK(PeerKernels::is_needed(large, true));
  CHECK(algorithm({narrow}) == CollectiveAlgorithm::Nccl);  // refused
  CHECK(PeerKernels::is_needed(narrow, true));
  CHECK(algorithm({large, gather}) == CollectiveAlgorithm::Nccl);  // refused
  CHECK(algorithm({integers}) == CollectiveAlgorithm::Nccl);       // exact in any order
  CHECK_FALSE(PeerKernels::is_needed(integers, true));
  CHECK_FALSE(PeerKernels::is_needed(gather, true));
}

TEST_CASE("The kernels compile for every type and operation that they are for") {
  const Nvrtc* const nvrtc = test::compiler();
  if (nvrtc == nullptr) return;
  for (const auto& facts : element_types)
    for (const ReduceOperation operation :
         {ReduceOperation::Sum, ReduceOperation::Mean, ReduceOperation::Min, ReduceOperation::Product}) {
      CollectiveRequests requests;
      requests.push_back({.element_type = facts.type, .count = 1, .reduce_operation = operation});
      if (PeerKernels::algorithm_of(requests, 3, false) == CollectiveAlgorithm::Nccl) continue;
      INFO(to_string(operation) << " of " << to_string(facts.type));
      const KernelSource source{.text = peer_kernels_source(PeerKernels::code_of(requests.front()), 3),
                                .name_expression = {},
                                .headers = {},
                                .options = {}};
      CHECK_NOTHROW(compile(*nvrtc, source, "sm_90"));
    }
}

TEST_CASE("The kernels are called after type and operation") {
  CHECK(peer_kernel_name("cox_one_shot", ElementType::F32, ReduceOperation::Sum) == "cox_one_shot_f32_sum");
  const Nvrtc* const nvrtc = test::compiler();
  if (nvrtc == nullptr) return;
  const auto [type, operation] =
      GENERATE(std::pair{ElementType::F32, ReduceOperation::Sum}, std::pair{ElementType::BF16, ReduceOperation::Mean},
               std::pair{ElementType::I64, ReduceOperation::Mean});
  const auto image_of = [&](const PeerKernelCode& code) {
    const KernelSource source{
        .text = peer_kernels_source(code, 4), .name_expression = {}, .headers = {}, .options = {}};
    const std::vector<std::byte> image = compile(*nvrtc, source, "sm_90a").image;
    return std::string(reinterpret_cast<const char*>(image.data()), image.size());
  };
  const std::string text = image_of({true, type, operation});
  for (const char* const kernel : {"cox_one_shot", "cox_two_shot", "cox_two_shot_group", "cox_reduce_scatter"}) {
    const std::string name = peer_kernel_name(kernel, type, operation);
    CAPTURE(name);
    CHECK(text.find(".text." + name + '\0') != std::string::npos);
  }
  const std::string copies = image_of({});
  for (const char* const name : {"cox_all_gather", "cox_broadcast"})
    CHECK(copies.find(std::string(".text.") + name + '\0') != std::string::npos);
}
