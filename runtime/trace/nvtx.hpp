#pragma once

namespace cox::trace::detail {

/// Ranges of the calling thread in NVTX's domain "coxswain"; they nest. Without NVTX at build time nothing happens.
struct Nvtx {
  static const bool available;
  static void push(const char* name) noexcept;
  static void pop() noexcept;
};

}  // namespace cox::trace::detail
