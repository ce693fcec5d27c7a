#include <coxswain/device_handle/base/task_error.hpp>

#include <coxswain/device_handle/base/error.hpp>

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

/// The next error in a chain of errors.
struct Link {
  std::exception_ptr cause;
  std::string site;  ///< " (file:line)", or empty
};

Link link_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& ours) {
    const auto& site = ours.site();
    return {ours.cause(),
            site.line() == 0 ? "" : std::string(" (") + site.file_name() + ":" + std::to_string(site.line()) + ")"};
  } catch (const std::nested_exception& nested) {
    return {nested.nested_ptr(), ""};
  } catch (...) {
    return {};
  }
}

/// Removes the text of the cause and the separator before it.
void erase_cause(std::string& line, const std::string& cause) {
  const auto is_behind_separator = [&](std::size_t at) { return at >= 2 && line.compare(at - 2, 2, ": ") == 0; };
  std::size_t at = cause.empty() ? std::string::npos : line.rfind(cause);
  while (at != std::string::npos && !is_behind_separator(at))  // it may be a part of a name
    at = at == 0 ? std::string::npos : line.rfind(cause, at - 1);
  if (at == std::string::npos) return;
  line.erase(at, cause.size());
  std::size_t end = at;
  while (end > 0 && (line[end - 1] == ' ' || line[end - 1] == ':')) --end;
  line.erase(end, at - end);
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

std::string describe_cause(const std::exception_ptr& cause) {
  if (cause == nullptr) return describe(cause);
  try {
    std::rethrow_exception(cause);
  } catch (const Error& error) {
    return error.brief();
  } catch (...) {
    return describe(cause);
  }
}

std::string error_chain(const std::exception_ptr& error) {
  std::string text;
  for (std::exception_ptr level = error; level != nullptr;) {
    std::string line = describe(level);
    const Link link = link_of(level);
    if (link.cause != nullptr) erase_cause(line, describe_cause(link.cause));
    if (!line.empty()) text += (text.empty() ? "" : "\nbecause: ") + line + link.site;
    level = link.cause;
  }
  return text;
}

}  // namespace cox
