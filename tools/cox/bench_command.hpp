#pragma once

#include <coxswain/tools/cox/exit_code.hpp>

#include <ostream>
#include <string>

namespace CLI {
class App;
}

namespace cox::tools {

/// `cox bench`: what the calls cost on the devices of this machine. The harnesses in perf/ measure them beside the
/// alternatives; this one needs no more than the tool itself.
class BenchCommand {
 public:
  /// Adds itself to `app`, which outlives it.
  explicit BenchCommand(CLI::App& app);
  BenchCommand(const BenchCommand&) = delete;
  BenchCommand& operator=(const BenchCommand&) = delete;

  [[nodiscard]] bool chosen() const;
  /// Measures each case in turn and shuts the devices down again; SIGINT ends it with what there is so far. Throws
  /// ArgumentError, ConfigError, DeviceUnavailable.
  [[nodiscard]] ExitCode run(std::ostream& out, std::ostream& err) const;

 private:
  CLI::App& command_;
  std::string devices_ = "host";
  std::string seconds_;
  std::string filter_;
  std::string json_;
};

}  // namespace cox::tools
