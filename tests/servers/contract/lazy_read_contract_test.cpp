#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/runtime/bytes/lazy_bytes.hpp>
#include <coxswain/runtime/error/server_error.hpp>

#include <atomic>
#include <cstdint>
#include <latch>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

using namespace cox::test;
using cox::AccessPolicy;
using cox::AllocationProperty;
using cox::Bytes;
using cox::CopyDescriptor;
using cox::Handle;
using cox::IoError;
using cox::lazy_bytes;
using cox::ServerError;

namespace {

CopyDescriptor whole(const Handle& handle) { return handle.copy_descriptor({handle.size_in_used()}, {1}, 1); }

/// A client that counts what it downloads.
template <class Client>
struct CountingClient {
  struct Downloads {
    std::atomic<int> count{0};
    std::atomic<std::size_t> bytes{0};
  };

  Client client;
  std::shared_ptr<Downloads> downloads = std::make_shared<Downloads>();

  [[nodiscard]] cox::StreamId stream_id() const noexcept { return client.stream_id(); }
  void set_stream(cox::StreamId stream) noexcept { client.set_stream(stream); }
  [[nodiscard]] Bytes read_one_tensor(CopyDescriptor tensor, std::source_location site) const {
    Bytes bytes = client.read_one_tensor(std::move(tensor), site);
    ++downloads->count;
    downloads->bytes += bytes.size();
    return bytes;
  }
};

/// 100 rows of 30 bytes, padded on the device.
struct Padded {
  template <class Client>
  explicit Padded(const Client& client)
      : layout(client.create_tensor(Bytes::copy_of(content), {100, 30}, 1)),
        tensor(layout.copy_descriptor({100, 30}, 1)) {
    REQUIRE(layout.strides != cox::Strides{30, 1});
  }
  std::vector<std::byte> content = pattern(3000);
  cox::MemoryLayout layout;
  CopyDescriptor tensor;
};

}  // namespace

TEMPLATE_TEST_CASE("Lazy bytes of a device are downloaded by the first access, once for all who share them", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const CountingClient<typename TestType::Client> client{device.client()};
  const Bytes bytes = lazy_bytes(client, whole(device.client().create(Bytes::copy_of(pattern(5000)))));
  CHECK(bytes.property() == AllocationProperty::Device);
  CHECK(bytes.size() == 5000);
  const Bytes same = bytes.share();
  CHECK_FALSE(bytes.is_resident());
  CHECK(kind_of<IoError>([&] { (void)bytes.span(AccessPolicy::ZeroCopy); }) == IoError::Kind::WouldCopy);
  CHECK(client.downloads->count == 0);
  CHECK(bytes == Bytes::copy_of(pattern(5000)));
  CHECK(bytes.is_resident());
  CHECK(bytes.span(AccessPolicy::ZeroCopy).size() == 5000);
  CHECK(same.data() == bytes.data());
  CHECK(bytes.property() == AllocationProperty::Device);
  CHECK(client.downloads->count == 1);
  CHECK(client.downloads->bytes == 5000);
}

TEMPLATE_TEST_CASE("Parts of lazy bytes of a device are lazy, and download no more than themselves", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const CountingClient<typename TestType::Client> client{device.client()};
  const Bytes bytes = lazy_bytes(client, whole(device.client().create(Bytes::copy_of(pattern(5000)))));
  const Bytes content = Bytes::copy_of(pattern(5000));
  const Bytes part = bytes.slice(1000, 100).slice(10, 20);
  CHECK(part.property() == AllocationProperty::Device);
  CHECK(client.downloads->count == 0);
  CHECK(part == content.slice(1010, 20));
  CHECK(client.downloads->bytes == 20);
  std::vector<std::byte> to(7);
  bytes.copy_to(to, 4993);
  CHECK(Bytes::copy_of(to) == content.slice(4993, 7));
  CHECK(client.downloads->bytes == 27);
  CHECK_FALSE(bytes.is_resident());
  auto [front, back] = bytes.share().split(1);
  CHECK(front == content.slice(0, 1));
  CHECK(back == content.slice(1, 4999));
  CHECK(client.downloads->bytes == 5027);
}

TEMPLATE_TEST_CASE("Lazy bytes of a part of a device's memory are that part", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const Handle handle = device.client().create(Bytes::copy_of(pattern(5000))).offset_start(512).offset_end(100);
  const Bytes bytes = lazy_bytes(device.client(), whole(handle));
  CHECK(bytes.slice(4380, 8) == Bytes::copy_of(pattern(5000)).slice(4892, 8));
  CHECK(bytes == Bytes::copy_of(pattern(5000)).slice(512, 4388));
}

TEMPLATE_TEST_CASE("Lazy bytes of a padded tensor are dense, and a part of them downloads the rows that it touches", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const CountingClient<typename TestType::Client> client{device.client()};
  const Padded padded(device.client());
  const Bytes content = Bytes::copy_of(padded.content);
  const Bytes bytes = lazy_bytes(client, padded.tensor);
  const auto downloaded = [&](std::size_t offset, std::size_t size) {
    const std::size_t before = client.downloads->bytes;
    CHECK(bytes.slice(offset, size) == content.slice(offset, size));
    return client.downloads->bytes - before;
  };
  CHECK(downloaded(35, 10) == 10);    // within a row
  CHECK(downloaded(30, 30) == 30);    // a row
  CHECK(downloaded(59, 2) == 60);     // the end of one and the beginning of the next
  CHECK(downloaded(45, 100) == 120);  // parts of four
  CHECK(downloaded(60, 90) == 90);    // whole rows
  CHECK(downloaded(2999, 1) == 1);    // the last byte
  CHECK(downloaded(2950, 50) == 60);  // the end
  CHECK(downloaded(0, 3000) == 3000);
  CHECK(bytes.is_resident());
}

TEMPLATE_TEST_CASE("L11: lazy bytes keep the memory alive, and do not count as a handle", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  std::optional<Handle> handle = upload(client, {1, 2, 3});
  const Bytes bytes = lazy_bytes(client, whole(*handle));
  CHECK(handle->can_mut());
  handle.reset();
  for (std::uint32_t i = 0; i < 20; ++i) (void)upload(client, {i, i, i});  // would take over what is free
  CHECK(numbers(bytes) == std::vector<std::uint32_t>{1, 2, 3});
}

TEMPLATE_TEST_CASE("Lazy bytes belong to the stream that asked, and come behind what it was given before the access",
                   "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle handle = upload(client, {1, 2, 3});
  const Bytes bytes = lazy_bytes(client, whole(handle));
  client.write(handle, Bytes::copy_of(std::vector<std::uint32_t>{4, 5, 6}));
  std::vector<std::uint32_t> seen;
  std::jthread([&] { seen = numbers(bytes); }).join();  // another thread, with another StreamId
  CHECK(seen == std::vector<std::uint32_t>{4, 5, 6});

  const Bytes unseen = lazy_bytes(client, whole(handle));
  launch(client, TestType::fail_after_submit(client));
  std::optional<ServerError::Kind> kind;
  std::jthread([&] { kind = kind_of<ServerError>([&] { (void)unseen.data(); }); }).join();
  CHECK(kind == ServerError::Kind::Unhealthy);  // the failure is of the stream that asked
}

TEMPLATE_TEST_CASE("L12: a failed download says why, and the next access tries again", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  auto client = device.on_new_stream();
  const Bytes bytes = lazy_bytes(client, whole(upload(client, {1, 2, 3})));
  const auto fail = [&] { launch(client, TestType::fail_after_submit(client)); };
  fail();
  CHECK(kind_of<ServerError>([&] { (void)bytes.data(); }) == ServerError::Kind::Unhealthy);
  fail();
  CHECK(kind_of<ServerError>([&] { (void)bytes.slice(4, 4).copy(); }) == ServerError::Kind::Unhealthy);
  CHECK_FALSE(bytes.is_resident());
  CHECK(numbers(bytes) == std::vector<std::uint32_t>{1, 2, 3});
}

TEMPLATE_TEST_CASE("Lazy bytes of memory that cannot be had fail with its cause, and those of no tensor at once", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device({.memory = TestType::min_memory});
  auto client = device.on_new_stream();
  const Bytes bytes = lazy_bytes(client, whole(client.empty(2 * TestType::min_memory)));
  CHECK(kind_of<ServerError>([&] { (void)bytes.data(); }) == ServerError::Kind::Unhealthy);
  CHECK(kind_of<IoError>([&] { (void)bytes.data(); }) == IoError::Kind::AllocationFailed);
  const Handle handle = client.empty(16);
  CHECK(kind_of<IoError>([&] { (void)lazy_bytes(client, handle.copy_descriptor({17}, {1}, 1)); }) ==
        IoError::Kind::OutOfBounds);
  CHECK(kind_of<IoError>([&] { (void)lazy_bytes(client, handle.copy_descriptor({2, 2}, {1, 2}, 1)); }) ==
        IoError::Kind::UnsupportedStrides);
  CHECK(lazy_bytes(client, handle.copy_descriptor({0, 4}, {4, 1}, 1)).empty());
}

TEMPLATE_TEST_CASE("L4: lazy bytes that were not looked at before the shutdown of their device are closed, others stay",
                   "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  std::optional<OpenDevice<TestType>> device(std::in_place);
  const Bytes seen = lazy_bytes(device->client(), whole(upload(device->client(), {1, 2, 3})));
  const Bytes unseen = lazy_bytes(device->client(), whole(upload(device->client(), {4})));
  (void)seen.data();
  device.reset();
  CHECK(numbers(seen) == std::vector<std::uint32_t>{1, 2, 3});
  CHECK(kind_of<cox::CallError>([&] { (void)unseen.data(); }) == cox::CallError::Kind::Closed);
}

TEMPLATE_TEST_CASE("Many threads that look at lazy bytes of a device cause one download", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const CountingClient<typename TestType::Client> client{device.client()};
  const Bytes bytes = lazy_bytes(client, whole(device.client().create(Bytes::copy_of(pattern(5000)))));
  std::latch start(4);
  {
    std::vector<std::jthread> readers;
    for (int t = 0; t < 4; ++t)
      readers.emplace_back([&, mine = bytes.share()] {
        start.arrive_and_wait();
        (void)mine.data();
      });
  }
  CHECK(client.downloads->count == 1);
}
