#include <coxswain/tools/cox/stress/progress.hpp>

#include <coxswain/tools/cox/byte_text.hpp>

#include <array>
#include <cstdio>

namespace cox::stress {

std::string to_string(const Progress& progress) {
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(), "%5.0f s %11llu operations %8.0f/s queued %5zu %9s faults %llu",
                progress.seconds, static_cast<unsigned long long>(progress.operations), progress.rate, progress.depth,
                tools::short_byte_count(progress.rss_bytes).c_str(), static_cast<unsigned long long>(progress.faults));
  return text.data();
}

}  // namespace cox::stress
