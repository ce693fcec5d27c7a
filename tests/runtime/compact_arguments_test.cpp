#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/launch/compact_arguments.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

using cox::Binding;
using cox::KernelArguments;
using cox::ManagedMemory;
using cox::detail::CompactArguments;

namespace {

KernelArguments with(const ManagedMemory& memory, std::size_t whole, std::size_t windows, std::size_t scalars) {
  KernelArguments arguments;
  for (std::size_t i = 0; i < whole; ++i)
    std::move(arguments).with_buffer(Binding{memory, 0, 0, {}}, i % 2 == 0 ? cox::Access::Read : cox::Access::Write);
  for (std::size_t i = 0; i < windows; ++i) std::move(arguments).with_buffer(Binding{memory, i, 1, {}});
  for (std::uint64_t i = 0; i < scalars; ++i) std::move(arguments).with_scalar(i + 100);
  return arguments;
}

}  // namespace

TEST_CASE("Arguments that fit come back from their compact form as they were") {
  struct Shape {
    std::size_t whole, windows, scalars;
  };
  for (const Shape shape : {Shape{0, 0, 0}, {8, 0, 4}, {12, 0, 0}, {0, 4, 0}, {3, 2, 3}, {0, 0, 4}}) {
    const ManagedMemory memory = ManagedMemory::create({}, 256);
    {
      KernelArguments given = with(memory, shape.whole, shape.windows, shape.scalars);
      given.info.dynamic_metadata_offset /= 2;
      const KernelArguments kept = given;
      REQUIRE(CompactArguments::fits(given));
      CompactArguments compact(std::move(given));
      CompactArguments moved(std::move(compact));
      const KernelArguments back = std::move(moved).expand();
      CHECK(std::ranges::equal(back.buffers.words(), kept.buffers.words()));
      CHECK(back.info.data == kept.info.data);
      CHECK(back.info.dynamic_metadata_offset == kept.info.dynamic_metadata_offset);
      CHECK((memory.is_last() == (shape.whole + shape.windows == 0)));
    }
    CHECK(memory.is_last());
  }
}

TEST_CASE("Compact arguments that nobody expands let go of their memory") {
  const ManagedMemory memory = ManagedMemory::create({}, 256);
  {
    const CompactArguments compact(with(memory, 3, 1, 2));
    CHECK_FALSE(memory.is_last());
  }
  CHECK(memory.is_last());
}

TEST_CASE("Arguments of more than twelve words, five of metadata, or with tensor maps, do not fit the compact form") {
  const ManagedMemory memory = ManagedMemory::create({}, 256);
  CHECK_FALSE(CompactArguments::fits(with(memory, 13, 0, 0)));
  CHECK_FALSE(CompactArguments::fits(with(memory, 8, 0, 5)));
  CHECK_FALSE(CompactArguments::fits(with(memory, 0, 5, 0)));
  CHECK_FALSE(CompactArguments::fits(with(memory, 0, 0, 5)));
  KernelArguments far = with(memory, 1, 0, 1);
  far.info.dynamic_metadata_offset = 256;
  CHECK_FALSE(CompactArguments::fits(far));
  const KernelArguments mapped = KernelArguments{}.with_tensor_map(
      Binding{memory, 0, 0, {}}, {.shape = {64}, .format = cox::TensorMapTiled{{16}}});
  CHECK_FALSE(CompactArguments::fits(mapped));
}
