#include <coxswain/servers/host/detail/host_memory.hpp>

#include <coxswain/runtime/io_error.hpp>
#include <coxswain/runtime/shape.hpp>

#include <algorithm>
#include <new>
#include <utility>

namespace cox::detail {

std::shared_ptr<HostBuffer> HostMemory::allocate(std::size_t size, const Place& place, std::source_location site) {
  auto buffer = std::make_shared<HostBuffer>(shared_from_this(), size);
  const auto reserved = checked_round_up(size, alignment_);
  if (!reserved || *reserved > capacity_)
    throw IoError::buffer_too_big(place, {.requested = size, .in_use = 0, .capacity = capacity_}, site);
  if (size == 0) return buffer;
  buffer->reserved_ = *reserved;
  account(*buffer, place, site);
  buffer->data_ = static_cast<std::byte*>(::operator new(*reserved, std::align_val_t{alignment_}, std::nothrow));
  if (buffer->data_ == nullptr)
    throw IoError::out_of_host_memory(*reserved, site);  // The buffer gives its account back.
  return buffer;
}

void HostMemory::account(HostBuffer& buffer, const Place& place, std::source_location site) {
  const std::lock_guard lock(mutex_);
  if (buffer.reserved_ > capacity_ - usage_.bytes_reserved) {
    buffer.reserved_ = 0;
    throw IoError::out_of_memory(
        place, {.requested = buffer.size_, .in_use = usage_.bytes_reserved, .capacity = capacity_}, site);
  }
  usage_.number_allocs += 1;
  usage_.bytes_in_use += buffer.size_;
  usage_.bytes_padding += buffer.reserved_ - buffer.size_;
  usage_.bytes_reserved += buffer.reserved_;
  usage_.peak_bytes_in_use = std::max(usage_.peak_bytes_in_use, usage_.bytes_in_use);
  usage_.peak_bytes_reserved = std::max(usage_.peak_bytes_reserved, usage_.bytes_reserved);
  buffer.next_ = first_;
  if (first_ != nullptr) first_->previous_ = &buffer;
  first_ = &buffer;
}

MemoryUsage HostMemory::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

void HostMemory::release_all() noexcept {
  for (;;) {
    std::byte* storage = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (first_ == nullptr) return;
      storage = take_storage(*first_);
    }
    ::operator delete(storage, std::align_val_t{alignment_});
  }
}

void HostMemory::release(HostBuffer& buffer) noexcept {
  std::byte* storage = nullptr;
  {
    const std::lock_guard lock(mutex_);
    storage = take_storage(buffer);
  }
  ::operator delete(storage, std::align_val_t{alignment_});
}

std::byte* HostMemory::take_storage(HostBuffer& buffer) noexcept {
  if (buffer.reserved_ == 0) return nullptr;
  usage_.number_allocs -= 1;
  usage_.bytes_in_use -= buffer.size_;
  usage_.bytes_padding -= buffer.reserved_ - buffer.size_;
  usage_.bytes_reserved -= buffer.reserved_;
  (buffer.previous_ != nullptr ? buffer.previous_->next_ : first_) = buffer.next_;
  if (buffer.next_ != nullptr) buffer.next_->previous_ = buffer.previous_;
  buffer.previous_ = buffer.next_ = nullptr;
  buffer.reserved_ = 0;
  return std::exchange(buffer.data_, nullptr);
}

void HostBuffer::order_use(Access access, const HostEvent& use, HostEvents& waits) {
  const auto must_wait = [&](const HostEvent& event) { return event.timeline != use.timeline && !event.reached(); };
  if (must_wait(writer_)) waits.push_back(writer_);
  if (access == Access::Write) {
    for (const HostEvent& reader : readers_)
      if (must_wait(reader)) waits.push_back(reader);
    readers_.clear();
    writer_ = use;
    return;
  }
  // Keep the latest reader of each stream, and forget those that are done.
  HostEvents remaining;
  for (const HostEvent& reader : readers_)
    if (must_wait(reader)) remaining.push_back(reader);
  remaining.push_back(use);
  readers_ = std::move(remaining);
}

}  // namespace cox::detail
