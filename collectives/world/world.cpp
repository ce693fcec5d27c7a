#include <coxswain/collectives/world/world.hpp>

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/collectives/discovery/discover.hpp>
#include <coxswain/collectives/nccl/device_versions.hpp>
#include <coxswain/collectives/nccl/nccl_exchange.hpp>
#include <coxswain/collectives/world/rank_exchange.hpp>
#include <coxswain/collectives/world/world_error.hpp>
#include <coxswain/collectives/world/world_session.hpp>
#include <coxswain/device_handle/base/deadline.hpp>
#include <coxswain/runtime/communication/world_process.hpp>
#include <coxswain/runtime/config/config_error.hpp>
#include <coxswain/runtime/config/duration.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/telemetry/world_member.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

namespace cox {
namespace {

using detail::world::WorldSession;

/// That of the process. Never destroyed: operations may still know it when the process ends.
struct SessionOfProcess {
  std::mutex mutex;
  std::shared_ptr<WorldSession> session;

  static SessionOfProcess& get() {
    static auto& its = *new SessionOfProcess;
    return its;
  }
};

}  // namespace

World World::join(const std::vector<DeviceId>& devices, const WorldOptions& options) {
  const WorldPlace place = discover(options);
  World world;
  world.process_ = place.process;
  world.timeout_ = place.timeout;
  if (place.processes == 1) {
    world.processes_.push_back({.host = place.host, .pid = static_cast<std::uint64_t>(::getpid()), .devices = devices});
    std::ranges::sort(world.processes_.front().devices);
    return world;
  }
  SessionOfProcess& of_process = SessionOfProcess::get();
  const std::lock_guard lock(of_process.mutex);
  if (of_process.session)
    throw WorldError(WorldError::Kind::Refused, "this process has joined a world before; it can join one only");
  // PMIx must be left before the process ends, and the session is never destroyed. `place` keeps PMIx open until all
  // processes have joined.
  WorldPlace place_of_session = place;
  place_of_session.pmix = nullptr;
  const Settings now = settings();
  const auto heartbeat = now.get<std::chrono::nanoseconds>("world.heartbeat");
  const auto silence = now.get<std::chrono::nanoseconds>("world.silence");
  if (silence < 2 * heartbeat)
    throw ConfigError(ConfigError::Kind::Conflict, "world.silence is " + format_duration(silence) +
                                                       ", less than twice world.heartbeat, " +
                                                       format_duration(heartbeat));
  auto session = std::make_shared<WorldSession>(
      detail::world::SessionOptions{
          .place = place_of_session,
          .devices = devices,
          .versions = detail::device_versions(devices),
          .max_ahead = static_cast<std::size_t>(now.get<std::uint64_t>("collectives.max_ahead")),
          .heartbeat = heartbeat,
          .silence = silence},
      Communicators::of_process().sequencer());
  set_world_member(WorldMember{.process = place.process, .processes = place.processes, .host = place.host});
  session->join();
  of_process.session = session;
  if (place.process == 0 && place.rendezvous.kind != Rendezvous::Kind::Leader) set_world_clock(0, 0);  // it leads
  for (const auto& facts : session->processes())
    world.processes_.push_back({.host = facts.host, .pid = facts.pid, .devices = facts.devices});
  std::vector<std::string> hosts;
  for (const WorldProcess& process : world.processes_) hosts.push_back(process.host);
  detail::set_hosts(std::move(hosts));
  detail::set_own_process(static_cast<std::uint16_t>(place.process + 1));
  detail::RankExchange::set_of_process(&session->exchange());
  detail::NcclExchange::set_of_process(&session->marks());
  world.session_ = std::move(session);
  return world;
}

World::~World() { leave(); }

void World::leave() noexcept {
  if (session_) session_->leave(detail::deadline_after(timeout_));
}

bool World::wait_for_successors(std::chrono::nanoseconds time) const {
  return !session_ || session_->wait_until_complete(detail::deadline_after(time));
}

std::vector<DeviceId> World::devices(std::uint16_t type) const {
  std::vector<DeviceId> devices;
  for (const WorldProcess& process : processes_)
    std::ranges::copy_if(process.devices, std::back_inserter(devices),
                         [type](DeviceId device) { return device.type == type; });
  std::ranges::sort(devices);
  return devices;
}

}  // namespace cox
