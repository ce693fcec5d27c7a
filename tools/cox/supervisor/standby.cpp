#include <coxswain/tools/cox/supervisor/standby.hpp>

#include <coxswain/runtime/config/duration.hpp>
#include <coxswain/runtime/kept/keeper_connection.hpp>
#include <coxswain/runtime/socket/local_socket.hpp>
#include <coxswain/tools/cox/supervisor/descendants.hpp>

#include <poll.h>
#include <system_error>
#include <utility>

namespace cox::tools {

bool Standby::tend() {
  bool lives = true;
  if (process_ != nullptr) {
    const auto ended = process_->end();
    if (!ended) return true;
    end();
    start_later(ended->to_string());
    lives = false;
  }
  if (!due_ || Clock::now() < *due_) return lives;
  try {
    start();
  } catch (const std::system_error&) {  // reported, and tried again later
  }
  return lives;
}

void Standby::start_later(const std::string& why) {
  const Clock::time_point now = Clock::now();
  const auto delay = policy_.restart(now, now - began_);
  due_.reset();
  if (delay) due_ = now + *delay;
  err_ << "cox run: the standby " << why << "; "
       << (delay ? "started again in " + format_duration(*delay)
                 : std::string("not started again: the limit is reached"))
       << "\n"
       << std::flush;
}

void Standby::start() {
  end();
  began_ = Clock::now();
  try {
    socket_ = keeper_.prepare_run();
    process_ = start_program_(socket_);
  } catch (const std::system_error& error) {
    keeper_.drop_prepared();
    start_later(std::string("cannot be started: ") + error.what());
    throw;
  }
  due_.reset();
}

void Standby::end() noexcept {
  if (process_ == nullptr) return;
  process_.reset();
  keeper_.drop_prepared();
  try {
    const auto is_other = [this](pid_t child) {
      return !was_started_with(child, KeeperConnection::variable, socket_.native());
    };
    // What they have started becomes a child of this process when they have ended.
    const Clock::time_point until = Clock::now() + std::chrono::seconds(1);
    bool is_alone = kill_children(is_other);
    for (; !is_alone && Clock::now() < until; is_alone = kill_children(is_other))
      static_cast<void>(poll(nullptr, 0, 1));
    if (is_alone) return;
  } catch (const std::system_error&) {  // /proc cannot be read
  }
  err_ << "cox run: processes that the standby has started may still run\n" << std::flush;
}

std::unique_ptr<ChildProcess> Standby::take() {
  if (process_ != nullptr && process_->end()) {
    err_ << "cox run: the standby " << process_->end()->to_string() << "; the program is started anew\n" << std::flush;
    end();
  }
  keeper_.begin_run();
  due_ = Clock::time_point();  // the next one, at the next tend()
  return std::exchange(process_, nullptr);
}

bool Standby::waits() const noexcept { return process_ != nullptr && is_readable(keeper_.prepared_descriptor()); }

bool Standby::includes(pid_t process) const {
  if (process_ == nullptr) return false;
  return process == process_->id() || was_started_with(process, KeeperConnection::variable, socket_.native());
}

std::string Standby::to_string() const {
  if (process_ != nullptr)
    return "process " + std::to_string(process_->id()) + (waits() ? ", waits for kept memory" : ", starts");
  if (!due_) return "none, as too many have ended";
  const auto rest = *due_ - Clock::now();
  if (rest <= Clock::duration::zero()) return "none yet";
  return "started again in " + format_duration(std::chrono::ceil<std::chrono::seconds>(rest));
}

}  // namespace cox::tools
