#pragma once

#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/tools/cox/stress/random.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cox::stress {

using Words = std::vector<std::uint32_t>;

/// A buffer on a device and what it must hold once the work submitted so far is done. One client owns it at a time.
struct Buffer {
  Handle handle;
  Words expected;

  [[nodiscard]] std::size_t bytes() const noexcept { return expected.size() * sizeof(std::uint32_t); }
};

/// `count` words of seeded content.
[[nodiscard]] inline Words seeded_words(std::size_t count, Random& random) {
  Words words(count);
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random.next());
  return words;
}

}  // namespace cox::stress
