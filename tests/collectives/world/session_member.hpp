#pragma once

#include <coxswain/tests/support/temporary_folder.hpp>

#include <coxswain/collectives/sequencer/sequencer.hpp>
#include <coxswain/collectives/world/world_session.hpp>

#include <chrono>
#include <cstdint>
#include <string>

namespace cox::test {

struct MemberOptions {
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  std::string run = "test";
  std::chrono::nanoseconds heartbeat = std::chrono::seconds(1);
  std::chrono::nanoseconds identified_within = std::chrono::seconds(10);
};

/// A process of a world whose processes are threads of the test.
struct SessionMember {
  Sequencer sequencer{{}};
  detail::world::WorldSession session;

  SessionMember(const TemporaryFolder& folder, std::uint16_t process, std::uint16_t processes,
                const MemberOptions& options = {})
      : session({.place = {.process = process,
                           .processes = processes,
                           .local_process = process,
                           .local_processes = processes,
                           .run = options.run,
                           .host = "here",
                           .rendezvous = {.kind = Rendezvous::Kind::Folder, .folder = folder.path().string()},
                           .timeout = options.timeout},
                 .devices = {{0, process}},
                 .heartbeat = options.heartbeat,
                 .identified_within = options.identified_within},
                sequencer) {}

  void leave() { session.leave(std::chrono::steady_clock::now() + std::chrono::seconds(60)); }
};

}  // namespace cox::test
