#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/runtime/launch/scalar_types.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

using cox::Binding;
using cox::KernelArguments;
using cox::MetadataBindingInfo;
using cox::TensorMapDescriptor;
using cox::TensorMapTiled;
using Words = cox::SmallVector<std::uint64_t, 4>;

namespace {

TensorMapDescriptor row() { return {.shape = {64}, .format = TensorMapTiled{{16}}}; }

}  // namespace

TEST_CASE("Scalars are static words, in order, before the dynamic ones") {
  const auto scalars = KernelArguments{}.with_scalar(std::uint32_t{1}).with_scalar(std::uint64_t{2});
  CHECK(scalars.info().data == Words{1, 2});
  CHECK(scalars.info().dynamic_metadata_offset == 2);
  const auto mixed = KernelArguments{}
                         .with_info({.data = {1, 10, 11}, .dynamic_metadata_offset = 1})
                         .with_scalar(std::uint8_t{2})
                         .with_scalar(std::uint16_t{3});
  CHECK(mixed.info().data == Words{1, 2, 3, 10, 11});
  CHECK(mixed.info().dynamic_metadata_offset == 3);
  const auto dynamic = KernelArguments{}.with_info({.data = {10, 11}}).with_scalar(true);
  CHECK(dynamic.info().data == Words{1, 10, 11});
  CHECK(dynamic.info().dynamic_metadata_offset == 1);
}

TEST_CASE("A value that is larger than a word fills as many as it needs, the last one up with zeros") {
  const std::array<std::uint32_t, 5> extents{1, 2, 3, 4, 5};
  const auto given = KernelArguments{}.with_scalar(extents).with_scalar(7.0);
  REQUIRE(given.info().data.size() == 4);
  std::array<std::uint32_t, 6> filled{};
  std::memcpy(filled.data(), given.view().words.data(), sizeof(filled));
  CHECK(filled == std::array<std::uint32_t, 6>{1, 2, 3, 4, 5, 0});
  CHECK(given.info().dynamic_metadata_offset == 4);
}

TEST_CASE("Buffers and scalars may be added in any order") {
  const cox::ManagedMemory memory = cox::ManagedMemory::create({}, 256);
  const cox::ManagedMemory other = cox::ManagedMemory::create({}, 64);
  const auto given = KernelArguments{}
                         .with_info({.data = {10, 11}})
                         .with_buffer(Binding{memory, 16, 0, {}}, cox::Access::Read)
                         .with_scalar(std::uint64_t{1})
                         .with_buffer(Binding{other, 0, 0, {}})
                         .with_scalar(std::array<std::uint64_t, 2>{2, 3});
  CHECK(given.info().data == Words{1, 2, 3, 10, 11});
  CHECK(given.info().dynamic_metadata_offset == 3);
  REQUIRE(given.view().buffers.size() == 2);
  auto buffer = given.view().buffers.begin();
  CHECK((*buffer).memory == memory);
  CHECK((*buffer).offset_start == 16);
  CHECK((*buffer).size_in_used == std::size_t{240});
  CHECK((*buffer).access == cox::Access::Read);
  ++buffer;
  CHECK((*buffer).memory == other);
  CHECK_FALSE((*buffer).size_in_used.has_value());
  const auto replaced = KernelArguments(given).with_info({.data = {7}, .dynamic_metadata_offset = 5});
  CHECK(replaced.info().data == Words{7});
  CHECK(replaced.info().dynamic_metadata_offset == 1);
  CHECK(replaced.view().buffers.size() == 2);
}

TEST_CASE("Tensor maps are taken in order with their memory, and refused if they do not fit it") {
  Binding memory{.memory = cox::ManagedMemory::create({}, 256), .stream = {}};
  const auto given = KernelArguments{}.with_tensor_map(memory, row()).with_tensor_map(memory, row(), cox::Access::Read);
  REQUIRE(given.view().tensor_maps.size() == 2);
  CHECK(given.view().tensor_maps[0].binding.size_in_used() == 256);
  CHECK(given.view().tensor_maps[0].access == cox::Access::Write);
  CHECK(given.view().tensor_maps[1].access == cox::Access::Read);
  memory.offset_start = 16;
  CHECK_THROWS_AS(KernelArguments{}.with_tensor_map(memory, row()), cox::ServerError);
}

TEST_CASE("Arguments are added to an object in place, and to a temporary one") {
  const cox::ManagedMemory memory = cox::ManagedMemory::create({}, 256);
  const cox::Handle handle(cox::ManagedMemoryHandle(cox::ManagedMemory::create({}, 64)), {});
  KernelArguments arguments;
  arguments.with_info({.data = {10}});
  arguments.with_buffer(handle, cox::Access::Read).with_scalar(std::uint64_t{1});
  arguments.with_buffer(Binding{memory, 16, 0, {}});
  arguments.with_tensor_map(Binding{memory, 0, 0, {}}, row()).with_tensor_map(Binding{memory, 0, 0, {}}, row());
  const auto expected = KernelArguments{}
                            .with_info({.data = {10}})
                            .with_buffer(handle, cox::Access::Read)
                            .with_scalar(std::uint64_t{1})
                            .with_buffer(Binding{memory, 16, 0, {}});
  CHECK(arguments.info().data == expected.info().data);
  CHECK(arguments.view().buffers.size() == 2);
  CHECK((*arguments.view().buffers.begin()).memory == handle.memory().memory());
  CHECK((*arguments.view().buffers.begin()).access == cox::Access::Read);
  CHECK((*++arguments.view().buffers.begin()).size_in_used == std::size_t{240});
  CHECK(arguments.view().tensor_maps.size() == 2);
  CHECK(&arguments.with_scalar(1) == &arguments);
}

TEST_CASE("Arguments keep the types of scalars, also when they are copied, moved and assigned") {
  using cox::ScalarType;
  auto given = KernelArguments{}.with_scalar(2.0F).with_scalar(std::array<std::uint32_t, 3>{}).with_scalar(-1);
  const auto right = [](const cox::ScalarTypes& types) {
    return types[0] == ScalarType::F32 && types[1] == ScalarType::Object && types[2] == ScalarType::Continued &&
           types[3] == ScalarType::I32 && types[4] == ScalarType::Unknown;
  };
  CHECK(right(given.view().types));
  const KernelArguments copied = given;
  CHECK(right(copied.view().types));
  KernelArguments assigned;
  assigned = given;
  CHECK(right(assigned.view().types));
  const KernelArguments moved = std::move(given);
  CHECK(right(moved.view().types));
  CHECK(KernelArguments(moved).with_info(moved.info()).view().types == cox::ScalarTypes(0, 4));
}
