#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/io_error.hpp>
#include <coxswain/servers/host/detail/host_memory.hpp>

#include <cstdint>
#include <memory>

using cox::Access;
using cox::IoError;
using cox::detail::HostBuffer;
using cox::detail::HostEvent;
using cox::detail::HostEvents;
using cox::detail::HostMemory;
using cox::detail::Timeline;
using cox::test::kind_of;
using cox::test::mentions;
using cox::test::message_of;

namespace {

std::shared_ptr<HostBuffer> allocate(HostMemory& memory, std::size_t size) {
  return memory.allocate(size, {}, std::source_location::current());
}

}  // namespace

TEST_CASE("Host memory accounts for what is in use, its padding and the peak") {
  const auto memory = std::make_shared<HostMemory>(4096, 512);
  auto first = allocate(*memory, 100);
  auto second = allocate(*memory, 512);
  REQUIRE(reinterpret_cast<std::uintptr_t>(first->data()) % 512 == 0);
  REQUIRE(memory->usage() == cox::MemoryUsage{2, 612, 412, 4096, 612, 4096});
  first.reset();
  REQUIRE(memory->usage() == cox::MemoryUsage{1, 512, 0, 4096, 612, 4096});
  second.reset();
  REQUIRE(memory->usage().bytes_in_use == 0);
  memory->cleanup();
  REQUIRE(memory->usage().bytes_reserved == 0);
}

TEST_CASE("Host memory refuses what is not there now, and what can never be there, with the figures") {
  const auto memory = std::make_shared<HostMemory>(4096, 512);
  REQUIRE(kind_of<IoError>([&] { allocate(*memory, 4097); }) == IoError::Kind::BufferTooBig);
  REQUIRE(kind_of<IoError>([&] { allocate(*memory, SIZE_MAX); }) == IoError::Kind::BufferTooBig);
  const auto most = allocate(*memory, 3000);
  REQUIRE(kind_of<IoError>([&] { allocate(*memory, 2000); }) == IoError::Kind::OutOfMemory);
  REQUIRE(mentions(message_of([&] { allocate(*memory, 2000); }), {"2000 B", "3072 B", "4096 B"}));
  REQUIRE(allocate(*memory, 1024)->size() == 1024);
  REQUIRE(memory->usage().number_allocs == 1);
}

TEST_CASE("A zero-size buffer takes no memory") {
  const auto memory = std::make_shared<HostMemory>(4096, 512);
  const auto all = allocate(*memory, 4096);
  REQUIRE(allocate(*memory, 0)->data() == nullptr);
}

TEST_CASE("L13: taking all storage leaves the buffers' owners harmless") {
  const auto memory = std::make_shared<HostMemory>(4096, 512);
  const auto first = allocate(*memory, 1);
  auto second = allocate(*memory, 1);
  memory->release_all();
  REQUIRE(memory->usage().bytes_reserved == 0);
  REQUIRE(first->data() == nullptr);
  second.reset();
  REQUIRE(memory->usage().number_allocs == 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("When the process itself has no memory, the account stays right") {
  const auto memory = std::make_shared<HostMemory>(std::size_t{1} << 63, 512);
  REQUIRE(kind_of<IoError>([&] { allocate(*memory, std::size_t{1} << 62); }) == IoError::Kind::OutOfHostMemory);
  REQUIRE(memory->usage().bytes_reserved == 0);
  REQUIRE(memory->usage().number_allocs == 0);
}
#endif

TEST_CASE("A use waits for exactly the uses on other streams that it conflicts with") {
  const auto memory = std::make_shared<HostMemory>(4096, 512);
  const auto buffer = allocate(*memory, 4);
  const auto a = std::make_shared<Timeline>();
  const auto b = std::make_shared<Timeline>();
  const auto c = std::make_shared<Timeline>();
  const auto use = [&](Access access, const std::shared_ptr<Timeline>& on, std::uint64_t value) {
    HostEvents waits;
    buffer->order_use(access, {on, value}, waits);
    return waits;
  };

  REQUIRE(use(Access::Write, a, 1).empty());
  REQUIRE(use(Access::Write, a, 2).empty());  // the same stream is in order anyway
  const HostEvents read_after_write = use(Access::Read, b, 1);
  REQUIRE(read_after_write.size() == 1);
  REQUIRE(read_after_write[0].timeline == a);
  REQUIRE(read_after_write[0].value == 2);
  REQUIRE(use(Access::Read, c, 1).size() == 1);  // readers wait for the writer only, not for each other
  const HostEvents write_after_read = use(Access::Write, a, 3);
  REQUIRE(write_after_read.size() == 2);
  const HostEvents write_after_write = use(Access::Write, b, 2);
  REQUIRE(write_after_write.size() == 1);
  REQUIRE(write_after_write[0].value == 3);
  b->advance();
  b->advance();
  REQUIRE(use(Access::Read, c, 2).empty());  // what is done needs no waiting
}
