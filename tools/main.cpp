#include <coxswain/tools/cox/command_line.hpp>

#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return static_cast<int>(cox::tools::run(arguments, std::cout, std::cerr));
}
