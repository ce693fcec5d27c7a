#pragma once

#include <coxswain/runtime/handle/binding.hpp>
#include <coxswain/runtime/handle/copy_descriptor.hpp>
#include <coxswain/runtime/handle/memory_failure.hpp>

#include <cstddef>
#include <optional>
#include <source_location>
#include <utility>

namespace cox {

/// A user's reference to device memory, or to a window of it. Minted by the client without asking the device. Copyable
/// and usable from any thread; using it on another stream than its own makes that stream wait for exactly what it must.
/// After the last handle is gone the memory is the stream's again at once, and anybody else's when all work that was
/// given it has run (L11).
class Handle {
 public:
  using Site = std::source_location;

  Handle() noexcept = default;
  /// The whole of `memory`, which is not empty.
  Handle(ManagedMemoryHandle memory, StreamId stream) noexcept
      : memory_(std::move(memory)), stream_(stream), size_(memory_.memory().size()) {}

  [[nodiscard]] const ManagedMemoryHandle& memory() const noexcept { return memory_; }
  /// The stream that the memory was allocated on.
  [[nodiscard]] StreamId stream() const noexcept { return stream_; }
  /// Bytes of the whole allocation.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Bytes of the window: what reads give and kernels see.
  [[nodiscard]] std::size_t size_in_used() const noexcept { return size_ - offset_start_ - offset_end_; }
  [[nodiscard]] std::size_t offset_start() const noexcept { return offset_start_; }
  [[nodiscard]] std::size_t offset_end() const noexcept { return offset_end_; }
  /// No other handle refers to this memory, so that changing it in place is nobody else's business.
  [[nodiscard]] bool can_mut() const noexcept { return memory_.can_mut(); }
  /// Why the contents of the allocation are not to be used (L14), as far as it is known now: what the first operation
  /// failed with that should have written it. Nothing: no operation on it has failed so far, or it was written anew, or
  /// accepted, since. Call it after a wait for the stream that wrote it. Does not block; empty handles have no failure.
  [[nodiscard]] std::optional<MemoryFailure> failure() const {
    return memory_.memory() ? memory_.memory().failure() : std::nullopt;
  }

  /// The same memory without its first `bytes`, counted from this window. Throws IoError OutOfBounds.
  [[nodiscard]] Handle offset_start(std::size_t bytes, Site site = Site::current()) const&;
  [[nodiscard]] Handle offset_start(std::size_t bytes, Site site = Site::current()) &&;
  /// The same memory without its last `bytes`, counted from this window. Throws IoError OutOfBounds.
  [[nodiscard]] Handle offset_end(std::size_t bytes, Site site = Site::current()) const&;
  [[nodiscard]] Handle offset_end(std::size_t bytes, Site site = Site::current()) &&;

  /// For an operation: keeps the memory alive without being counted as a handle.
  [[nodiscard]] Binding binding() const& { return bind(memory_.reference()); }
  /// Gives the handle up; it is empty afterwards.
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
  std::size_t size_ = 0;  // as the memory has it, which lies on a line that other threads write
};

}  // namespace cox
