#pragma once

#include <filesystem>

namespace cox::tools {

/// A temporary folder that only this user can access. The destructor removes it and its files.
class PrivateFolder {
 public:
  /// Creates the folder. Throws std::system_error.
  PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  ~PrivateFolder();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace cox::tools
