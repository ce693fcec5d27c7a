// What the operations of a model thread do: store buffers, the clock, fences, parking.
#include <coxswain/tests/model/engine.hpp>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <utility>

namespace cox::model {
namespace {

std::string format_value(std::uint64_t value) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), value < 0x1'0000'0000ULL ? "%llu" : "0x%llx",
                static_cast<unsigned long long>(value));
  return text.data();
}

}  // namespace

void Engine::update_mask(Thread& thread) {
  thread.buffer_mask = 0;
  for (const BufferedStore& entry : thread.buffer) thread.buffer_mask |= mask_of(entry.address);
}

bool Engine::buffers(const Thread& thread, const void* address) {
  return (thread.buffer_mask & mask_of(address)) != 0 &&
         std::any_of(thread.buffer.begin(), thread.buffer.end(),
                     [&](const BufferedStore& entry) { return entry.address == address; });
}

bool Engine::overlaps(unsigned left, unsigned right) const {
  return left != right && (threads_[left].buffer_mask & threads_[right].buffer_mask) != 0 &&
         std::any_of(threads_[left].buffer.begin(), threads_[left].buffer.end(),
                     [&](const BufferedStore& entry) { return buffers(threads_[right], entry.address); });
}

bool Engine::overlaps_any(unsigned thread) const {
  for (unsigned other = 0; other < thread_count_; ++other) {
    if (overlaps(thread, other)) return true;
  }
  return false;
}

void Engine::write(unsigned thread, void* address, std::size_t bytes, std::uint64_t value) {
  if (read_memory(address, bytes) == value) return;
  std::memcpy(address, &value, bytes);
  ++changes_;
  ++threads_[thread].own_changes;
  idle_releases_ = 0;
}

void Engine::flush(unsigned thread) {
  auto& buffer = threads_[thread].buffer;
  const BufferedStore entry = buffer.front();
  buffer.erase(buffer.begin());
  update_mask(threads_[thread]);
  if (any_freed_) check_alive(entry.address);
  write(thread, entry.address, entry.bytes, entry.value);
  if (tracing_)
    record("  hardware",
           "flush of " + threads_[thread].name + ": " + name_of(entry.address) + " = " + format_value(entry.value));
}

void Engine::flush_through(unsigned thread, const void* address) {
  for (bool done = false; !done;) {
    done = threads_[thread].buffer.front().address == address;
    flush(thread);
  }
}

void Engine::drain(unsigned thread) {
  while (!threads_[thread].buffer.empty()) flush(thread);
}

void Engine::check_alive(const void* address) {
  const auto* place = static_cast<const std::byte*>(address);
  for (const Block& block : blocks_) {
    if (block.freed && place >= block.begin && place < block.begin + block.bytes) fail("use of a freed block");
  }
}

std::uint64_t Engine::load(const void* address, std::size_t bytes) {
  if (!concurrent_) return read_memory(address, bytes);
  point(Kind::Load, address);
  const Thread& thread = threads_[static_cast<std::size_t>(current_)];
  const auto& buffer = thread.buffer;
  const auto newest = (thread.buffer_mask & mask_of(address)) == 0
                          ? buffer.rend()
                          : std::find_if(buffer.rbegin(), buffer.rend(),
                                         [&](const BufferedStore& entry) { return entry.address == address; });
  const std::uint64_t value = newest == buffer.rend() ? read_memory(address, bytes) : newest->value;
  if (tracing_) record("load " + name_of(address) + " -> " + format_value(value));
  return value;
}

void Engine::store(void* address, std::size_t bytes, std::uint64_t value, bool drains) {
  if (!concurrent_) {
    std::memcpy(address, &value, bytes);
    return;
  }
  const bool buffered = options_.store_buffers && !drains;
  point(buffered ? Kind::BufferedStore : Kind::Store, address);
  const auto self = static_cast<unsigned>(current_);
  if (buffered) {
    threads_[self].buffer.push_back({address, value, static_cast<std::uint8_t>(bytes)});
    threads_[self].buffer_mask |= mask_of(address);
  } else {
    drain(self);
    write(self, address, bytes, value);
  }
  if (tracing_) record((buffered ? "store " : "store now ") + name_of(address) + " = " + format_value(value));
}

std::uint64_t Engine::begin_read_modify_write(void* address, std::size_t bytes, const char* operation) {
  if (!concurrent_) return read_memory(address, bytes);
  point(Kind::ReadModifyWrite, address);
  drain(static_cast<unsigned>(current_));
  const std::uint64_t old = read_memory(address, bytes);
  if (tracing_) record(std::string(operation) + " " + name_of(address) + " -> " + format_value(old));
  return old;
}

void Engine::end_read_modify_write(void* address, std::size_t bytes, std::uint64_t value) {
  if (!concurrent_) {
    std::memcpy(address, &value, bytes);
    return;
  }
  write(static_cast<unsigned>(current_), address, bytes, value);
  if (tracing_) record("  leaves " + name_of(address) + " = " + format_value(value));
}

std::uint64_t Engine::now() {
  if (!concurrent_) return ++clock_;
  point(Kind::Now, nullptr);
  const bool neighbour = stamped_by_ >= 0 && stamped_by_ != current_ && stamped_step_ + 1 == steps_;
  const bool tied = options_.tied_stamps && neighbour && choose(2) == 1;
  if (!tied) ++clock_;
  stamped_by_ = current_;
  stamped_step_ = steps_;
  if (tracing_) record("now -> " + format_value(clock_));
  return clock_;
}

std::uint64_t Engine::now_early() {
  const std::uint64_t newest = now();
  if (!concurrent_) return newest;
  const std::uint64_t oldest = threads_[static_cast<std::size_t>(current_)].early_floor + 1;
  const std::uint64_t stamp = newest <= oldest ? newest : newest - choose(static_cast<unsigned>(newest - oldest + 1));
  if (tracing_) record("  read early: " + format_value(stamp));
  return stamp;
}

void Engine::full_barrier() {
  if (!concurrent_) return;
  point(Kind::FullBarrier, nullptr);
  drain(static_cast<unsigned>(current_));
  if (tracing_) record("full barrier");
}

void Engine::heavy_barrier() {
  if (!concurrent_) return;
  point(Kind::HeavyBarrier, nullptr);
  for (unsigned thread = 0; thread < thread_count_; ++thread) drain(thread);
  threads_[static_cast<std::size_t>(current_)].early_floor = clock_;
  if (tracing_) record("heavy barrier");
}

void Engine::pause() {
  if (!concurrent_) return;
  point(Kind::Pause, nullptr);
  Thread& thread = threads_[static_cast<std::size_t>(current_)];
  thread.released = false;
  thread.seen_changes = changes_ - thread.own_changes;
  if (tracing_) record("pause is over");
}

void Engine::park(const void* address, std::uint32_t expected) {
  if (!concurrent_) throw std::logic_error("park outside of a model thread would block for ever");
  point(Kind::Park, address);
  drain(static_cast<unsigned>(current_));
  const auto value = static_cast<std::uint32_t>(read_memory(address, sizeof(std::uint32_t)));
  if (tracing_)
    record("park on " + name_of(address) + " while " + format_value(expected) + ": it is " + format_value(value) +
           (value == expected ? ", blocks" : ""));
  if (value != expected) return;
  Thread& thread = threads_[static_cast<std::size_t>(current_)];
  thread.status = Status::Parked;
  thread.pending = {Kind::Park, address};
  hand_over();
  threads_[static_cast<std::size_t>(current_)].early_floor = clock_;
  if (tracing_) record("runs again");
}

void Engine::wake(const void* address, bool all) {
  if (!concurrent_) return;
  point(Kind::Wake, address);
  drain(static_cast<unsigned>(current_));
  std::array<unsigned, max_threads> waiters{};
  unsigned count = 0;
  for (unsigned index = 0; index < thread_count_; ++index) {
    if (threads_[index].status == Status::Parked && threads_[index].pending.address == address)
      waiters[count++] = index;
  }
  std::string woken;
  const unsigned only = count == 0 || all ? 0 : choose(count);
  for (unsigned index = 0; index < count; ++index) {
    if (!all && index != only) continue;
    Thread& thread = threads_[waiters[index]];
    thread.status = Status::Ready;
    thread.pending = {Kind::Resume, nullptr};
    if (tracing_) woken += " " + thread.name;
  }
  if (tracing_) record("wake " + name_of(address) + ":" + (woken.empty() ? " nobody" : woken));
}

}  // namespace cox::model
