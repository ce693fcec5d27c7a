#include <coxswain/servers/cuda/stream/stream_queue.hpp>

namespace cox::detail {

std::shared_ptr<HeldBytes> StreamQueue::held() {
  if (!held_.empty()) {
    std::vector<Bytes> bytes;
    bytes.reserve(held_.size());
    const auto together = std::make_shared<HeldBytes>();
    held_together_.push_back({held_.back().position, together});
    for (Held& held : held_) bytes.push_back(std::move(held.bytes));
    held_.clear();
    together->hold(std::move(bytes));
  }
  return held_together_.empty() ? nullptr : held_together_.back().bytes;
}

void StreamQueue::poll() noexcept {
  timeline_.poll();
  const std::uint64_t completed = timeline_.completed();
  for (; !held_together_.empty() && held_together_.front().position <= completed; held_together_.pop_front())
    held_together_.front().bytes->release();
  while (!held_.empty() && held_.front().position <= completed) held_.pop_front();
}

}  // namespace cox::detail
