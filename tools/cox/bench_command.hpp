#pragma once

#include <coxswain/tools/cox/exit_code.hpp>

#include <ostream>
#include <string>

namespace CLI {
class App;
}

namespace cox::tools {

/// `cox bench`: measures the cost of the calls on the devices of this machine. The programs in perf/ also measure
/// alternatives for comparison; this command needs only the tool itself.
class BenchCommand {
 public:
  /// Registers the subcommand with `app`. `app` must outlive this object.
  explicit BenchCommand(CLI::App& app);
  BenchCommand(const BenchCommand&) = delete;
  BenchCommand& operator=(const BenchCommand&) = delete;

  [[nodiscard]] bool chosen() const;
  /// Measures each case in turn, then shuts the devices down. Blocks. SIGINT, SIGTERM and SIGHUP end the measurement
  /// early; the report then has the cases that were measured so far. Throws ArgumentError, ConfigError,
  /// DeviceUnavailable.
  [[nodiscard]] ExitCode run(std::ostream& out, std::ostream& err) const;

 private:
  CLI::App& command_;
  std::string devices_ = "host";
  std::string seconds_;
  std::string filter_;
  std::string json_;
};

}  // namespace cox::tools
