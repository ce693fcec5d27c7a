#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/handle/handle.hpp>

#include <utility>

using cox::test::mentions;
using cox::test::message_of;

using cox::Handle;

namespace {

Handle make_handle(std::size_t size) {
  return {cox::ManagedMemoryHandle(cox::ManagedMemory::create({}, size)), cox::StreamId{3}};
}

}  // namespace

TEST_CASE("Offsets of a handle accumulate") {
  const Handle handle = make_handle(100).offset_start(10).offset_end(20);
  REQUIRE(handle.size_in_used() == 70);
  const Handle inner = handle.offset_start(5).offset_end(65);
  REQUIRE(inner.size_in_used() == 0);
  REQUIRE(inner.offset_start() == 15);
  REQUIRE(inner.offset_end() == 85);
  REQUIRE(inner.binding().size_in_used() == 0);
  REQUIRE(handle.size_in_used() == 70);
}

TEST_CASE("An offset beyond the window is refused") {
  const Handle handle = make_handle(100).offset_end(90);
  REQUIRE_THROWS_AS(handle.offset_start(11), cox::IoError);
  REQUIRE(mentions(message_of([&] { (void)handle.offset_end(11); }), {"11 B", "10 B"}));
}

TEST_CASE("Turning a handle into a binding gives up its claim to be the only one") {
  Handle handle = make_handle(8);
  const Handle other = handle;
  REQUIRE_FALSE(other.can_mut());
  const cox::Binding binding = std::move(handle).binding();
  REQUIRE(other.can_mut());
  REQUIRE(binding.stream == cox::StreamId{3});
  REQUIRE(binding.memory == other.memory().memory());
}
