#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/launch/kernel_buffers.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

using cox::Access;
using cox::Binding;
using cox::Handle;
using cox::KernelBuffer;
using cox::KernelBuffers;
using cox::ManagedMemory;
using cox::ManagedMemoryHandle;

namespace {

std::vector<KernelBuffer> all(const KernelBuffers& buffers) { return {buffers.begin(), buffers.end()}; }

}  // namespace

TEST_CASE("A kernel's buffers are the windows of their bindings, with what the kernel does to them") {
  const ManagedMemory memory = ManagedMemory::create({}, 1024);
  const ManagedMemory other = ManagedMemory::create({}, std::size_t{1} << 40U);
  KernelBuffers buffers;
  buffers.push_back(Binding{memory, 16, 48, {}});
  buffers.push_back(Binding{other, 0, 0, {}}, Access::Read);
  buffers.push_back(Binding{memory, 0, 1024, {}}, Access::Read);
  buffers.push_back(Binding{memory, 1024, 0, {}});
  buffers.push_back(Binding{});
  const std::vector<KernelBuffer> found = all(buffers);
  REQUIRE(found.size() == 5);
  REQUIRE(buffers.size() == 5);
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
  KernelBuffers from_handles;
  KernelBuffers from_bindings;
  for (const Handle& handle : {whole, part, Handle()}) {
    from_handles.push_back(handle, Access::Read);
    from_bindings.push_back(handle.binding(), Access::Read);
  }
  CHECK(std::ranges::equal(from_handles.words(), from_bindings.words()));
  CHECK(from_handles.size() == 3);
}

TEST_CASE("A kernel's buffers keep their memory, each once, also copied, moved and beyond what they hold inside") {
  for (const std::size_t count : {1U, 8U, 24U, 100U}) {
    const ManagedMemory memory = ManagedMemory::create({}, 8);
    {
      KernelBuffers buffers;
      for (std::size_t i = 0; i < count; ++i) buffers.push_back(Binding{memory, i % 3, 0, {}});
      CHECK_FALSE(memory.is_last());
      KernelBuffers copy = buffers;
      const KernelBuffers moved = std::move(buffers);
      CHECK(buffers.size() == 0);  // NOLINT(bugprone-use-after-move,readability-container-size-empty): promised
      CHECK(moved.size() == count);
      CHECK(copy.size() == count);
      copy = moved;
      CHECK(std::ranges::equal(copy.words(), moved.words()));
      CHECK_FALSE(memory.is_last());
    }
    CHECK(memory.is_last());
  }
}

TEST_CASE("A window that cannot be stays one: whoever resolves it refuses it") {
  KernelBuffers buffers;
  buffers.push_back(Binding{ManagedMemory::create({}, 8), 100, 100, {}});
  CHECK((*buffers.begin()).size_in_used > SIZE_MAX / 4);
}
