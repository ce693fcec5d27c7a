#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/tensor/memory_layout_policy.hpp>

#include <array>
#include <cstdint>

using cox::MemoryLayoutDescriptor;

TEST_CASE("Tensors of one allocation start aligned, in order, and share its memory") {
  const std::array tensors{MemoryLayoutDescriptor::contiguous({3}, 4), MemoryLayoutDescriptor::contiguous({0}, 4),
                           MemoryLayoutDescriptor::optimized({4, 200}, 4)};
  const auto layout = cox::lay_out(cox::PitchedLayoutPolicy(512), {}, cox::StreamId{1}, tensors);
  REQUIRE(layout.base.size_in_used() == 512 + 4096);
  REQUIRE(layout.parts.size() == 3);
  REQUIRE(layout.parts[0].memory.offset_start() == 0);
  REQUIRE(layout.parts[0].memory.size_in_used() == 12);
  REQUIRE(layout.parts[1].memory.size_in_used() == 0);
  REQUIRE(layout.parts[2].memory.offset_start() == 512);
  REQUIRE(layout.parts[2].memory.size_in_used() == 4096);
  REQUIRE(layout.parts[2].memory.memory().memory() == layout.base.memory().memory());
  REQUIRE(layout.parts[2].strides == cox::Strides{256, 1});
}

TEST_CASE("A single tensor is its allocation, to the byte") {
  const auto tensor = MemoryLayoutDescriptor::contiguous({5}, 4);
  const auto layout = cox::lay_out(cox::ContiguousLayoutPolicy(512), {}, cox::StreamId{1}, {&tensor, 1});
  REQUIRE(layout.base.size() == 20);
}

TEST_CASE("Tensors that together exceed the address space are refused") {
  const auto half = MemoryLayoutDescriptor::contiguous({SIZE_MAX / 2}, 1);
  const std::array tensors{half, half, half};
  REQUIRE_THROWS_AS(cox::lay_out(cox::ContiguousLayoutPolicy(64), {}, cox::StreamId{1}, tensors), cox::IoError);
}
