#include <coxswain/collectives/world/world_leader.hpp>

#include <coxswain/collectives/discovery/rendezvous.hpp>
#include <coxswain/collectives/link/run_connections.hpp>
#include <coxswain/collectives/world/leader_service.hpp>
#include <coxswain/collectives/world/world_error.hpp>
#include <coxswain/device_handle/thread/blocked_signals.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/log.hpp>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <exception>
#include <future>
#include <thread>
#include <utility>

namespace cox {

using detail::world::ConnectionSpin;
using detail::world::LeaderService;
using detail::world::LeaderServiceOptions;
using detail::world::run_connections;
using std::chrono::steady_clock;

class WorldLeader::Thread {
 public:
  explicit Thread(WorldLeaderOptions options)
      : heartbeat_(settings().get<std::chrono::nanoseconds>("world.heartbeat")),
        service_(io_, service_options(options),
                 {.received = [this](bool is_heartbeat) { spin_.note(is_heartbeat); },
                  .expelled = std::move(options.expelled)}) {
    boost::system::error_code error;
    const auto at = boost::asio::ip::make_address(options.host, error);
    if (error)
      throw WorldError(WorldError::Kind::Unreachable, "'" + options.host + "' is no address: " + error.message());
    service_.listen(at);
    endpoint_ = service_.endpoint();
    running_since_ = last_heartbeat_ = steady_clock::now();
    send_heartbeats();
    const detail::BlockedSignals blocked;
    thread_ = std::thread([this] { run(); });
  }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  ~Thread() {
    io_.stop();
    thread_.join();
    service_.close();
  }

  [[nodiscard]] std::string address() const {
    return to_string(Rendezvous{
        .kind = Rendezvous::Kind::Leader, .host = endpoint_.address().to_string(), .port = endpoint_.port()});
  }

  [[nodiscard]] std::string describe() {
    std::promise<std::string> text;
    boost::asio::post(io_, [&] {
      try {
        text.set_value(service_.describe(steady_clock::now()));
      } catch (...) {
        text.set_exception(std::current_exception());
      }
    });
    return text.get_future().get();
  }

 private:
  LeaderServiceOptions service_options(WorldLeaderOptions& options) const {
    const Settings now = settings();
    return {.processes = options.processes,
            .run = std::move(options.run),
            .token = options.token,
            .max_ahead = static_cast<std::size_t>(now.get<std::uint64_t>("collectives.max_ahead")),
            .heartbeat = heartbeat_,
            .silence = now.get<std::chrono::nanoseconds>("world.silence")};
  }

  void run() noexcept {
    const auto keep_running = boost::asio::make_work_guard(io_);
    for (;;) {
      try {
        run_connections(io_, spin_);
        return;
      } catch (const std::exception& error) {  // no memory
        cox::log::write(LogSubsystem::Collectives, LogLevel::Error,
                        [&] { return std::string("the leader of the world has failed: ") + error.what(); });
        timer_.cancel();
        service_.close();  // the processes find that their connections have ended
      }
    }
  }

  void send_heartbeats() {
    const auto now = steady_clock::now();
    // After a pause of this process, the others may have spoken without being heard.
    if (now - last_heartbeat_ > 2 * heartbeat_) running_since_ = now;
    last_heartbeat_ = now;
    service_.send_heartbeats(now, running_since_);
    spin_.set_processes(service_.facts());
    timer_.expires_after(heartbeat_);
    timer_.async_wait([this](const boost::system::error_code& failed) {
      if (failed) return;
      spin_.note(true);
      send_heartbeats();
    });
  }

  const std::chrono::nanoseconds heartbeat_;
  ConnectionSpin spin_;
  boost::asio::io_context io_;
  boost::asio::steady_timer timer_{io_};
  LeaderService service_;
  boost::asio::ip::tcp::endpoint endpoint_;
  steady_clock::time_point last_heartbeat_;
  steady_clock::time_point running_since_;
  std::thread thread_;
};

WorldLeader::WorldLeader(WorldLeaderOptions options) : thread_(std::make_unique<Thread>(std::move(options))) {}

WorldLeader::~WorldLeader() = default;

std::string WorldLeader::address() const { return thread_->address(); }

std::string WorldLeader::describe() const { return thread_->describe(); }

}  // namespace cox
