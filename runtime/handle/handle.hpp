#pragma once

#include <coxswain/runtime/handle/binding.hpp>
#include <coxswain/runtime/handle/copy_descriptor.hpp>
#include <coxswain/runtime/handle/memory_failure.hpp>

#include <cstddef>
#include <optional>
#include <source_location>
#include <utility>

namespace cox {

/// A user's reference to device memory, or to a window of it. The client creates handles without a call to the device
/// thread. Copyable. Any thread. An operation on another stream than the handle's waits only for the pending accesses
/// that conflict with it. When the last handle is destroyed, the memory returns to the pool. If all pending accesses
/// are on one stream, that stream may reuse the memory at once; otherwise, and for other streams, it is reused when all
/// of them have completed (L11).
class Handle {
 public:
  using Site = std::source_location;

  Handle() noexcept = default;
  /// Refers to the whole of `memory`, which must not be empty.
  Handle(ManagedMemoryHandle memory, StreamId stream) noexcept
      : memory_(std::move(memory)), stream_(stream), size_(memory_.memory().size()) {}

  [[nodiscard]] const ManagedMemoryHandle& memory() const noexcept { return memory_; }
  /// The stream that the memory was allocated on.
  [[nodiscard]] StreamId stream() const noexcept { return stream_; }
  /// Bytes of the whole allocation.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Bytes of the window: what reads return and kernels access.
  [[nodiscard]] std::size_t size_in_used() const noexcept { return size_ - offset_start_ - offset_end_; }
  [[nodiscard]] std::size_t offset_start() const noexcept { return offset_start_; }
  [[nodiscard]] std::size_t offset_end() const noexcept { return offset_end_; }
  /// Whether no other handle refers to this memory, so that it can be modified in place.
  [[nodiscard]] bool can_mut() const noexcept { return memory_.can_mut(); }
  /// Why the contents of the allocation must not be used (L14), as far as it is known now: the error of the first
  /// failed operation that should have written it. std::nullopt if no operation on it has failed so far, or if it was
  /// overwritten or accepted since. Call it after a wait for the stream that wrote the memory. Does not block. An empty
  /// handle has no failure.
  [[nodiscard]] std::optional<MemoryFailure> failure() const {
    return memory_.memory() ? memory_.memory().failure() : std::nullopt;
  }

  /// The same memory without its first `bytes`, counted from this window. Throws IoError OutOfBounds.
  [[nodiscard]] Handle offset_start(std::size_t bytes, Site site = Site::current()) const&;
  [[nodiscard]] Handle offset_start(std::size_t bytes, Site site = Site::current()) &&;
  /// The same memory without its last `bytes`, counted from this window. Throws IoError OutOfBounds.
  [[nodiscard]] Handle offset_end(std::size_t bytes, Site site = Site::current()) const&;
  [[nodiscard]] Handle offset_end(std::size_t bytes, Site site = Site::current()) &&;

  /// A binding for an operation. It keeps the memory alive without being counted as a handle.
  [[nodiscard]] Binding binding() const& { return bind(memory_.reference()); }
  /// Converts the handle to a binding; the handle is empty afterwards.
  [[nodiscard]] Binding binding() && { return bind(std::move(memory_).into_memory()); }
  /// This window as a tensor, for tensor reads and writes.
  [[nodiscard]] CopyDescriptor copy_descriptor(Shape shape, Strides strides, std::size_t elem_size) const& {
    return {binding(), std::move(shape), std::move(strides), elem_size};
  }
  [[nodiscard]] CopyDescriptor copy_descriptor(Shape shape, Strides strides, std::size_t elem_size) && {
    return {std::move(*this).binding(), std::move(shape), std::move(strides), elem_size};
  }

 private:
  [[nodiscard]] Binding bind(ManagedMemory memory) const noexcept {
    return {std::move(memory), offset_start_, offset_end_, stream_};
  }
  void require_room(std::size_t bytes, const Site& site) const;

  ManagedMemoryHandle memory_;
  std::size_t offset_start_ = 0;
  std::size_t offset_end_ = 0;
  StreamId stream_;
  std::size_t size_ = 0;  // copy of memory().size(), whose cache line other threads write
};

}  // namespace cox
