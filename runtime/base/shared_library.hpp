#pragma once

#include <string>
#include <utility>
#include <vector>

namespace cox::detail {

/// A library that was opened at run time. Stays open for good: what was found in it is used until the process ends.
class SharedLibrary {
 public:
  SharedLibrary() noexcept = default;

  /// The first of these files that can be opened: paths, or names for the loader to look up. Not open if none can be:
  /// error() says why.
  [[nodiscard]] static SharedLibrary open(const std::vector<std::string>& files);

  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != nullptr; }
  /// The file that was opened, as it was asked for.
  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  /// What the loader said about each file. Of a library that is not open.
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  /// Null if there is no such symbol. Precondition: open.
  [[nodiscard]] void* find(const char* symbol) const noexcept;

 private:
  void* handle_ = nullptr;
  std::string file_;
  std::string error_;
};

}  // namespace cox::detail
