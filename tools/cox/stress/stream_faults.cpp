#include <coxswain/tools/cox/stress/stream_faults.hpp>

#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/tools/cox/stress/injected_fault.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace cox::stress {
namespace {

bool has_faults(const ServerError& error, const Ticket& ticket, const StreamFaults& faults) {
  if (error.kind() != ServerError::Kind::Unhealthy || error.errors().size() != faults.size()) return false;
  for (std::size_t i = 0; i < faults.size(); ++i)
    if (!is_of_fault(error.errors()[i], ticket.client, faults[i])) return false;
  return true;
}

std::string expectation(const StreamFaults& faults) {
  if (faults.empty()) return "the stream is healthy";
  return "ServerError unhealthy with " + std::to_string(faults.size()) + " failed operations, the first " +
         to_string(faults.front());
}

}  // namespace

std::string missing_file(std::uint32_t client, Sequence sequence) {
  return "/nonexistent/fault of client " + std::to_string(client) + ", " + to_string(sequence) + ".";
}

bool is_of_fault(const std::exception_ptr& failure, std::uint32_t client, Sequence sequence) {
  const auto* const file = find_cause<IoError>(failure);
  if (file != nullptr && std::string_view(file->what()).find(missing_file(client, sequence)) != std::string_view::npos)
    return true;
  const auto* const fault = find_cause<InjectedFault>(failure);
  return fault != nullptr && fault->is(client, sequence) &&
         find_cause<LaunchError>(failure, LaunchError::Kind::KernelFailed) != nullptr;
}

void check_surfaced(Truth& truth, const Ticket& ticket, const StreamFaults& faults, const std::exception_ptr& error) {
  if (error == nullptr) {
    if (!faults.empty()) truth.violated(Law::Errors, ticket, expectation(faults), "no error");
    return;
  }
  try {
    std::rethrow_exception(error);
  } catch (const ServerError& unhealthy) {
    if (!faults.empty() && has_faults(unhealthy, ticket, faults)) return;
  } catch (...) {
  }
  truth.violated(Law::Errors, ticket, expectation(faults), describe(error));
}

}  // namespace cox::stress
