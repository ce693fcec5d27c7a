#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/launch/kernel_arguments.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

using cox::Binding;
using cox::KernelArguments;
using cox::LaunchArguments;
using cox::ManagedMemory;

namespace {

KernelArguments with(const ManagedMemory& memory, std::size_t whole, std::size_t windows, std::size_t scalars) {
  KernelArguments arguments;
  for (std::size_t i = 0; i < whole; ++i)
    std::move(arguments).with_buffer(Binding{memory, 0, 0, {}}, i % 2 == 0 ? cox::Access::Read : cox::Access::Write);
  for (std::size_t i = 0; i < windows; ++i) std::move(arguments).with_buffer(Binding{memory, i, 1, {}});
  for (std::uint64_t i = 0; i < scalars; ++i) std::move(arguments).with_scalar(i + 100);
  return arguments;
}

KernelArguments with_static_words(KernelArguments arguments, std::size_t count) {
  cox::MetadataBindingInfo info = arguments.info();
  info.dynamic_metadata_offset = count;
  return std::move(arguments).with_info(info);
}

void check_same(const LaunchArguments& left, const LaunchArguments& right) {
  CHECK(std::ranges::equal(left.words, right.words));
  CHECK(left.static_words == right.static_words);
  CHECK(left.types == right.types);
  CHECK(std::ranges::equal(left.buffers, right.buffers, [](const auto& a, const auto& b) {
    return a.memory == b.memory && a.offset_start == b.offset_start && a.size_in_used == b.size_in_used &&
           a.access == b.access;
  }));
}

}  // namespace

TEST_CASE("A server reads in compact arguments what was in the arguments") {
  struct Shape {
    std::size_t whole, windows, scalars;
  };
  for (const Shape shape : {Shape{0, 0, 0}, {8, 0, 4}, {12, 0, 0}, {0, 4, 0}, {3, 2, 3}, {0, 0, 12}}) {
    const ManagedMemory memory = ManagedMemory::create({}, 256);
    {
      KernelArguments given =
          with_static_words(with(memory, shape.whole, shape.windows, shape.scalars), shape.scalars / 2);
      const KernelArguments kept = given;
      REQUIRE(KernelArguments::Compact::fits(given));
      const KernelArguments::Compact compact(std::move(given));
      check_same(compact.view(), kept.view());
      CHECK((memory.is_last() == (shape.whole + shape.windows == 0)));
    }
    CHECK(memory.is_last());
  }
}

TEST_CASE("A server reads in compact arguments the types of the scalars") {
  const ManagedMemory memory = ManagedMemory::create({}, 256);
  KernelArguments given = with(memory, 2, 0, 9);
  given.with_scalar(1.0);
  const KernelArguments kept = given;
  REQUIRE(KernelArguments::Compact::fits(given));
  KernelArguments::Compact compact(std::move(given));
  CHECK(compact.view().types[8] == cox::ScalarType::U64);
  CHECK(compact.view().types[9] == cox::ScalarType::F64);
  const KernelArguments::Compact moved(std::move(compact));
  check_same(moved.view(), kept.view());
}

TEST_CASE("Compact arguments drop the references to their memory") {
  const ManagedMemory memory = ManagedMemory::create({}, 256);
  {
    const KernelArguments::Compact compact(with(memory, 3, 1, 2));
    CHECK_FALSE(memory.is_last());
  }
  CHECK(memory.is_last());
}

TEST_CASE("Arguments of more than twelve words or ten scalars, or with tensor maps, do not fit the compact form") {
  const ManagedMemory memory = ManagedMemory::create({}, 256);
  CHECK_FALSE(KernelArguments::Compact::fits(with(memory, 13, 0, 0)));
  CHECK_FALSE(KernelArguments::Compact::fits(with(memory, 8, 0, 5)));
  CHECK_FALSE(KernelArguments::Compact::fits(with(memory, 0, 5, 0)));
  CHECK(KernelArguments::Compact::fits(with(memory, 0, 0, 10)));
  CHECK_FALSE(KernelArguments::Compact::fits(with(memory, 0, 0, 11)));
  const KernelArguments mapped = KernelArguments{}.with_tensor_map(
      Binding{memory, 0, 0, {}}, {.shape = {64}, .format = cox::TensorMapTiled{{16}}});
  CHECK_FALSE(KernelArguments::Compact::fits(mapped));
}
