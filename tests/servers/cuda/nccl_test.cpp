#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/collectives/nccl/nccl_try.hpp>
#include <coxswain/collectives/nccl/nccl_types.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#if __has_include(<nccl.h>)
#include <nccl.h>

#include <type_traits>
#endif

#include <string>

using namespace cox;
using namespace cox::detail;
using Catch::Matchers::ContainsSubstring;

#if __has_include(<nccl.h>) && defined(NCCL_VERSION_CODE) && NCCL_VERSION_CODE >= 22400
namespace {

template <class Ours, class Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(same(NcclResult::Success, ncclSuccess) && same(NcclResult::UnhandledCudaError, ncclUnhandledCudaError) &&
              same(NcclResult::SystemError, ncclSystemError) && same(NcclResult::InternalError, ncclInternalError) &&
              same(NcclResult::InvalidArgument, ncclInvalidArgument) &&
              same(NcclResult::InvalidUsage, ncclInvalidUsage) && same(NcclResult::RemoteError, ncclRemoteError) &&
              same(NcclResult::InProgress, ncclInProgress));
static_assert(same(NcclType::Int8, ncclInt8) && same(NcclType::Uint8, ncclUint8) && same(NcclType::Int32, ncclInt32) &&
              same(NcclType::Uint32, ncclUint32) && same(NcclType::Int64, ncclInt64) &&
              same(NcclType::Uint64, ncclUint64) && same(NcclType::Float16, ncclFloat16) &&
              same(NcclType::Float32, ncclFloat32) && same(NcclType::Float64, ncclFloat64) &&
              same(NcclType::Bfloat16, ncclBfloat16) && same(NcclType::Float8E4M3, ncclFloat8e4m3) &&
              same(NcclType::Float8E5M2, ncclFloat8e5m2));
static_assert(same(NcclReduction::Sum, ncclSum) && same(NcclReduction::Product, ncclProd) &&
              same(NcclReduction::Max, ncclMax) && same(NcclReduction::Min, ncclMin) &&
              same(NcclReduction::Mean, ncclAvg));

// A function that takes and returns the same, but for the names of types that are passed alike.
template <class R, class... A>
constexpr std::size_t parameters_of(R (*)(A...)) {
  return sizeof...(A);
}
#define COX_NCCL_ENTRY(member, function, ...) \
  static_assert(parameters_of(decltype(Nccl::member){}) == parameters_of(decltype(&function){}));
#include <coxswain/collectives/nccl/nccl_entries.inc>
#undef COX_NCCL_ENTRY

static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
#if NCCL_VERSION_CODE >= 22700
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version) &&
              offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking) &&
              offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName) &&
              offsetof(NcclConfig, split_share) == offsetof(ncclConfig_t, splitShare) &&
              offsetof(NcclConfig, comm_name) == offsetof(ncclConfig_t, commName));
#endif

}  // namespace
#endif

TEST_CASE("Every type is NCCL's of the same size, or NCCL has none") {
  constexpr auto size_of = [](NcclType type) -> std::size_t {
    switch (type) {
      case NcclType::Int8:
      case NcclType::Uint8:
      case NcclType::Float8E4M3:
      case NcclType::Float8E5M2: return 1;
      case NcclType::Float16:
      case NcclType::Bfloat16: return 2;
      case NcclType::Int32:
      case NcclType::Uint32:
      case NcclType::Float32: return 4;
      case NcclType::Int64:
      case NcclType::Uint64:
      case NcclType::Float64: return 8;
    }
    return 0;
  };
  for (const auto& facts : element_types) {
    const auto nccl = nccl_type(facts.type);
    INFO(to_string(facts.type));
    if (nccl) CHECK(size_of(*nccl) == element_size(facts.type));
    const bool none =
        facts.type == ElementType::Bool || facts.type == ElementType::I16 || facts.type == ElementType::U16;
    CHECK(nccl.has_value() != none);
  }
}

TEST_CASE("A version of NCCL is shown as people know it") {
  CHECK(nccl_version_text(22809) == "2.28.9");
  CHECK(nccl_version_text(21403) == "2.14.3");
}

TEST_CASE("A missing NCCL is told in one line, which names the setting") {
  const FoundNccl found = open_nccl({"/nowhere/libnccl.so.2"});
  REQUIRE(found.nccl == nullptr);
  CHECK_THAT(found.error, ContainsSubstring("collectives.nccl") && ContainsSubstring("/nowhere/libnccl.so.2"));
  CHECK(found.error.find('\n') == std::string::npos);
}

TEST_CASE("What is not NCCL is not taken for it") {
  const FoundNccl found = open_nccl({"libm.so.6"});
  REQUIRE(found.nccl == nullptr);
  CHECK_THAT(found.error, ContainsSubstring("libm.so.6 has no nccl"));
}

TEST_CASE("NCCL is found, says its version, and its errors have code and text") {
  const FoundNccl& found = find_nccl();
  if (found.nccl == nullptr) {
    WARN("skipped: needs NCCL. " + found.error);
    return;
  }
  CHECK(found.nccl->version >= 21403);
  CHECK_THAT(describe(NcclResult::InvalidUsage, nullptr), ContainsSubstring("NCCL error 5"));
  try {
    COX_NCCL_TRY(nullptr, get_version(nullptr));
    FAIL("a null pointer was taken");
  } catch (const CollectiveError& error) {
    CHECK(error.kind() == CollectiveError::Kind::Backend);
    CHECK_THAT(error.what(), ContainsSubstring("get_version") && ContainsSubstring("NCCL error"));
  }
}

TEST_CASE("NVLink multicast is off unless it is asked for") {
  if (find_nccl().nccl == nullptr) {
    WARN("skipped: needs NCCL. " + find_nccl().error);
    return;
  }
  REQUIRE(::getenv("NCCL_NVLS_ENABLE") != nullptr);
}
