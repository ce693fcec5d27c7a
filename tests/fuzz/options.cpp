#include <coxswain/tests/fuzz/options.hpp>

#include <charconv>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace cox::fuzz {
namespace {

std::uint64_t number_of(std::string_view option, std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size())
    throw std::invalid_argument(std::string(option) + ": '" + std::string(text) + "' is not a number");
  return number;
}

}  // namespace

std::string usage() {
  return "usage: fuzz [--seed N] [--operations N] [--length N] [--threads N] [--server host|cuda]\n"
         "            [--memory wide|tight] [--faults no|gpus|call] [--seconds N] [--patience N] [--shown N]\n"
         "Runs random programs over ComputeClient and compares every byte and every failure with a model.\n"
         "--faults gpus, with --server cuda: the GPUs fault at a random call of the driver. From then on calls may "
         "fail in\n"
         "any way, but no read may give wrong bytes, and each stream must report the fault. --faults call: one call "
         "fails,\n"
         "and the GPUs go on: no read may give wrong bytes, and all must be given back in the end.\n"
         "A difference or a hang prints the seed and the last operations; exit code 1.\n";
}

Options parse_options(int argc, const char* const* argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(std::string(option) + " needs a value");
    const std::string_view value = argv[i + 1];
    const auto number = [&] { return number_of(option, value); };
    if (option == "--seed") {
      options.seed = number();
    } else if (option == "--operations") {
      options.operations = number();
    } else if (option == "--length") {
      options.length = number();
    } else if (option == "--threads") {
      options.threads = number();
    } else if (option == "--seconds") {
      options.seconds = number();
    } else if (option == "--shown") {
      options.shown = number();
    } else if (option == "--patience") {
      options.patience = number();
    } else if (option == "--server" && (value == "host" || value == "cuda")) {
      options.server = value;
    } else if (option == "--memory" && (value == "wide" || value == "tight")) {
      options.tight = value == "tight";
    } else if (option == "--faults" && (value == "no" || value == "gpus" || value == "call")) {
      using enum Options::Faults;
      options.faults = value == "no" ? None : value == "gpus" ? Gpus : Call;
    } else {
      throw std::invalid_argument("unknown: " + std::string(option) + " " + std::string(value));
    }
  }
  if (options.faults != Options::Faults::None && options.server != "cuda")
    throw std::invalid_argument("--faults needs --server cuda");
  if (options.threads == 0 || options.length == 0 || options.shown == 0)
    throw std::invalid_argument("--threads, --length and --shown are at least 1");
  return options;
}

}  // namespace cox::fuzz
