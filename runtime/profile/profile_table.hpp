#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace cox {

/// Durations added up by name. One thread at a time. Bounded: at most `names` rows; further names are counted only.
class ProfileTable {
 public:
  explicit ProfileTable(std::size_t names) : names_(names) {}

  /// Throws std::bad_alloc; then nothing has changed.
  void add(std::string_view name, std::chrono::nanoseconds duration);
  /// One that could not be kept.
  void count_omitted() noexcept { ++omitted_; }
  [[nodiscard]] bool empty() const noexcept { return rows_.empty() && omitted_ == 0; }
  /// As Profiler::table says.
  [[nodiscard]] std::string to_string() const;

 private:
  struct Sum {
    std::chrono::nanoseconds total{};
    std::size_t count = 0;
  };

  std::map<std::string, Sum, std::less<>> rows_;
  std::size_t names_;
  std::size_t omitted_ = 0;
};

/// "1.23 ms": the largest of the units ns, us, ms and s that leaves a number of at least 1, for readers.
[[nodiscard]] std::string rounded_duration(std::chrono::nanoseconds duration);

}  // namespace cox
