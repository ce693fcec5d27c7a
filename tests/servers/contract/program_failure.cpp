#include <coxswain/tests/servers/contract/program_failure.hpp>

#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>

#include <algorithm>
#include <utility>

namespace cox::test {

const char* ProgramFailure::text_of(Kind kind) noexcept {
  switch (kind) {
    case Kind::ArgumentCount: return "a launch with too many buffers";
    case Kind::CubeCount: return "a launch with too large a cube count";
    case Kind::Late: return "a kernel that fails";
    case Kind::WriteSize: return "a write of a wrong size";
    case Kind::MissingFile: return "a write from a missing file";
    case Kind::Poisoned: return "an operation on poisoned memory";
    case Kind::LateOrPoisoned: return "a kernel that fails on poisoned memory";
    case Kind::RankFailed: return "a collective or transfer of poisoned memory";
  }
  return "";
}

std::shared_ptr<ProgramCause> join(const ProgramCause::Causes& causes) {
  ProgramCause::Causes given = causes;
  std::erase(given, nullptr);
  std::ranges::sort(given);
  given.erase(std::ranges::unique(given).begin(), given.end());
  if (given.size() < 2) return given.empty() ? nullptr : given.front();
  ProgramCause::Causes all;  // of single operations
  for (const auto& cause : given) {
    if (cause->causes().empty()) all.push_back(cause);
    all.insert(all.end(), cause->causes().begin(), cause->causes().end());
  }
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  return std::make_shared<ProgramCause>(std::move(all));
}

std::string ProgramFailure::text() const {
  return std::string(text_of(kind)) + ", step " + std::to_string(step) + ", from " + cause->text();
}

bool ProgramFailure::is(const std::exception_ptr& error, LaunchError::Kind late_kind) const {
  const auto* const poisoned = find_cause<IoError>(error, IoError::Kind::Poisoned);
  const auto is_own = [&](bool is_kind) { return is_kind && poisoned == nullptr && cause->confirm(error); };
  switch (kind) {
    case Kind::ArgumentCount:
      return is_own(find_cause<LaunchError>(error, LaunchError::Kind::ArgumentCount) != nullptr);
    case Kind::CubeCount: return is_own(find_cause<LaunchError>(error, LaunchError::Kind::TooManyResources) != nullptr);
    case Kind::Late: return is_own(find_cause<LaunchError>(error, late_kind) != nullptr);
    case Kind::WriteSize: return is_own(find_cause<IoError>(error, IoError::Kind::SizeMismatch) != nullptr);
    // The memory keeps what the copy failed with; the stream may report more: which upload it was.
    case Kind::MissingFile: return find_cause<IoError>(error, IoError::Kind::FileUnreadable) != nullptr;
    case Kind::Poisoned:
      return poisoned != nullptr && find_cause<CollectiveError>(error) == nullptr && cause->confirm(poisoned->cause());
    case Kind::LateOrPoisoned:
      return find_cause<CollectiveError>(error) == nullptr &&
             cause->confirm(poisoned != nullptr ? poisoned->cause() : error);
    case Kind::RankFailed:
      return poisoned != nullptr && find_cause<CollectiveError>(error, CollectiveError::Kind::RankFailed) != nullptr &&
             cause->confirm(poisoned->cause());
  }
  return false;
}

}  // namespace cox::test
