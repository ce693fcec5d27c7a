#include <coxswain/device_handle/task_error.hpp>

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace cox {
namespace {

using Callback = std::function<void(const TaskError&)>;

void write_line(const TaskError& error) {
  const std::string line = "coxswain: a task on " + error.device.to_string() + ", stream " +
                           std::to_string(error.stream.number()) + ", threw: " + describe(error.error) + "\n";
  std::fputs(line.c_str(), stderr);
}

std::mutex& callback_mutex() {
  static auto& mutex = *new std::mutex;  // never destroyed: device threads may outlive static destructors
  return mutex;
}

std::shared_ptr<const Callback>& callback_slot() {
  static auto& slot = *new std::shared_ptr<const Callback>();  // empty: write_line
  return slot;
}

}  // namespace

void set_task_error_callback(Callback callback) {
  auto next = callback ? std::make_shared<const Callback>(std::move(callback)) : nullptr;
  const std::scoped_lock lock(callback_mutex());
  callback_slot().swap(next);
}

bool offer_task_error_callback(Callback callback) {
  auto next = std::make_shared<const Callback>(std::move(callback));
  const std::scoped_lock lock(callback_mutex());
  if (callback_slot() != nullptr) return false;
  callback_slot().swap(next);
  return true;
}

void report_task_error(const TaskError& error) noexcept {
  try {
    std::shared_ptr<const Callback> callback;
    {
      const std::scoped_lock lock(callback_mutex());
      callback = callback_slot();
    }
    if (callback != nullptr) {
      (*callback)(error);
    } else {
      write_line(error);
    }
  } catch (...) {
    std::fputs("coxswain: the task error callback threw\n", stderr);
  }
}

std::string describe(const std::exception_ptr& error) {
  if (error == nullptr) return "no error";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "unknown exception";
  }
}

}  // namespace cox
