#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/kernel_buffer.hpp>

#include <cstddef>
#include <cstdint>

using cox::Access;
using cox::Binding;
using cox::KernelBuffer;
using cox::ManagedMemory;

TEST_CASE("A kernel's buffer is the window of its binding, with what the kernel does to it") {
  const ManagedMemory memory = ManagedMemory::mint({});
  const KernelBuffer written(Binding{memory, 16, 48, {}, 1024});
  CHECK(written.memory() == memory);
  CHECK(written.offset_start() == 16);
  CHECK(written.size_in_used() == 960);
  CHECK(written.access() == Access::Write);
  const KernelBuffer read(Binding{memory, 0, 0, {}, std::size_t{1} << 40U}, Access::Read);
  CHECK(read.size_in_used() == std::size_t{1} << 40U);
  CHECK(read.access() == Access::Read);
}

TEST_CASE("A kernel's buffer keeps its memory") {
  ManagedMemory memory = ManagedMemory::mint({});
  {
    const KernelBuffer buffer(Binding{memory, 0, 0, {}, 8});
    CHECK_FALSE(memory.is_last());
  }
  CHECK(memory.is_last());
}

TEST_CASE("A window that cannot be stays one: whoever resolves it refuses it") {
  const KernelBuffer buffer(Binding{ManagedMemory::mint({}), 100, 100, {}, 8});
  CHECK(buffer.size_in_used() > SIZE_MAX / 4);
}
