#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/nccl/nccl_types.hpp>

using namespace cox;
using cox::detail::nccl_reduces;

TEST_CASE("NCCL reduces 8-bit floats from 2.24 on, 16-bit integers never, and the rest always") {
  for (const int version : {21805, 22304, 22400, 22809}) {
    INFO(version);
    for (const ElementType type : {ElementType::F8E4M3, ElementType::F8E5M2})
      CHECK(nccl_reduces(type, version) == (version >= 22400));
    for (const ElementType type : {ElementType::I16, ElementType::U16, ElementType::Bool})
      CHECK_FALSE(nccl_reduces(type, version));
    for (const ElementType type : {ElementType::I8, ElementType::U64, ElementType::F16, ElementType::F64})
      CHECK(nccl_reduces(type, version));
  }
}
