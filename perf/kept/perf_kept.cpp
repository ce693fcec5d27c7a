// Without a supervisor as it is; under `cox run -- perf_kept` with the values of each commit sent to one.
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/kept/kept_steps.hpp>
#include <coxswain/runtime/base/byte_count.hpp>

#include <cstddef>

int main(int argc, char** argv) {
  using namespace cox::perf;
  const Options options =
      parse_options(argc, argv, "Measures what updates of kept memory cost where nothing fails, on a host device.");
  Suite suite(options, "kept");
  struct Size {
    std::size_t bytes;
    std::size_t steps;
  };
  for (const Size size : {Size{4096, 20'000}, Size{std::size_t{1} << 20U, 4'000}, Size{std::size_t{64} << 20U, 64}}) {
    const std::size_t steps = options.quick ? size.steps / 10 + 1 : size.steps;
    const auto with = [=](const StepOptions& how) { return [=] { return time_of_steps(size.bytes, steps, how); }; };
    suite.add({.figure = "F23",
               .name = "a step that writes " + cox::exact_byte_count(size.bytes) + " of state",
               .metrics = {{"", "ns per step"}},
               .contenders = {{"kept", with({.kept = true}), "in place"},
                              {"plain", with({}), "not kept"},
                              {"two_copies", with({.kept = true, .mode = cox::KeptMode::Double})},
                              {"checksums", with({.kept = true, .checksum_every = 1}), "of each commit"},
                              {"checksums_of_64th", with({.kept = true, .checksum_every = 64})}},
               .minus = "plain"});
  }
  return suite.run();
}
