// A differential fuzzer: random programs over ComputeClient against a model of every byte and every failure.
#include <coxswain/tests/fuzz/options.hpp>
#include <coxswain/tests/fuzz/servers.hpp>

#include <coxswain/device_handle/base/task_error.hpp>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string_view>

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::printf("%s", cox::fuzz::usage().c_str());
    return 0;
  }
  try {
    const cox::fuzz::Options options = cox::fuzz::parse_options(argc, argv);
    // Failures that no call has taken when a stream ends are expected here.
    cox::set_task_error_callback([](const cox::TaskError&) {});
    return options.server == "host" ? cox::fuzz::run_on_host(options) : cox::fuzz::run_on_cuda(options);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "%s\n%s", error.what(), cox::fuzz::usage().c_str());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz: %s\n", error.what());
    return 2;
  }
}
