#include <coxswain/servers/host/detail/host_memory.hpp>

#include <coxswain/runtime/io_error.hpp>

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <new>
#include <string>
#include <utility>

namespace cox::detail {

namespace {

// A thousandth of the memory, so that small devices can be full to the last bytes and large ones are mapped in few
// steps.
std::size_t granularity_of(std::size_t capacity) noexcept {
  return std::clamp<std::size_t>(std::bit_floor(capacity / 1024), 4096, std::size_t{2} << 20U);
}

// Eight times the memory; where the memory itself is beyond all bounds, no more than that.
std::size_t address_space_of(std::size_t capacity) noexcept {
  constexpr std::size_t plenty = std::size_t{1} << 44U;
  return capacity < plenty / 8 ? 8 * capacity : std::max(capacity, plenty);
}

IoError out_of_memory(const Place& place, std::size_t size, const MemoryReport& report, std::source_location site) {
  const IoError::Sizes sizes{
      .requested = size, .in_use = report.usage.bytes_in_use + report.usage.bytes_padding, .capacity = report.capacity};
  const std::string what = IoError::out_of_memory(place, sizes, site).what();
  return {IoError::Kind::OutOfMemory, what + "; " + to_string(report), site, nullptr, sizes};
}

std::byte* pointer(MemoryAddress address) noexcept {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}

}  // namespace

HostMemory::HostMemory(std::size_t capacity, std::size_t alignment)
    : capacity_(capacity),
      storage_(granularity_of(capacity)),
      pool_(storage_, clock_,
            {.alignment = alignment, .capacity = capacity, .address_space = address_space_of(capacity)}) {}

std::shared_ptr<HostBuffer> HostMemory::allocate(std::size_t size, const Place& place, std::source_location site) {
  auto buffer = std::make_shared<HostBuffer>(shared_from_this(), size);
  if (size == 0) return buffer;
  if (size > capacity_)
    throw IoError::buffer_too_big(place, {.requested = size, .in_use = 0, .capacity = capacity_}, site);
  const std::lock_guard lock(mutex_);
  try {
    if (const auto allocation = pool_.allocate(size, no_stream, {site.file_name(), site.line()})) {
      buffer->allocation_ = *allocation;
    } else {
      throw out_of_memory(place, size, pool_.report(), site);
    }
  } catch (const std::bad_alloc&) {
    throw IoError::out_of_host_memory(size, site);
  }
  buffer->data_ = pointer(buffer->allocation_.address);
  ASAN_UNPOISON_MEMORY_REGION(buffer->data_, size);
  buffer->next_ = first_;
  if (first_ != nullptr) first_->previous_ = buffer.get();
  first_ = buffer.get();
  return buffer;
}

MemoryUsage HostMemory::usage() const {
  const std::lock_guard lock(mutex_);
  return pool_.usage();
}

MemoryReport HostMemory::report() const {
  const std::lock_guard lock(mutex_);
  return pool_.report();
}

void HostMemory::cleanup() {
  const std::lock_guard lock(mutex_);
  pool_.cleanup();
}

void HostMemory::release_all() noexcept {
  const std::lock_guard lock(mutex_);
  while (first_ != nullptr) take_storage(*first_);
  pool_.cleanup();
}

void HostMemory::release(HostBuffer& buffer) noexcept {
  const std::lock_guard lock(mutex_);
  take_storage(buffer);
}

void HostMemory::take_storage(HostBuffer& buffer) noexcept {
  if (buffer.data_ == nullptr) return;
  ASAN_POISON_MEMORY_REGION(buffer.data_, buffer.allocation_.size);  // a use after this is a bug of ours
  pool_.free(buffer.allocation_, {});
  (buffer.previous_ != nullptr ? buffer.previous_->next_ : first_) = buffer.next_;
  if (buffer.next_ != nullptr) buffer.next_->previous_ = buffer.previous_;
  buffer.previous_ = buffer.next_ = nullptr;
  buffer.data_ = nullptr;
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
