#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/runtime/buffer/recorded_work.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <utility>

using namespace cox;
using namespace cox::test;

namespace {

using Work = RecordedWork<UniqueFunction<void()>, UniqueFunction<void()>>;

struct RecordingFixture {
  RecordingFixture() {
    for (ManagedMemory& memory : memories) {
      memory = ManagedMemory::create({}, 64);
      memory.state().resource.reset(new DeviceBuffer(returned));
    }
  }
  RecordingFixture(const RecordingFixture&) = delete;
  RecordingFixture& operator=(const RecordingFixture&) = delete;
  ~RecordingFixture() {
    memories = {};
    for (DeviceBuffer* buffer = returned->close(); buffer != nullptr;)
      delete std::exchange(buffer, buffer->next_returned);
  }
  DeviceBuffer& buffer(std::size_t i) const { return static_cast<DeviceBuffer&>(*memories[i].state().resource); }
  BufferUse use(std::size_t i, Access access) const { return {&buffer(i), access, memories[i]}; }
  UniqueFunction<void()> say(char what) {
    return [this, what] { said += what; };
  }
  std::size_t given_back() const {
    std::size_t count = 0;
    for (DeviceBuffer* buffer = returned->take_all(); buffer != nullptr; ++count)
      delete std::exchange(buffer, buffer->next_returned);
    return count;
  }

  std::shared_ptr<ReturnedBuffers> returned = std::make_shared<ReturnedBuffers>();
  std::array<ManagedMemory, 3> memories;
  std::string said;
};

void replay(Work& work) {
  for (Work::Part& part : work.parts()) {
    for (auto& step : part.steps) step();
    if (part.replay_callback) part.replay_callback();
  }
}

}  // namespace

TEST_CASE("Recorded work is replayed in its order, replay callbacks in their place, as often as one likes") {
  RecordingFixture f;
  Work work;
  replay(work);
  work.add({}, f.say('a'));
  work.add({}, f.say('b'));
  work.add_replay_callback(f.say('1'));
  work.add_replay_callback(f.say('2'));
  work.add({}, f.say('c'));
  CHECK(f.said.empty());
  replay(work);
  replay(work);
  CHECK(f.said == "ab12cab12c");
  REQUIRE(work.parts().size() == 3);
  CHECK(work.parts()[1].steps.empty());
  CHECK_FALSE(work.parts()[2].replay_callback);
}

TEST_CASE("Each part of recorded work uses each buffer once, as written if any of its steps writes it") {
  RecordingFixture f;
  Work work;
  work.add({f.use(0, Access::Read), f.use(1, Access::Write)}, f.say('a'));
  work.add({f.use(0, Access::Write), f.use(1, Access::Read)}, f.say('b'));
  work.add_replay_callback(f.say('1'));
  work.add({f.use(0, Access::Read)}, f.say('c'));
  const auto& parts = work.parts();
  REQUIRE(parts[0].uses.size() == 2);
  CHECK(parts[0].uses[0].buffer == &f.buffer(0));
  CHECK(parts[0].uses[0].access == Access::Write);
  CHECK(parts[0].uses[1].access == Access::Write);
  REQUIRE(parts[1].uses.size() == 1);
  CHECK(parts[1].uses[0].access == Access::Read);
}

TEST_CASE("L11: recorded work keeps the memory of its steps, and what it is told to keep") {
  RecordingFixture f;
  {
    Work work;
    work.add({f.use(0, Access::Read)}, f.say('a'));
    work.add_replay_callback(f.say('1'));
    work.keep(f.memories[1]);
    f.memories = {};
    CHECK(f.given_back() == 1);  // the third, which nobody has told it of
  }
  CHECK(f.given_back() == 2);
}

// With the k-th allocation of add() failing, for k = 0, 1, ... until none does.
TEST_CASE("A step that could not be recorded for want of memory can be recorded again, with each of its buffers") {
  RecordingFixture f;
  const BufferUses uses{f.use(0, Access::Read), f.use(1, Access::Write), f.use(2, Access::Read)};
  int failures = 0;
  for (bool failed = true; failed;) {
    Work work;
    auto step = f.say('a');
    allocations_until_failure = failures;
    try {
      work.add(uses, std::move(step));
      failed = false;
    } catch (const std::bad_alloc&) {
      ++failures;
    }
    allocations_until_failure = -1;
    if (failed) {
      CHECK(work.parts()[0].steps.empty());
      work.add(uses, f.say('a'));
    }
    const auto& part = work.parts()[0];
    REQUIRE(part.uses.size() >= 3);  // the attempt that failed may have left one of its uses
    for (const BufferUse& use : uses) {
      const std::size_t place = part.use_index.at(use.buffer);
      REQUIRE(place < part.uses.size());
      const BufferUse& noted = part.uses[place];
      CHECK(noted.buffer == use.buffer);
      CHECK(noted.access == use.access);
    }
    CHECK(part.steps.size() == 1);
  }
  CHECK(failures >= 4);  // the memory, the uses, the places and the step
}
