#include <engine/progress.hpp>

#include <cstdio>

namespace train {

void Progress::add(const StepTimes& times) {
  ++count_;
  sum_.step += times.step;
  sum_.not_hidden += times.not_hidden;
  sum_.measured = times.measured;
}

void Progress::line(std::size_t step, float loss, const cox::MemoryUsage& memory) {
  const double count = static_cast<double>(count_);
  const double seconds = sum_.step.count() / count;
  std::printf("step %5zu  loss %.4f  %8.0f tokens/s  %7.2f ms/step", step, static_cast<double>(loss),
              static_cast<double>(tokens_) / seconds, 1e3 * seconds);
  if (sum_.measured) std::printf("  communication not hidden %.2f ms", 1e3 * sum_.not_hidden.count() / count);
  std::printf("  memory %.1f MB, peak %.1f MB\n", static_cast<double>(memory.bytes_in_use) / 1e6,
              static_cast<double>(memory.peak_bytes_reserved) / 1e6);
  std::fflush(stdout);
  count_ = 0;
  sum_ = {};
}

}  // namespace train
