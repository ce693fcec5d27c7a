#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace cox::fuzz {

/// The operations of one program: how many there were, and the text of the last ones. One thread writes, any may read.
class History {
 public:
  History(std::uint64_t seed, std::size_t shown) : seed_(seed), lines_(shown) {}

  void begin(std::string text) {
    const std::lock_guard lock(mutex_);
    ++number_;
    lines_[number_ % lines_.size()] = std::to_string(number_) + " " + std::move(text);
  }
  /// Adds to the text of the current operation.
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    lines_[number_ % lines_.size()] += text;
  }
  [[nodiscard]] std::size_t number() const {
    const std::lock_guard lock(mutex_);
    return number_;
  }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  /// The seed, the number of the current operation, and the last operations, a line each.
  [[nodiscard]] std::string text() const {
    const std::lock_guard lock(mutex_);
    std::string all = "seed " + std::to_string(seed_) + ", operation " + std::to_string(number_) + "; the last:";
    for (std::size_t i = 1; i <= lines_.size(); ++i)
      if (const std::string& line = lines_[(number_ + i) % lines_.size()]; !line.empty()) all += "\n  " + line;
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::uint64_t seed_;
  std::size_t number_ = 0;          // guarded by mutex_, as the next
  std::vector<std::string> lines_;  // by number
};

}  // namespace cox::fuzz
