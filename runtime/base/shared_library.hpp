#pragma once

#include <string>
#include <utility>
#include <vector>

namespace cox::detail {

/// A library that was opened at run time (dlopen). It is never closed, because its symbols are used until the process
/// ends.
class SharedLibrary {
 public:
  SharedLibrary() noexcept = default;

  /// Opens the first of `files` that can be opened. Each is a path, or a name for which the loader searches. If none
  /// can be opened, the result is not open and error() says why.
  [[nodiscard]] static SharedLibrary open(const std::vector<std::string>& files);

  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != nullptr; }
  /// The name of the opened file, as it was passed to open().
  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  /// The messages of the loader, one for each file. Meaningful only if the library is not open.
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  /// Returns the address of the symbol, or null if there is none. Precondition: open.
  [[nodiscard]] void* find(const char* symbol) const noexcept;

 private:
  void* handle_ = nullptr;
  std::string file_;
  std::string error_;
};

}  // namespace cox::detail
