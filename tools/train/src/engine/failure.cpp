#include <engine/failure.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>

#include <array>
#include <cstddef>

namespace train {
namespace {

using cox::to_string;  // of the other kinds

const char* to_string(cox::CollectiveError::Kind kind) {
  constexpr std::array names{"validation",  "mismatch", "rank_failed",  "timeout",        "would_deadlock", "aborted",
                             "unsupported", "backend",  "process_gone", "process_silent", "world_gone"};
  static_assert(names.size() == static_cast<std::size_t>(cox::CollectiveError::Kind::WorldGone) + 1);
  return names[static_cast<std::size_t>(kind)];
}

template <class Error>
void append(std::string& text, const char* name, const std::exception_ptr& error) {
  const auto* const found = cox::find_cause<Error>(error);
  if (found == nullptr) return;
  text.append(text.empty() ? "" : ", ").append(name).append(" ").append(to_string(found->kind()));
}

}  // namespace

std::string failure_kinds(const std::exception_ptr& error) {
  std::string text;
  append<cox::CallError>(text, "CallError", error);
  append<cox::CollectiveError>(text, "CollectiveError", error);
  append<cox::LaunchError>(text, "LaunchError", error);
  append<cox::IoError>(text, "IoError", error);
  return text;
}

}  // namespace train
