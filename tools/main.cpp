#include <coxswain/tools/cox/command_line.hpp>
#include <coxswain/tools/cox/process_start.hpp>

#ifdef COX_HAS_CUDA
#include <coxswain/servers/cuda/driver/gpu_fault.hpp>
#endif

#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (const std::string why = cox::tools::prepare_process(); !why.empty()) {
    std::cerr << "cox: " << why << "\n";
    return static_cast<int>(cox::tools::ExitCode::NoDevice);
  }
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto code = static_cast<int>(cox::tools::run(arguments, std::cout, std::cerr));
#ifdef COX_HAS_CUDA
  return cox::exit_code(code);
#else
  return code;
#endif
}
