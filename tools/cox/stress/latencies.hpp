#pragma once

#include <coxswain/device_handle/base/histogram.hpp>
#include <coxswain/tools/cox/stress/operation.hpp>

#include <array>
#include <cstddef>

namespace cox::stress {

/// How long the calls of each operation took, in nanoseconds.
class Latencies {
 public:
  [[nodiscard]] Histogram& operator[](Operation operation) noexcept {
    return histograms_[static_cast<std::size_t>(operation)];
  }
  [[nodiscard]] const Histogram& operator[](Operation operation) const noexcept {
    return histograms_[static_cast<std::size_t>(operation)];
  }
  void merge(const Latencies& other) noexcept {
    for (std::size_t i = 0; i < operation_count; ++i) histograms_[i].merge(other.histograms_[i]);
  }

 private:
  std::array<Histogram, operation_count> histograms_;
};

}  // namespace cox::stress
