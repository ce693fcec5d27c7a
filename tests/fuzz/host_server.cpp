#include <coxswain/tests/fuzz/run_programs.hpp>
#include <coxswain/tests/fuzz/servers.hpp>

namespace cox::fuzz {

int run_on_host(const Options& options) {
  return run_programs<test::HostBackend>(options, {.undestroyed_objects = [] { return std::string(); }});
}

}  // namespace cox::fuzz
