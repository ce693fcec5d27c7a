#pragma once

#include <filesystem>

namespace cox::tools {

/// A temporary folder that only this user can read, and that goes with this object.
class PrivateFolder {
 public:
  /// Throws std::system_error.
  PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  ~PrivateFolder();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace cox::tools
