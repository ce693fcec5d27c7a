#include <coxswain/perf/recovery/recovery_options.hpp>

#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#ifdef COX_HAS_CUDA
#include <coxswain/servers/cuda/device/cuda_devices.hpp>
#endif

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <set>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace cox::perf {
namespace {

constexpr std::uint16_t most_host_devices = 64;
constexpr std::array causes{"kill", "trap", "address", "assert", "reload"};

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

std::size_t bytes_of(const char* option, const std::string& text) {
  const auto bytes = parse_byte_count(text);
  if (!bytes || *bytes == 0 || *bytes % sizeof(std::uint64_t) != 0)
    throw std::invalid_argument(std::string(option) + ": '" + text + "' is no size such as 64MiB, a multiple of 8");
  return *bytes;
}

Cause cause_of(const std::string& word) {
  for (std::size_t i = 0; i < causes.size(); ++i)
    if (word == causes[i]) return static_cast<Cause>(i);
  throw std::invalid_argument("--causes: '" + word + "' is none of kill, trap, address, assert, reload");
}

std::invalid_argument wrong_devices(const std::string& text) {
  return std::invalid_argument("--devices: '" + text + "' is none of host:COUNT, cuda, cuda:0,1");
}

std::uint16_t number_of(const std::string& text, const std::string& word) {
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) throw wrong_devices(text);
  return number;
}

// "host:COUNT", "cuda" or "cuda:INDEX,INDEX".
std::vector<DeviceId> devices_of(const std::string& text) {
  std::vector<DeviceId> devices;
  if (text.starts_with("host:")) {
    const std::uint16_t count = number_of(text, text.substr(5));
    if (count == 0 || count > most_host_devices) throw wrong_devices(text);
    set_host_device_count(count);
    for (std::uint16_t i = 0; i < count; ++i) devices.push_back({.type = host_device_type, .index = i});
    return devices;
  }
#ifdef COX_HAS_CUDA
  if (text == "cuda") devices = enumerate_cuda_devices();
  if (text.starts_with("cuda:"))
    for (const std::string& word : words_of(text.substr(5)))
      devices.push_back({.type = cuda_device_type, .index = number_of(text, word)});
  if (text == "cuda" && devices.empty()) throw std::invalid_argument("--devices cuda: " + why_no_cuda());
#endif
  const std::set<DeviceId> different(devices.begin(), devices.end());
  if (devices.empty() || different.size() != devices.size()) throw wrong_devices(text);
  return devices;
}

}  // namespace

const char* to_string(Cause cause) noexcept { return causes[static_cast<std::size_t>(cause)]; }

RecoveryOptions parse_recovery_options(int argc, char** argv) {
  RecoveryOptions options;
  std::string bytes = "64MiB";
  std::string step_bytes = "64MiB";
  std::string mode = "in_place";
  std::string wanted;
  std::string journal;  // for main()
  std::uint64_t timeout = 60;
  std::uint64_t budget = 3600;
  options.devices_text = "host:2";
  options.cox = (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "cox").string();
  options.common = parse_options(
      argc, argv,
      "Measures the time from a fault of a program with kept memory to its next finished step, under `cox run`.",
      [&](CLI::App& app) {
        for (const char* const each : {"--list", "--filter", "--contenders", "--ours"})
          app.remove_option(app.get_option(each));
        app.add_option("--devices", options.devices_text, "host:COUNT, cuda or cuda:INDEX,INDEX (host:2)");
        app.add_option("--bytes", bytes, "kept on each device; with --mode double twice that (64MiB)");
        app.add_option("--step-bytes", step_bytes, "that a step writes; with --mode double all (64MiB)");
        app.add_option("--passes", options.passes,
                       "number of writes of --step-bytes to other memory before the update of a step (0)");
        app.add_option("--mode", mode, "in_place or double")->check(CLI::IsMember({"in_place", "double"}));
        app.add_flag("--standby", options.standby, "cox run --standby");
        app.add_option("--causes", wanted, "some of kill,trap,address,assert,reload (kill,reload; GPUs: all)");
        app.add_option("--cox", options.cox, "the program cox (the one next to this program)");
        app.add_option("--log", options.log, "write the output of `cox run` and the program to this file");
        app.add_option("--timeout", timeout, "longest wait for any one event, in seconds (60)");
        app.add_option("--budget", budget, "no round begins after so many seconds (3600)");
        app.add_option("--worker", journal, "the program that fails, with this journal")->group("");
      });
  try {
    options.devices = devices_of(options.devices_text);
    options.bytes = bytes_of("--bytes", bytes);
    options.pass_bytes = std::min(bytes_of("--step-bytes", step_bytes), options.bytes);
    options.mode = mode == "double" ? KeptMode::Double : KeptMode::InPlace;
    options.step_bytes = options.mode == KeptMode::Double ? options.bytes : options.pass_bytes;
    const bool gpus = options.devices.front().type != host_device_type;
    if (wanted.empty()) wanted = gpus ? "kill,trap,address,assert,reload" : "kill,reload";
    for (const std::string& word : words_of(wanted)) options.causes.push_back(cause_of(word));
    for (const Cause cause : options.causes)
      if (!gpus && cause != Cause::Kill && cause != Cause::Reload)
        throw std::invalid_argument(std::string("--causes: ") + to_string(cause) + " needs GPUs");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::exit(2);
  }
  options.timeout = std::chrono::seconds(timeout);
  options.budget = std::chrono::seconds(budget);
  return options;
}

}  // namespace cox::perf
