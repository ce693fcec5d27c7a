#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/memory/device_buffer.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

using namespace cox::test;
using cox::Bytes;
using cox::Handle;
using cox::IoError;
using cox::ServerError;

namespace {

template <class Client>
std::optional<IoError::Kind> refusal(const Client& client, const Handle& handle) {
  return kind_of<IoError>([&] { (void)client.get_resource(handle); });
}

}  // namespace

TEMPLATE_TEST_CASE("A resource is the memory of its handle's window itself", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle data = client.create(Bytes::copy_of(pattern(1000)));
  client.sync().get();
  const auto all = client.get_resource(data);
  REQUIRE(TestType::size(all.resource) == 1000);
  CHECK(TestType::peek(client, all.resource) == Bytes::copy_of(pattern(1000)));
  const auto part = client.get_resource(data.offset_start(100).offset_end(800));
  CHECK(TestType::address(part.resource) == TestType::address(all.resource) + 100);
  REQUIRE(TestType::size(part.resource) == 100);
  TestType::poke(client, part.resource, pattern(100, 1));
  CHECK(client.read_one(data.offset_start(100).offset_end(800)) == Bytes::copy_of(pattern(100, 1)));
  CHECK(client.read_one(data.offset_end(900)) == Bytes::copy_of(pattern(100)));
  CHECK(TestType::size(client.get_resource(client.empty(0)).resource) == 0);
}

TEMPLATE_TEST_CASE("L11: a resource keeps its memory when all handles are gone, and is none itself", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  Handle data = client.create(Bytes::copy_of(pattern(1000)));
  client.sync().get();
  auto kept = client.get_resource(data);
  CHECK(data.can_mut());
  data = {};
  for (std::size_t i = 0; i < 20; ++i) (void)client.create(Bytes::copy_of(pattern(1000, 1)));
  client.sync().get();
  CHECK(client.memory_usage().number_allocs == 1);
  CHECK(TestType::peek(client, kept.resource) == Bytes::copy_of(pattern(1000)));
  kept = {};
  CHECK(client.memory_usage().number_allocs == 0);
}

TEMPLATE_TEST_CASE("Resources of handles that are not the device's are refused with what is wrong", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  std::optional<OpenDevice<TestType>> device(std::in_place);
  {
    OpenDevice<HostBackend> there({}, TestType::elsewhere.index);
    CHECK(refusal(device->client(), upload(there.client(), {1})) == IoError::Kind::WrongDevice);
  }
  CHECK(refusal(device->client(), {}) == IoError::Kind::NotFound);
  Handle moved = upload(device->client(), {1});
  const Handle old = std::move(moved);
  CHECK(refusal(device->client(), moved) == IoError::Kind::NotFound);  // NOLINT(bugprone-use-after-move): the point
  const auto closed = device->client();
  device.reset();
  CHECK(kind_of<cox::CallError>([&] { (void)closed.get_resource(old); }) == cox::CallError::Kind::Closed);
  OpenDevice<TestType> again;
  CHECK(refusal(again.client(), old) == IoError::Kind::StaleHandle);
  again.client().sync().get();  // none of this is a failure of the stream
}

TEMPLATE_TEST_CASE("L12: a resource of memory that could not be had carries the cause", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device({.memory = TestType::min_memory, .threads = 1});
  const auto& client = device.client();
  const Handle failed = client.empty(TestType::min_memory + 1000);
  try {
    (void)client.get_resource(failed);
    FAIL("there is no such memory");
  } catch (const IoError& error) {
    CHECK(error.kind() == IoError::Kind::AllocationFailed);
    CHECK(kind_of<IoError>([&] { std::rethrow_exception(error.cause()); }) == IoError::Kind::BufferTooBig);
  }
  CHECK(kind_of<ServerError>([&] { client.sync().get(); }) == ServerError::Kind::Unhealthy);  // asking took nothing
}

#ifndef NDEBUG  // Only then does the server look: the keepers of the memory see to it that it does not happen.
TEMPLATE_TEST_CASE("A use of memory that was freed in spite of its handles is found out", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle data = client.create(Bytes::copy_of(pattern(1000)));
  client.sync().get();
  // What a server would do wrong that gave the memory back too early: the handle's buffer says where it was.
  client.device_handle().submit_blocking([&](typename TestType::Server&) {
    auto& resource = data.memory().memory().state().resource;
    const auto& actual = static_cast<const cox::DeviceBuffer&>(*resource);
    const auto nowhere = std::make_shared<cox::ReturnedBuffers>();
    REQUIRE(nowhere->close() == nullptr);  // so that the copy destroys itself
    auto copy = std::make_unique<cox::DeviceBuffer>(nowhere);
    copy->allocation = actual.allocation;
    copy->bytes = actual.bytes;
    copy->home = actual.home;
    resource.reset(copy.release());
  });
  CHECK(client.memory_usage().number_allocs == 0);
  CHECK(refusal(client, data) == IoError::Kind::StaleHandle);
  CHECK(mentions(message_of([&] { (void)client.read_one(data); }), {device.name(), "has been freed"}));
  const Handle next = client.create(Bytes::copy_of(pattern(1000, 1)));  // of the same place
  CHECK(refusal(client, data) == IoError::Kind::StaleHandle);
  CHECK(client.read_one(next) == Bytes::copy_of(pattern(1000, 1)));
}
#endif
