#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/launch/kernel_arguments.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

using cox::Access;
using cox::Binding;
using cox::Handle;
using cox::KernelArguments;
using cox::KernelBuffer;
using cox::ManagedMemory;
using cox::ManagedMemoryHandle;

namespace {

std::vector<KernelBuffer> all(const KernelArguments& arguments) {
  const cox::KernelBuffers buffers = arguments.view().buffers;
  return {buffers.begin(), buffers.end()};
}

bool same(const KernelArguments& left, const KernelArguments& right) {
  return std::ranges::equal(all(left), all(right), [](const KernelBuffer& a, const KernelBuffer& b) {
    return a.memory == b.memory && a.offset_start == b.offset_start && a.size_in_used == b.size_in_used &&
           a.access == b.access;
  });
}

}  // namespace

TEST_CASE("A kernel's buffers are the windows of their bindings, with what the kernel does to them") {
  const ManagedMemory memory = ManagedMemory::create({}, 1024);
  const ManagedMemory other = ManagedMemory::create({}, std::size_t{1} << 40U);
  KernelArguments buffers;
  std::move(buffers).with_buffer(Binding{memory, 16, 48, {}});
  std::move(buffers).with_buffer(Binding{other, 0, 0, {}}, Access::Read);
  std::move(buffers).with_buffer(Binding{memory, 0, 1024, {}}, Access::Read);
  std::move(buffers).with_buffer(Binding{memory, 1024, 0, {}});
  std::move(buffers).with_buffer(Binding{});
  const std::vector<KernelBuffer> found = all(buffers);
  REQUIRE(found.size() == 5);
  REQUIRE(buffers.view().buffers.size() == 5);
  CHECK(found[0].memory == memory);
  CHECK(found[0].offset_start == 16);
  CHECK(found[0].size_in_used == std::size_t{960});
  CHECK(found[0].access == Access::Write);
  CHECK(found[1].memory == other);
  CHECK(found[1].offset_start == 0);
  CHECK_FALSE(found[1].size_in_used.has_value());
  CHECK(found[1].access == Access::Read);
  CHECK(found[2].size_in_used == std::size_t{0});
  CHECK(found[2].access == Access::Read);
  CHECK(found[3].offset_start == 1024);
  CHECK(found[3].size_in_used == std::size_t{0});
  CHECK_FALSE(found[4].memory);
  CHECK(found[4].access == Access::Write);
}

TEST_CASE("A kernel's buffers from handles are those from their bindings") {
  const Handle whole(ManagedMemoryHandle(ManagedMemory::create({}, 512)), {});
  const Handle part = whole.offset_start(8).offset_end(4);
  KernelArguments from_handles;
  KernelArguments from_bindings;
  for (const Handle& handle : {whole, part, Handle()}) {
    std::move(from_handles).with_buffer(handle, Access::Read);
    std::move(from_bindings).with_buffer(handle.binding(), Access::Read);
  }
  CHECK(same(from_handles, from_bindings));
  CHECK(all(from_handles).size() == 3);
}

TEST_CASE("A kernel's buffers keep their memory, each once, also copied, moved and beyond what they hold inside") {
  for (const std::size_t count : {1U, 8U, 24U, 100U}) {
    const ManagedMemory memory = ManagedMemory::create({}, 8);
    {
      KernelArguments buffers;
      for (std::size_t i = 0; i < count; ++i) std::move(buffers).with_buffer(Binding{memory, i % 3, 0, {}});
      CHECK_FALSE(memory.is_last());
      KernelArguments copy = buffers;
      const KernelArguments moved = std::move(buffers);
      CHECK(all(buffers).empty());  // NOLINT(bugprone-use-after-move): promised
      CHECK(all(moved).size() == count);
      CHECK(all(copy).size() == count);
      copy = moved;
      CHECK(same(copy, moved));
      CHECK_FALSE(memory.is_last());
    }
    CHECK(memory.is_last());
  }
}

TEST_CASE("A window that cannot be stays one: whoever resolves it refuses it") {
  KernelArguments buffers;
  std::move(buffers).with_buffer(Binding{ManagedMemory::create({}, 8), 100, 100, {}});
  CHECK(all(buffers).front().size_in_used > SIZE_MAX / 4);
}
