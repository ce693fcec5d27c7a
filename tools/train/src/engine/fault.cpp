#include <engine/fault.hpp>

#include <csignal>
#include <ctime>

#include <cerrno>
#include <random>
#include <system_error>

namespace train {

std::chrono::nanoseconds random_time(std::chrono::milliseconds mean) {
  std::random_device seed;
  std::exponential_distribution<double> distribution(1.0 / static_cast<double>(mean.count()));
  std::mt19937 random(seed());
  return std::chrono::nanoseconds(1 + static_cast<std::int64_t>(1e6 * distribution(random)));
}

// The kernel sends the signal: no thread of this process has to run for it.
void kill_at_random(std::chrono::milliseconds mean) {
  const auto delay = random_time(mean);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(delay);
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer{};
  const itimerspec once{.it_interval = {},
                        .it_value = {.tv_sec = seconds.count(), .tv_nsec = (delay - seconds).count()}};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &once, nullptr) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot set a timer");
}

}  // namespace train
