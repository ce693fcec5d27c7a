#include <coxswain/tests/servers/cuda/compiler.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/communication/reducible_types.hpp>
#include <coxswain/servers/cuda/compile/compile.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels_source.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

using namespace cox;
using namespace cox::detail;

namespace {

constexpr PeerKernelLimits limits{.lines = 1'000,
                                  .one_shot = 2'000,
                                  .all_reduce = 40'000,
                                  .block_lines = 400,
                                  .broadcast_lines = 800,
                                  .blocks = 20'000,
                                  .broadcast = 10'000,
                                  .thread_blocks = 8};
constexpr std::size_t ranks = 4;

CollectiveAlgorithm algorithm_of(const CollectiveRequests& requests) {
  return PeerKernels::algorithm_of(requests, ranks, false, limits);
}

}  // namespace

TEST_CASE("What is small enough is reduced in the memory of the other GPUs") {
  const auto algorithm = [](std::size_t bytes, ElementType type = ElementType::F32,
                            ReduceOperation operation = ReduceOperation::Sum) {
    return algorithm_of({{.element_type = type, .count = bytes / element_size(type), .reduce_operation = operation}});
  };
  CHECK(algorithm(0) == CollectiveAlgorithm::Nccl);
  CHECK(algorithm(8) == CollectiveAlgorithm::PeerLines);
  CHECK(algorithm(limits.lines) == CollectiveAlgorithm::PeerLines);
  CHECK(algorithm(limits.lines + 8) == CollectiveAlgorithm::PeerFlags);
  CHECK(algorithm(limits.all_reduce) == CollectiveAlgorithm::PeerFlags);
  CHECK(algorithm(limits.all_reduce + 8) == CollectiveAlgorithm::Nccl);
  CHECK(algorithm(8, ElementType::F8E4M3) == CollectiveAlgorithm::Nccl);
  CHECK(algorithm(8, ElementType::I32, ReduceOperation::Mean) == CollectiveAlgorithm::PeerLines);
  CHECK(algorithm(8, ElementType::F16, ReduceOperation::Mean) == CollectiveAlgorithm::PeerLines);
}

TEST_CASE("A reduce is done by kernels as long as one shot is enough") {
  const auto algorithm = [](std::size_t bytes, ElementType type = ElementType::U8) {
    return algorithm_of({{.operation = CollectiveOperation::Reduce, .element_type = type, .count = bytes}});
  };
  CHECK(algorithm(0) == CollectiveAlgorithm::Nccl);
  CHECK(algorithm(1) == CollectiveAlgorithm::PeerLines);
  CHECK(algorithm(limits.lines) == CollectiveAlgorithm::PeerLines);
  CHECK(algorithm(limits.lines + 1) == CollectiveAlgorithm::PeerFlags);
  CHECK(algorithm(limits.one_shot) == CollectiveAlgorithm::PeerFlags);
  CHECK(algorithm(limits.one_shot + 1) == CollectiveAlgorithm::Nccl);
  CHECK(algorithm(1, ElementType::F8E4M3) == CollectiveAlgorithm::Nccl);
  const CollectiveRequest reduce{.operation = CollectiveOperation::Reduce, .count = 1};
  CHECK(algorithm_of({reduce, reduce}) == CollectiveAlgorithm::Nccl);
}

TEST_CASE("A group is done like one operation, if its tensors are of one type and small together") {
  const CollectiveRequest sum{.count = 2};
  CollectiveRequests group{sum, sum};
  CHECK(algorithm_of(group) == CollectiveAlgorithm::PeerFlags);
  CHECK(algorithm_of({sum, {.element_type = ElementType::F16, .count = 2}}) == CollectiveAlgorithm::Nccl);
  CHECK(algorithm_of({sum, {.count = 2, .reduce_operation = ReduceOperation::Max}}) == CollectiveAlgorithm::Nccl);
  CHECK(algorithm_of({sum, {.operation = CollectiveOperation::Barrier}}) == CollectiveAlgorithm::Nccl);
  CHECK(algorithm_of({{.count = 0}, {.count = 0}}) == CollectiveAlgorithm::Nccl);
  const CollectiveRequest half{.count = limits.all_reduce / sizeof(float) / 2};
  CHECK(algorithm_of({half, half}) == CollectiveAlgorithm::PeerFlags);
  // Each tensor begins with a unit of its own.
  CHECK(algorithm_of({half, {.count = half.count - 3}, {.count = 1}}) == CollectiveAlgorithm::Nccl);
  while (group.size() < peer_kernel_pieces) group.push_back(sum);
  CHECK(algorithm_of(group) == CollectiveAlgorithm::PeerFlags);
  group.push_back(sum);
  CHECK(algorithm_of(group) == CollectiveAlgorithm::Nccl);
}

TEST_CASE("Blocks are written to the other ranks as long as all of them are small") {
  const auto algorithm = [](CollectiveOperation operation, std::size_t count, ElementType type = ElementType::U8) {
    return algorithm_of({{.operation = operation, .element_type = type, .count = count}});
  };
  constexpr std::size_t most = limits.blocks / ranks;
  for (const auto operation : {CollectiveOperation::AllGather, CollectiveOperation::ReduceScatter}) {
    CHECK(algorithm(operation, 0) == CollectiveAlgorithm::Nccl);
    CHECK(algorithm(operation, 1) == CollectiveAlgorithm::PeerLines);
    CHECK(algorithm(operation, limits.block_lines) == CollectiveAlgorithm::PeerLines);
    CHECK(algorithm(operation, limits.block_lines + 1) == CollectiveAlgorithm::PeerFlags);
    CHECK(algorithm(operation, most) == CollectiveAlgorithm::PeerFlags);
    CHECK(algorithm(operation, most + 1) == CollectiveAlgorithm::Nccl);
  }
  CHECK(algorithm(CollectiveOperation::Broadcast, limits.broadcast_lines) == CollectiveAlgorithm::PeerLines);
  CHECK(algorithm(CollectiveOperation::Broadcast, limits.broadcast_lines + 1) == CollectiveAlgorithm::PeerFlags);
  CHECK(algorithm(CollectiveOperation::Broadcast, limits.broadcast) == CollectiveAlgorithm::PeerFlags);
  CHECK(algorithm(CollectiveOperation::Broadcast, limits.broadcast + 1) == CollectiveAlgorithm::Nccl);
  // What does not reduce has no type.
  CHECK(algorithm(CollectiveOperation::AllGather, 1, ElementType::F8E4M3) == CollectiveAlgorithm::PeerLines);
  CHECK(algorithm(CollectiveOperation::ReduceScatter, 1, ElementType::F8E4M3) == CollectiveAlgorithm::Nccl);
  CHECK(PeerKernels::code_of({.operation = CollectiveOperation::AllGather, .element_type = ElementType::F64}) ==
        PeerKernels::code_of({.operation = CollectiveOperation::Broadcast, .reduce_operation = ReduceOperation::Max}));
  CHECK(PeerKernels::code_of({.element_type = ElementType::F64}) ==
        PeerKernelCode{true, ElementType::F64, ReduceOperation::Sum});
}

// What is written into memory that is too small for it is written behind it.
TEST_CASE("The limits fit into the memory of the kernels, for every number of ranks") {
  for (std::size_t count = 2; count <= PeerKernels::max_ranks; ++count) {
    INFO(count << " ranks");
    const PeerKernelLimits& of = peer_kernel_limits(count);
    CHECK(of.fit(count));
    const auto fits = [&](auto member, auto value) {
      PeerKernelLimits other = of;
      other.*member = value;
      return other.fit(count);
    };
    for (const auto member :
         {&PeerKernelLimits::lines, &PeerKernelLimits::block_lines, &PeerKernelLimits::broadcast_lines})
      CHECK_FALSE(fits(member, most_by_lines + 1));
    for (const auto member : {&PeerKernelLimits::one_shot, &PeerKernelLimits::all_reduce, &PeerKernelLimits::broadcast})
      CHECK_FALSE(fits(member, most_before_flags + 1));
    CHECK_FALSE(fits(&PeerKernelLimits::one_shot, most_before_flags / (count - 1) + 1));
    CHECK_FALSE(fits(&PeerKernelLimits::blocks, (most_before_flags / (count - 1) + 1) * count));
    CHECK_FALSE(fits(&PeerKernelLimits::thread_blocks, 0U));
    CHECK_FALSE(fits(&PeerKernelLimits::thread_blocks, peer_kernel_blocks + 1));
  }
}

TEST_CASE("Another operation, and more ranks than there is memory for are NCCL's") {
  CHECK(PeerKernels::algorithm_of({{.operation = CollectiveOperation::AllToAll, .count = 2}}, 4, false) ==
        CollectiveAlgorithm::Nccl);
  CHECK(PeerKernels::algorithm_of({{.count = 2}}, 8, false) == CollectiveAlgorithm::PeerLines);
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
  const auto algorithm = algorithm_of;
  CHECK(algorithm({shorts}) == CollectiveAlgorithm::PeerFlags);
  CHECK(algorithm({mean}) == CollectiveAlgorithm::PeerFlags);
  CHECK(algorithm({scatter}) == CollectiveAlgorithm::PeerLines);
  CHECK(algorithm({sum}) == CollectiveAlgorithm::Nccl);
  CHECK(algorithm({sum, shorts, scatter}) == CollectiveAlgorithm::PeerFlags);  // as NCCL's groups are launched as one
  CHECK(algorithm({barrier, shorts}) == CollectiveAlgorithm::Nccl);            // which cannot do it: refused
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
  CHECK(algorithm({{.count = 2}}) == CollectiveAlgorithm::PeerLines);
  CHECK(algorithm({large}) == CollectiveAlgorithm::PeerFlags);
  CHECK(algorithm({large, mean, large}) == CollectiveAlgorithm::PeerFlags);
  CHECK(PeerKernels::is_needed(large, true));
  CHECK(algorithm({narrow}) == CollectiveAlgorithm::Nccl);  // refused
  CHECK(PeerKernels::is_needed(narrow, true));
  CHECK(algorithm({large, gather}) == CollectiveAlgorithm::Nccl);  // refused
  CHECK(algorithm({integers}) == CollectiveAlgorithm::Nccl);       // exact in any order
  CHECK_FALSE(PeerKernels::is_needed(integers, true));
  CHECK_FALSE(PeerKernels::is_needed(gather, true));
}

namespace {

// For a virtual architecture, it takes half as long, and wrong assembly is not noticed.
void compile_kernels(const std::vector<ReduceOperation>& operations, const std::vector<ElementType>& types,
                     const std::string& architecture = "compute_90") {
  const Nvrtc* const nvrtc = test::compiler();
  if (nvrtc == nullptr) return;
  for (const ElementType type : types)
    for (const ReduceOperation operation : operations) {
      CollectiveRequests requests;
      requests.push_back({.element_type = type, .count = 1, .reduce_operation = operation});
      if (PeerKernels::algorithm_of(requests, 3, false) == CollectiveAlgorithm::Nccl) continue;
      INFO(to_string(operation) << " of " << to_string(type));
      const KernelSource source{.text = peer_kernels_source(PeerKernels::code_of(requests.front()), 3),
                                .name_expression = {},
                                .headers = {},
                                .options = {"--gpu-architecture=" + architecture}};
      CHECK_NOTHROW(compile(*nvrtc, source, "sm_90"));
    }
}

std::vector<ElementType> all_types() {
  std::vector<ElementType> types;
  for (const auto& facts : element_types) types.push_back(facts.type);
  return types;
}

}  // namespace

TEST_CASE("The kernels compile for every type that they are for") {
  compile_kernels({ReduceOperation::Sum, ReduceOperation::Mean}, all_types());
}

TEST_CASE("The kernels compile for other operations on each kind of type") {
  compile_kernels({ReduceOperation::Min, ReduceOperation::Product},  // Max is like Min
                  {ElementType::F32, ElementType::F16, ElementType::BF16, ElementType::I32, ElementType::U8});
}

TEST_CASE("The assembly of the kernels for types of 16 and 32 bits is right") {
  compile_kernels({ReduceOperation::Sum}, {ElementType::F32, ElementType::F16, ElementType::BF16}, "sm_90");
}

TEST_CASE("The kernels compile for every type and operation that they are for", "[.long]") {
  compile_kernels({ReduceOperation::Sum, ReduceOperation::Mean, ReduceOperation::Min, ReduceOperation::Max,
                   ReduceOperation::Product},
                  all_types());
}

TEST_CASE("The kernels are called after type and operation") {
  CHECK(peer_kernel_name(PeerKernel::OneShot, {true, ElementType::F32, ReduceOperation::Sum}) ==
        "cox_one_shot_f32_sum");
  CHECK(peer_kernel_name(PeerKernel::AllGather, {}) == "cox_all_gather");
  const Nvrtc* const nvrtc = test::compiler();
  if (nvrtc == nullptr) return;
  const std::size_t ranks_of_code = GENERATE(2U, 4U);
  const PeerKernelCode code = GENERATE(PeerKernelCode{}, PeerKernelCode{true, ElementType::F32, ReduceOperation::Sum},
                                       PeerKernelCode{true, ElementType::BF16, ReduceOperation::Mean},
                                       PeerKernelCode{true, ElementType::I64, ReduceOperation::Mean});
  const KernelSource source{
      .text = peer_kernels_source(code, ranks_of_code), .name_expression = {}, .headers = {}, .options = {}};
  const std::vector<std::byte> image = compile(*nvrtc, source, "sm_90a").image;
  const std::string text(reinterpret_cast<const char*>(image.data()), image.size());
  for (const PeerKernel kernel : peer_kernels_of(code, ranks_of_code)) {
    const std::string name = peer_kernel_name(kernel, code);
    CAPTURE(name);
    CHECK(text.find(".text." + name + '\0') != std::string::npos);
  }
}
