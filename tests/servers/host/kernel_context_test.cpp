#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/servers/host/kernel/kernel_context.hpp>

#include <array>
#include <cstring>
#include <set>

using cox::Access;
using cox::ExecutionMode;
using cox::KernelContext;
using cox::LaunchError;
using cox::test::kind_of;
using cox::test::mentions;
using cox::test::message_of;

namespace {

struct Fixture {
  alignas(8) std::array<std::byte, 16> memory{};
  std::array<KernelContext::Buffer, 2> buffers{KernelContext::Buffer{memory.data(), 16, Access::Write},
                                               KernelContext::Buffer{memory.data() + 1, 8, Access::Read}};
  std::array<std::uint64_t, 1> words{0};
  KernelContext context{{2, 3, 1}, {2, 2, 2}, buffers, words, ExecutionMode::Checked};
};

}  // namespace

TEST_CASE("The units of all cubes are numbered without gaps") {
  Fixture fixture;
  std::set<std::uint64_t> units;
  for (std::uint32_t z = 0; z < 2; ++z)
    for (std::uint32_t y = 0; y < 2; ++y)
      for (std::uint32_t x = 0; x < 2; ++x) {
        fixture.context.set_cube_index({x, y, z});
        fixture.context.for_each_unit([&](std::uint64_t unit) { units.insert(unit); });
      }
  REQUIRE(units.size() == 48);
  REQUIRE(*units.rbegin() == 47);
}

TEST_CASE("A checked buffer refuses what lies beyond it, with the figures") {
  const Fixture fixture;
  const auto view = fixture.context.buffer<std::uint32_t>(0);
  view[3] = 1;
  REQUIRE(kind_of<LaunchError>([&] { view[4] = 1; }) == LaunchError::Kind::OutOfBounds);
  REQUIRE(mentions(message_of([&] { (void)view[4]; }), {"element 4", "buffer 0", "4 elements"}));
}

TEST_CASE("Buffers that do not hold what the kernel takes them for are refused") {
  const Fixture fixture;
  const auto kind = [](auto f) { return kind_of<LaunchError>(f); };
  REQUIRE(kind([&] { (void)fixture.context.buffer<std::array<char, 5>>(0); }) == LaunchError::Kind::ArgumentType);
  REQUIRE(kind([&] { (void)fixture.context.buffer<const std::uint32_t>(1); }) == LaunchError::Kind::ArgumentType);
  REQUIRE(kind([&] { (void)fixture.context.buffer<char>(1); }) == LaunchError::Kind::ArgumentType);
  REQUIRE(kind([&] { (void)fixture.context.buffer<const char>(1); }) == std::nullopt);
  REQUIRE(kind([&] { (void)fixture.context.buffer<char>(2); }) == LaunchError::Kind::ArgumentCount);
}

TEST_CASE("Scalars come back as they were given") {
  Fixture fixture;
  const float value = 2.5F;
  std::memcpy(fixture.words.data(), &value, sizeof(value));
  REQUIRE(fixture.context.scalar<float>(0) == value);
  REQUIRE(mentions(message_of([&] { (void)fixture.context.scalar<int>(1); }), {"scalar 1", "has 1"}));
}

TEST_CASE("Scalars are read as the type that they were passed as") {
  struct Extents {
    explicit Extents(std::uint64_t all) : x(all), y(all), z(static_cast<std::uint32_t>(all)) {}
    std::uint64_t x, y;
    std::uint32_t z;
  };
  const auto arguments = cox::KernelArguments{}.with_scalar(std::uint64_t{7}).with_scalar(Extents(9)).with_scalar(2.5F);
  const auto view = arguments.view();
  const KernelContext context({1, 1, 1}, {1, 1, 1}, {}, view.words, ExecutionMode::Checked, view.types);
  CHECK(context.scalar_count() == 5);
  CHECK(context.scalar<std::uint64_t>(0) == 7);
  CHECK(context.scalar<Extents>(1).y == 9);
  CHECK(context.scalar<Extents>(1).z == 9);
  CHECK(context.scalar<float>(4) == 2.5F);
  const auto refused = [](auto f, const char* given_as, const char* read_as) {
    return kind_of<LaunchError>(f) == LaunchError::Kind::ArgumentType &&
           mentions(message_of(f), {given_as, "the kernel reads", read_as});
  };
  CHECK(refused([&] { (void)context.scalar<float>(0); }, "scalar 0 was passed as u64", "f32"));
  CHECK(refused([&] { (void)context.scalar<std::int64_t>(0); }, "u64", "i64"));
  CHECK(refused([&] { (void)context.scalar<std::uint64_t>(1); }, "an object of 3 words", "u64"));
  CHECK(refused([&] { (void)context.scalar<double>(4); }, "scalar 4 was passed as f32", "f64"));
  CHECK(refused([&] { (void)context.scalar<std::array<float, 2>>(1); }, "3 words", "an object of 1 word"));
  CHECK(kind_of<LaunchError>([&] { (void)context.scalar<Extents>(4); }) == LaunchError::Kind::ArgumentType);
  CHECK(kind_of<LaunchError>([&] { (void)context.scalar<float>(5); }) == LaunchError::Kind::ArgumentCount);
}
