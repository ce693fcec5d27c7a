#pragma once

#include <coxswain/tools/cox/exit_code.hpp>

#include <ostream>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace cox::tools {

/// `cox devices`: what devices there are, and how data goes from one to another.
class DevicesCommand {
 public:
  /// Adds itself to `app`, which outlives it.
  explicit DevicesCommand(CLI::App& app);
  DevicesCommand(const DevicesCommand&) = delete;
  DevicesCommand& operator=(const DevicesCommand&) = delete;

  [[nodiscard]] bool chosen() const;
  /// Opens each host device, tells about it, and closes all again; asks the driver about CUDA devices. Throws
  /// ArgumentError, ConfigError, DeviceUnavailable.
  [[nodiscard]] ExitCode run(std::ostream& out, std::ostream& err) const;

 private:
  CLI::App& command_;
  std::string devices_;
  CLI::Option* json_given_ = nullptr;
  std::string json_;
  bool explain_ = false;
};

}  // namespace cox::tools
