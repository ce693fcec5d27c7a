#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

using namespace cox::test;
using cox::AllocationProperty;
using cox::Bytes;
using cox::Handle;
using cox::IoError;
using cox::MemoryLayoutDescriptor;

namespace {

template <class Backend>
constexpr std::size_t room = Backend::min_pinned;  // for staging, bytes
template <class Backend>
constexpr DeviceOptions little_room{.pinned = room<Backend>, .threads = 1};

template <class Client>
std::vector<Bytes> reserve(const Client& client, const std::vector<std::size_t>& sizes) {
  return client.reserve_staging(sizes);
}
template <class Client>
bool is_free(const Client& client, std::size_t bytes) {
  return reserve(client, {bytes}).front().property() == AllocationProperty::Pinned;
}

/// Whether nothing at all is given out.
template <class Backend>
bool all_room_is_free(const typename Backend::Client& client) {
  return is_free(client, room<Backend>);
}

std::vector<AllocationProperty> properties(const std::vector<Bytes>& buffers) {
  std::vector<AllocationProperty> found;
  for (const Bytes& buffer : buffers) found.push_back(buffer.property());
  return found;
}

const std::byte* place(const Bytes& buffer) { return buffer.data(); }

Bytes shared_with_others(std::size_t size) {
  auto content = std::make_shared<const std::vector<std::byte>>(pattern(size));
  return Bytes::from_shared(content, *content);
}

}  // namespace

TEMPLATE_TEST_CASE("Staging buffers are pinned, of the sizes asked for, and uploaded as any other bytes", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  std::vector<Bytes> buffers = reserve(client, {1000, 0, 1});
  REQUIRE(buffers.size() == 3);
  CHECK(buffers[0].property() == AllocationProperty::Pinned);
  CHECK(buffers[0].size() == 1000);
  CHECK(reinterpret_cast<std::uintptr_t>(place(buffers[0])) % TestType::Server::pinned_alignment == 0);
  CHECK(buffers[1].empty());
  CHECK(buffers[2].size() == 1);
  CHECK(buffers[2].property() == AllocationProperty::Pinned);
  CHECK(reserve(client, {}).empty());

  std::ranges::copy(pattern(1000), buffers[0].span().begin());
  CHECK(buffers[0].property() == AllocationProperty::Pinned);  // written to where it is
  CHECK(client.read_one(client.create(std::move(buffers[0]))) == Bytes::copy_of(pattern(1000)));
  CHECK(client.read_one(client.create(std::move(buffers[1]))).empty());
}

TEMPLATE_TEST_CASE("Where there is no staging memory left, all buffers of the call are zeroed memory of the heap", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(little_room<TestType>);
  const auto& client = device.client();
  auto half = reserve(client, {room<TestType> / 2});
  CHECK(half[0].property() == AllocationProperty::Pinned);
  const auto heap = reserve(client, {room<TestType> / 4, room<TestType> / 2});
  CHECK(properties(heap) == std::vector{AllocationProperty::Native, AllocationProperty::Native});
  CHECK(heap[0] == Bytes::zeroed(room<TestType> / 4));
  CHECK(heap[1] == Bytes::zeroed(room<TestType> / 2));
  // What the failed call had been given is there again.
  CHECK(reserve(client, {room<TestType> / 2})[0].property() == AllocationProperty::Pinned);
  CHECK_FALSE(all_room_is_free<TestType>(client));
  half.clear();
  CHECK(all_room_is_free<TestType>(client));
  client.sync().get();  // none of this is a failure of the stream
}

TEMPLATE_TEST_CASE("L13: staging memory lives as long as its bytes, also beyond a shutdown", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  std::optional<OpenDevice<TestType>> device(std::in_place, little_room<TestType>);
  auto kept = reserve(device->client(), {1000});
  std::ranges::copy(pattern(1000), kept[0].span().begin());
  const auto closed = device->client();
  device.reset();
  CHECK(kind_of<cox::CallError>([&] { (void)reserve(closed, {1}); }) == cox::CallError::Kind::Closed);
  CHECK(kind_of<cox::CallError>([&] { closed.staging(kept); }) == std::nullopt);  // there is nothing to replace
  CHECK(kept[0] == Bytes::copy_of(pattern(1000)));

  OpenDevice<TestType> again(little_room<TestType>);
  CHECK(all_room_is_free<TestType>(again.client()));
  CHECK(again.client().read_one(again.client().create(std::move(kept[0]))) == Bytes::copy_of(pattern(1000)));
}

TEMPLATE_TEST_CASE("staging brings the bytes of files and of pageable memory into staging memory, and leaves the rest",
                   "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const TemporaryFile file(pattern(5000));
  std::vector<Bytes> buffers;
  buffers.push_back(Bytes::from_file(file.path(), 100, 3000));
  buffers.push_back(Bytes::copy_of(pattern(700, 1)));
  buffers.push_back(shared_with_others(300));
  buffers.push_back(std::move(reserve(client, {200}).front()));
  buffers.push_back(client.read_lazy(client.create(Bytes::copy_of(pattern(100)))));
  buffers.emplace_back();
  REQUIRE(properties(buffers) == std::vector{AllocationProperty::File, AllocationProperty::Native,
                                             AllocationProperty::Other, AllocationProperty::Pinned,
                                             AllocationProperty::Device, AllocationProperty::Native});
  const Bytes share = buffers[1].share();
  const std::byte* const pinned = place(buffers[3]);
  client.staging(buffers);
  CHECK(properties(buffers) == std::vector{AllocationProperty::Pinned, AllocationProperty::Pinned,
                                           AllocationProperty::Pinned, AllocationProperty::Pinned,
                                           AllocationProperty::Device, AllocationProperty::Native});
  CHECK(buffers[0] == Bytes::copy_of(pattern(5000)).slice(100, 3000));
  CHECK(buffers[1] == Bytes::copy_of(pattern(700, 1)));
  CHECK(buffers[2] == Bytes::copy_of(pattern(300)));
  CHECK(place(buffers[3]) == pinned);
  CHECK_FALSE(buffers[4].is_resident());
  CHECK(buffers[5].empty());
  CHECK(share.property() == AllocationProperty::Native);
  CHECK(share == buffers[1]);
}

TEMPLATE_TEST_CASE("staging of files only leaves pageable memory where it is", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const TemporaryFile file(pattern(500));
  std::vector<Bytes> buffers;
  buffers.push_back(Bytes::copy_of(pattern(700)));
  buffers.push_back(Bytes::from_file(file.path(), 0, 500));
  buffers.push_back(shared_with_others(300));
  const std::byte* const native = place(buffers[0]);
  device.client().staging(buffers, true);
  CHECK(properties(buffers) ==
        std::vector{AllocationProperty::Native, AllocationProperty::Pinned, AllocationProperty::Other});
  CHECK(place(buffers[0]) == native);
  CHECK(buffers[1] == Bytes::copy_of(pattern(500)));
}

TEMPLATE_TEST_CASE("staging that does not find room changes nothing", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(little_room<TestType>);
  const TemporaryFile file(pattern(room<TestType>));
  std::vector<Bytes> buffers;
  buffers.push_back(Bytes::copy_of(pattern(room<TestType> / 2)));
  buffers.push_back(Bytes::from_file(file.path(), 0, room<TestType>));
  const std::byte* const native = place(buffers[0]);
  device.client().staging(buffers);
  CHECK(properties(buffers) == std::vector{AllocationProperty::Native, AllocationProperty::File});
  CHECK(place(buffers[0]) == native);
  CHECK_FALSE(buffers[1].is_resident());
  CHECK(all_room_is_free<TestType>(device.client()));
  device.client().sync().get();
}

TEMPLATE_TEST_CASE("staging of a file that cannot be read says so, and no buffer has lost its content", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(little_room<TestType>);
  TemporaryFile file(pattern(500));
  std::vector<Bytes> buffers;
  buffers.push_back(Bytes::copy_of(pattern(700)));
  buffers.push_back(Bytes::from_file(file.path(), 0, 500));
  buffers.push_back(Bytes::copy_of(pattern(300)));
  file.remove();
  CHECK(kind_of<IoError>([&] { device.client().staging(buffers); }) == IoError::Kind::FileUnreadable);
  CHECK(buffers[0] == Bytes::copy_of(pattern(700)));
  CHECK(buffers[1].property() == AllocationProperty::File);
  CHECK(buffers[2] == Bytes::copy_of(pattern(300)));
  buffers.clear();
  CHECK(all_room_is_free<TestType>(device.client()));
}

TEMPLATE_TEST_CASE(
    "L11: what is uploaded by way of staging memory holds it until the device has it, then gives it back", "",
    COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(little_room<TestType>);
  const auto& client = device.client();
  std::optional<typename TestType::Gate> gate(std::in_place, client);  // may have some of the room, too
  launch(client, gate->hold());
  const auto content = pattern(room<TestType> / 2);
  const Handle data = client.create_from_slice_pinned(content);
  CHECK_FALSE(is_free(client, room<TestType> / 4 * 3));
  const Handle beyond = client.create_from_slice_pinned(pattern(2 * room<TestType>));  // by way of the heap
  gate.reset();
  CHECK(client.read_one(data) == Bytes::copy_of(content));
  CHECK(client.read_one(beyond) == Bytes::copy_of(pattern(2 * room<TestType>)));
  client.sync().get();
  CHECK(all_room_is_free<TestType>(client));
  CHECK(client.read_one(client.create_from_slice_pinned({})).empty());
}

TEMPLATE_TEST_CASE("Tensors that are made by way of staging memory share an allocation and have their content", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device(little_room<TestType>);
  const auto& client = device.client();
  const auto matrix = pattern(60);
  const auto row = pattern(7, 1);
  std::optional<typename TestType::Gate> gate(std::in_place, client);
  launch(client, gate->hold());
  const auto layouts = client.create_tensors_from_slices_pinned({{MemoryLayoutDescriptor::optimized({3, 5}, 4), matrix},
                                                                 {MemoryLayoutDescriptor::contiguous({7}, 1), row},
                                                                 {MemoryLayoutDescriptor::optimized({2, 0}, 4), {}}});
  CHECK_FALSE(all_room_is_free<TestType>(client));
  gate.reset();
  REQUIRE(layouts.size() == 3);
  CHECK(client.read_one_tensor(layouts[0].copy_descriptor({3, 5}, 4)) == Bytes::copy_of(matrix));
  CHECK(client.read_one(layouts[1].memory) == Bytes::copy_of(row));
  CHECK(client.read_one_tensor(layouts[2].copy_descriptor({2, 0}, 4)).empty());
  CHECK(client.memory_usage().number_allocs == 1);
  client.sync().get();
  CHECK(all_room_is_free<TestType>(client));
  CHECK(client.create_tensors_from_slices_pinned({}).empty());
  CHECK(kind_of<IoError>([&] {
          (void)client.create_tensors_from_slices_pinned({{MemoryLayoutDescriptor::contiguous({8}, 1), row}});
        }) == IoError::Kind::SizeMismatch);
}
