#pragma once

namespace cox::trace::detail {

/// Nested ranges of the calling thread in the NVTX domain "coxswain". Do nothing in a build without NVTX.
struct Nvtx {
  static const bool available;
  static void push(const char* name) noexcept;
  static void pop() noexcept;
};

}  // namespace cox::trace::detail
