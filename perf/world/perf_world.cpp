// Each sample starts the processes of a world on this host: this program again, for one sample.
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/world/release_latency.hpp>
#include <coxswain/perf/world/world_processes.hpp>
#include <coxswain/perf/world/world_sums.hpp>
#include <coxswain/runtime/base/byte_count.hpp>

#ifdef COX_HAS_CUDA
#include <coxswain/perf/world/cuda/gpu_sums.hpp>
#endif

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace {

using namespace cox::perf;

constexpr std::size_t in_a_stream = 1000;

void add_release(Suite& suite, std::size_t times) {
  const auto release = [=](std::uint16_t own) {
    return [=] {
      return sample_of_world(2, own, [=](PlaceOfSample place) { return release_one_at_a_time(place, times); });
    };
  };
  suite.add({.figure = "F21",
             .name = "release of an operation of two processes, one at a time",
             .metrics = {{"p50", "us"}, {"p99", "us"}},
             .contenders = {{"two_processes", release(1), "in process 1"},
                            {"leader", release(0), "in process 0, which leads the world"},
                            {"round_trip", [=] { return round_trip_of_bytes(times); },
                             "of 64 bytes over loopback, between two threads"}},
             .fresh_process = true});
  suite.add({.figure = "F21",
             .name = "release of 1000 operations of two processes, in a stream",
             .metrics = {{"each", "us"}},
             .contenders = {{"two_processes",
                             [=] {
                               return sample_of_world(2, 1, [=](PlaceOfSample place) {
                                 return release_in_a_stream(place, in_a_stream, times / 500 + 1);
                               });
                             }}},
             .fresh_process = true});
}

using OneSample = std::function<Sample(PlaceOfSample)>;

std::vector<Contender> in_two_and_in_one(const OneSample& sample) {
  return {{"two_processes", [=] { return sample_of_world(2, 0, sample); }, "one device each"},
          {"one_process", [=] { return sample_of_world(1, 0, sample); }, "with both devices"}};
}

void add_sums(Suite& suite, std::size_t bytes, std::size_t times) {
  suite.add(
      {.figure = "F21",
       .name = "all_reduce of " + cox::exact_byte_count(bytes) + " over 2 host devices, one at a time",
       .metrics = {{"p50", "us"}, {"p99", "us"}},
       .contenders = in_two_and_in_one([=](PlaceOfSample place) { return sums_one_at_a_time(place, bytes, times); }),
       .fresh_process = true});
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse_options(
      argc, argv, "Measures what collectives between processes cost: on host devices over loopback, and on two GPUs.");
  Suite suite(options, "two_processes");
  const std::size_t share = options.quick ? 10 : 1;
  add_release(suite, 10'000 / share);
  add_sums(suite, 8, 4000 / share);
  suite.add({.figure = "F21",
             .name = "all_reduce of 8 bytes over 2 host devices, 1000 in a stream",
             .metrics = {{"each", "us"}},
             .contenders = in_two_and_in_one(
                 [=](PlaceOfSample place) { return sums_in_a_stream(place, 8, in_a_stream, 20 / share); }),
             .fresh_process = true});
  add_sums(suite, std::size_t{1} << 20U, 200 / share);
  add_sums(suite, std::size_t{16} << 20U, 40 / share);
#ifdef COX_HAS_CUDA
  add_gpu_sums(suite, options);
#endif
  return suite.run();
}
