#include <coxswain/servers/cuda/driver/fault_report.hpp>

#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/servers/cuda/driver/cuda_error.hpp>
#include <coxswain/servers/cuda/driver/fault_file.hpp>
#include <coxswain/servers/cuda/driver/fault_state.hpp>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace cox::detail {
namespace {

struct Listener {
  std::function<void(std::vector<GpuFault::Suspect>&)> suspects;
  std::function<void()> notified;
};

// The mutex is held while a listener is called, so that none is called after its destructor.
struct Listeners {
  std::mutex mutex;
  std::map<std::uint64_t, Listener> by_id;  // guarded by mutex; in the order of registration
  std::uint64_t next = 0;                   // guarded by mutex
};

Listeners& listeners() {
  static Listeners& all = *new Listeners;  // never destroyed: usable while static objects are destroyed
  return all;
}

std::string name_of(CUresult result) {
  const char* name = nullptr;
  if (const Driver* const found = find_driver().driver) found->error_name(result, &name);
  return name != nullptr ? name : "CUDA error";
}

std::shared_ptr<const GpuFault> cause_alone(CUresult result, const char* call) noexcept try {
  return std::make_shared<const GpuFault>(GpuFault{.code = static_cast<int>(result),
                                                   .name = name_of(result),
                                                   .call = call,
                                                   .suspects = {},
                                                   .when = std::chrono::system_clock::now()});
} catch (...) {
  return nullptr;  // no memory: the fault is reported without a text
}

std::shared_ptr<const GpuFault> with_suspects(const std::shared_ptr<const GpuFault>& cause) noexcept try {
  if (cause == nullptr) return nullptr;
  auto fault = std::make_shared<GpuFault>(*cause);
  Listeners& all = listeners();
  const std::scoped_lock lock(all.mutex);
  for (const auto& [id, listener] : all.by_id) listener.suspects(fault->suspects);
  return fault;
} catch (...) {
  return cause;
}

void tell_all() noexcept {
  Listeners& all = listeners();
  const std::scoped_lock lock(all.mutex);
  for (const auto& [id, listener] : all.by_id) {
    try {
      listener.notified();
    } catch (...) {  // the listener breaks its contract: the others are notified all the same
    }
  }
}

void log_line(const std::string& text) {
  log::write(LogSubsystem::Cuda, LogLevel::Error, [&] { return text; });
}

void write_down(const GpuFault& fault) noexcept try {
  log_line(fault.to_string());
  const char* const path = std::getenv("COX_FAULT_REPORT");
  if (path == nullptr || *path == '\0') return;
  const std::string wrong = write_fault_file(fault, path);
  if (!wrong.empty()) log_line("COX_FAULT_REPORT: " + wrong);
} catch (...) {  // no memory for the message, and no other way to report it
}

}  // namespace

void report_gpu_fault(CUresult result, const char* call) noexcept {
  FaultState& state = FaultState::instance();
  if (state.known()) return;
  const std::shared_ptr<const GpuFault> cause = cause_alone(result, call);
  if (!state.claim(cause)) return;
  const std::shared_ptr<const GpuFault> fault = with_suspects(cause);
  if (fault != nullptr) write_down(*fault);  // before the notification: a listener may end the process
  state.publish(fault);
  tell_all();
}

bool gpu_faulted() noexcept { return FaultState::instance().known(); }

std::exception_ptr gpu_fault_error(std::source_location site) {
  const FaultState& state = FaultState::instance();
  const std::shared_ptr<const GpuFault> fault = state.fault();
  if (fault == nullptr && !state.known()) return nullptr;
  const std::string text = fault != nullptr ? fault->to_string() : "all CUDA devices of the process are lost";
  const LaunchError culprit(LaunchError::Kind::KernelFailed, text, site);
  return std::make_exception_ptr(
      CudaError::unhealthy(fault != nullptr ? fault->code : 0, text, {std::make_exception_ptr(culprit)}, site));
}

void throw_gpu_fault(std::source_location site) { std::rethrow_exception(gpu_fault_error(site)); }

void forget_gpu_fault() noexcept { FaultState::instance().forget(); }

FaultListener::FaultListener(std::function<void(std::vector<GpuFault::Suspect>&)> suspects,
                             std::function<void()> on_fault) {
  Listeners& all = listeners();
  const std::scoped_lock lock(all.mutex);
  id_ = all.next++;
  all.by_id.emplace(id_, Listener{std::move(suspects), std::move(on_fault)});
}

FaultListener::~FaultListener() {
  Listeners& all = listeners();
  const std::scoped_lock lock(all.mutex);
  all.by_id.erase(id_);
}

}  // namespace cox::detail
