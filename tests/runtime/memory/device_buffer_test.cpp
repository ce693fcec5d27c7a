#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/memory/device_buffer.hpp>

#include <memory>
#include <set>
#include <thread>
#include <vector>

using cox::DeviceBuffer;
using cox::ReturnedBuffers;

TEST_CASE("Buffers that are dropped on many threads come back, each once", "[memory]") {
  constexpr std::size_t threads = 4;
  constexpr std::size_t each = 5'000;
  const auto returned = std::make_shared<ReturnedBuffers>();
  std::vector<std::thread> clients;
  for (std::size_t i = 0; i < threads; ++i)
    clients.emplace_back([&returned] {
      for (std::size_t n = 0; n < each; ++n) (new DeviceBuffer(returned))->release();
    });
  std::set<DeviceBuffer*> seen;
  while (seen.size() < threads * each) {
    for (DeviceBuffer* buffer = returned->take_all(); buffer != nullptr; buffer = buffer->next_returned)
      REQUIRE(seen.insert(buffer).second);
  }
  for (std::thread& client : clients) client.join();
  REQUIRE(returned->take_all() == nullptr);
  for (DeviceBuffer* buffer : seen) delete buffer;
}

TEST_CASE("L13: what is dropped after the end of the device destroys itself", "[memory]") {
  const auto returned = std::make_shared<ReturnedBuffers>();
  auto* const before = new DeviceBuffer(returned);
  auto* const after = new DeviceBuffer(returned);
  REQUIRE(returned.use_count() == 3);
  before->release();
  REQUIRE(returned->close() == before);
  after->release();
  REQUIRE(returned.use_count() == 2);
  delete before;
  REQUIRE(returned.use_count() == 1);
}
