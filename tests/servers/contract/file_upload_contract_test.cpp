#include <coxswain/tests/runtime/counted_allocation.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/runtime/error/server_error.hpp>

#include <exception>
#include <utility>
#include <vector>

using namespace cox::test;
using Catch::Matchers::ContainsSubstring;
using cox::Bytes;
using cox::Handle;
using cox::IoError;
using cox::ServerError;

TEMPLATE_TEST_CASE("Bytes of a file are uploaded, linear and padded, and never brought into memory", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const auto content = pattern(3'000'000);
  const TemporaryFile file(content);
  const Bytes whole = Bytes::from_file(file.path(), 0, content.size());
  REQUIRE(client.read_one(client.create(whole.share())) == Bytes::copy_of(content));
  const auto layout = client.create_tensor(whole.share(), {1000, 3000}, 1);
  REQUIRE(layout.strides != cox::Strides{3000, 1});
  REQUIRE(client.read_one_tensor(layout.copy_descriptor({1000, 3000}, 1)) == Bytes::copy_of(content));
  const Handle part = client.empty(100);
  client.write(part, whole.slice(1000, 100));
  REQUIRE(client.read_one(part) == Bytes::copy_of(content).slice(1000, 100));
  REQUIRE_FALSE(whole.is_resident());
}

TEMPLATE_TEST_CASE("L12: a file that cannot be read surfaces on the stream of the upload, with path, device and cause",
                   "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const TemporaryFile file(pattern(100));
  const Handle sane = client.create(Bytes::from_file(file.path(), 0, 100));
  client.sync().get();
  file.resize(50);
  const Handle data = client.create(Bytes::from_file(file.path(), 0, 100));
  try {
    client.sync().get();
    FAIL("uploaded what is not there");
  } catch (const ServerError& error) {
    REQUIRE(error.errors().size() == 1);
    REQUIRE(kind_of<IoError>([&] { std::rethrow_exception(error.cause()); }) == IoError::Kind::FileTooShort);
    REQUIRE_THAT(message_of([&] { std::rethrow_exception(error.cause()); }),
                 ContainsSubstring(file.path()) && ContainsSubstring("50 B") && ContainsSubstring(device.name()));
  }
  REQUIRE(client.read_one(sane) == Bytes::copy_of(pattern(100)));
  client.write(data, Bytes::copy_of(pattern(100)));  // the memory itself is as good as any
  REQUIRE(client.read_one(data) == Bytes::copy_of(pattern(100)));
}

TEMPLATE_TEST_CASE("Memory of a server is uploaded from where it is and given back once the device has it", "",
                   COX_BACKENDS) {
  AllocationCount count;
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle data = client.create(Bytes::from_allocation(CountedAllocation::of(count, pattern(100))));
  REQUIRE(client.read_one(data) == Bytes::copy_of(pattern(100)));
  REQUIRE(count.released == 1);
}

TEMPLATE_TEST_CASE("A share that is changed after its upload was queued does not change what arrives", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  typename TestType::Gate gate(client);
  launch(client, gate.hold());
  Bytes mine = Bytes::copy_of(pattern(100));
  const Handle data = client.create(mine.share());
  gate.wait_until_entered();
  mine.data()[0] = std::byte{0};
  gate.open();
  REQUIRE(client.read_one(data) == Bytes::copy_of(pattern(100)));
}
