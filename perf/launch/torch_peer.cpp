#include <coxswain/perf/launch/torch_peer.hpp>

#include <coxswain/perf/harness/fresh_process.hpp>

#include <cstddef>
#include <stdexcept>
#include <vector>

namespace cox::perf {

Sample TorchPeer::next() {
  if (samples_.empty()) {
    const std::vector<double> numbers =
        numbers_from_program({python_, "perf/launch/torch_launch.py", std::to_string(rounds_), std::to_string(bursts_),
                              std::to_string(burst_)});
    for (std::size_t i = 0; i + 1 < numbers.size(); i += 2) samples_.push_back({numbers[i], numbers[i + 1]});
  }
  if (samples_.empty()) throw std::runtime_error("torch_launch.py printed no figures");
  Sample sample = std::move(samples_.front());
  samples_.pop_front();
  return sample;
}

}  // namespace cox::perf
