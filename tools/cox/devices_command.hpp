#pragma once

#include <coxswain/tools/cox/exit_code.hpp>

#include <ostream>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace cox::tools {

/// `cox devices`: lists the devices, and the routes of data between them.
class DevicesCommand {
 public:
  /// Registers the subcommand with `app`. `app` must outlive this object.
  explicit DevicesCommand(CLI::App& app);
  DevicesCommand(const DevicesCommand&) = delete;
  DevicesCommand& operator=(const DevicesCommand&) = delete;

  [[nodiscard]] bool chosen() const;
  /// Opens each host device, prints its properties, and shuts all devices down again. Queries the driver for CUDA
  /// devices, without opening them. Throws ArgumentError, ConfigError, DeviceUnavailable.
  [[nodiscard]] ExitCode run(std::ostream& out, std::ostream& err) const;

 private:
  CLI::App& command_;
  std::string devices_;
  CLI::Option* json_given_ = nullptr;
  std::string json_;
  bool explain_ = false;
};

}  // namespace cox::tools
