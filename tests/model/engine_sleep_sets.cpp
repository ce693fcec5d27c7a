// Which transitions depend on each other, so that of orders that make no difference one is run.
#include <coxswain/tests/model/engine.hpp>

#include <algorithm>
#include <bit>

namespace cox::model {
namespace {

/// Pseudo addresses of what is shared but is not memory.
constexpr std::uint64_t clock_word = 0;
constexpr std::uint64_t spurious_word = 0;

}  // namespace

void Engine::footprint(Transition transition, Footprint& print) const {
  const unsigned index = thread_of(transition);
  const Thread& thread = threads_[index];
  print.read = nullptr;
  print.writes.clear();
  print.buffers_store = print.drains_all = print.conflicts_with_all = false;
  if (is_flush(transition)) {
    print.writes.push_back(thread.buffer.front().address);
    return;
  }
  const auto writes_buffered = [&](const Thread& owner) {
    for (const BufferedStore& entry : owner.buffer) print.writes.push_back(entry.address);
  };
  const Operation& operation = thread.pending;
  if (thread.status == Status::Parked) {
    print.writes.push_back(operation.address);
    print.writes.push_back(&spurious_word);
    return;
  }
  switch (operation.kind) {
    case Kind::Load:
      if (!buffers(thread, operation.address)) print.read = operation.address;
      break;
    case Kind::BufferedStore: print.buffers_store = true; break;
    case Kind::Store:
    case Kind::ReadModifyWrite:
    case Kind::Park:
    case Kind::Wake:
      print.writes.push_back(operation.address);
      writes_buffered(thread);
      break;
    case Kind::FullBarrier: writes_buffered(thread); break;
    case Kind::HeavyBarrier:
      print.drains_all = true;
      for (std::size_t other = 0; other < thread_count_; ++other) writes_buffered(threads_[other]);
      break;
    case Kind::Now: print.writes.push_back(&clock_word); break;
    case Kind::Pause:
    case Kind::Free: print.conflicts_with_all = true; break;
    case Kind::Resume: break;
  }
}

bool Engine::dependent(const Footprint& left, const Footprint& right) {
  const auto writes = [](const Footprint& print, const void* address) {
    return std::find(print.writes.begin(), print.writes.end(), address) != print.writes.end();
  };
  if (left.conflicts_with_all || right.conflicts_with_all) return true;
  if (left.drains_all && (right.buffers_store || right.drains_all)) return true;
  if (right.drains_all && left.buffers_store) return true;
  if (left.read != nullptr && writes(right, left.read)) return true;
  if (right.read != nullptr && writes(left, right.read)) return true;
  return std::any_of(left.writes.begin(), left.writes.end(),
                     [&](const void* address) { return writes(right, address); });
}

/// After `chosen`, those stay asleep that were asleep or tried before it here and that `chosen` does not depend on.
void Engine::fall_asleep(Transition chosen, std::uint32_t tried) {
  std::uint32_t candidates = sleeping_ | tried;
  sleeping_ = 0;
  if (candidates == 0) return;
  footprint(chosen, scratch_chosen_);
  for (; candidates != 0; candidates &= candidates - 1) {
    const auto other = static_cast<Transition>(std::countr_zero(candidates));
    footprint(other, scratch_other_);
    if (!dependent(scratch_chosen_, scratch_other_)) sleeping_ |= 1U << other;
  }
}

}  // namespace cox::model
