#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace cox {

/// The sum of durations for each name. Not thread-safe. Bounded: at most `names` rows; durations of further names are
/// only counted.
class ProfileTable {
 public:
  explicit ProfileTable(std::size_t names) : names_(names) {}

  /// Adds a duration to the row of `name`. Throws std::bad_alloc; the table is then unchanged.
  void add(std::string_view name, std::chrono::nanoseconds duration);
  /// Counts a duration that could not be kept.
  void count_omitted() noexcept { ++omitted_; }
  [[nodiscard]] bool empty() const noexcept { return rows_.empty() && omitted_ == 0; }
  /// The text that Profiler::table describes.
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

/// Readable text such as "1.23 ms", in the largest of the units ns, us, ms and s that gives a value of at least 1.
[[nodiscard]] std::string rounded_duration(std::chrono::nanoseconds duration);

}  // namespace cox
