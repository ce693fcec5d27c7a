#include <coxswain/tools/cox/command_line.hpp>
#include <coxswain/tools/cox/process_start.hpp>

#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (const std::string why = cox::tools::prepare_process(); !why.empty()) {
    std::cerr << "cox: " << why << "\n";
    return static_cast<int>(cox::tools::ExitCode::NoDevice);
  }
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return cox::tools::exit_code_of_process(static_cast<int>(cox::tools::run(arguments, std::cout, std::cerr)));
}
