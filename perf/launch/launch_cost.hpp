#pragma once

#include <coxswain/perf/harness/spread.hpp>
#include <coxswain/perf/harness/stopwatch.hpp>
#include <coxswain/perf/harness/suite.hpp>

#include <vector>

namespace cox::perf {

/// Nanoseconds of a call on the calling thread, in bursts of `burst` that block nowhere: median and ninth tenth over
/// `bursts`. `before()` comes before each burst and `after()`, which lets the device come to rest, behind it; neither
/// is in the time.
template <class Before, class Call, class After>
Sample cost_in_bursts(unsigned bursts, unsigned burst, Before before, Call call, After after) {
  std::vector<double> taken;
  for (unsigned i = 0; i <= bursts; ++i) {
    before();
    const Stopwatch watch;
    for (unsigned n = 0; n < burst; ++n) call();
    const double each = watch.nanoseconds() / burst;
    after();
    if (i != 0) taken.push_back(each);  // the first warms up
  }
  return {quantile(taken, 0.5), quantile(taken, 0.9)};
}

/// Microseconds per call of `calls` calls and what waits for all of them.
template <class Call, class Finish>
Sample sustained(unsigned calls, Call call, Finish finish) {
  for (unsigned i = 0; i < calls / 20; ++i) call();
  finish();
  const Stopwatch watch;
  for (unsigned i = 0; i < calls; ++i) call();
  finish();
  return {watch.microseconds() / calls};
}

/// Microseconds of one `call()`, which waits for what it does: p50 and p99 of `calls`.
template <class Call>
Sample latency(unsigned calls, Call call) {
  for (unsigned i = 0; i < 50; ++i) call();
  std::vector<double> taken = microseconds_of_each(calls, call);
  return {quantile(taken, 0.5), quantile(taken, 0.99)};
}

}  // namespace cox::perf
