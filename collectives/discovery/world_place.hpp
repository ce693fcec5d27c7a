#pragma once

#include <coxswain/collectives/discovery/rendezvous.hpp>
#include <coxswain/collectives/store/store.hpp>
#include <coxswain/collectives/store/world_token.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace cox {

namespace detail {
class PmixSession;
}  // namespace detail

/// What a program says itself about its world, with designated initialisers. Members that are not set are taken from
/// the environment: see docs/worlds.md.
struct WorldOptions {
  std::string
      rendezvous{};  ///< "tcp://host:port", "file:/path", "pmix" or "leader://host:port"; empty: from the environment
  std::optional<std::uint16_t> process{};          ///< number of this process, from 0; with `processes` only
  std::optional<std::uint16_t> processes{};        ///< how many processes there are; with `process` only
  std::optional<std::uint16_t> local_process{};    ///< number of this process among those on this host, from 0
  std::optional<std::uint16_t> local_processes{};  ///< processes on this host
  std::string run{};                               ///< name of the run, at most 128 bytes, the same in all processes
  std::optional<std::uint32_t> restart{};          ///< how often the run has been restarted, the same in all processes
  std::string token{};  ///< shared secret, 32 hexadecimal digits; empty: from the environment
  std::optional<std::chrono::nanoseconds> timeout{};  ///< to find the other processes; default: setting world.timeout
};

/// The place of this process in its world, and where the processes of the world find each other.
struct WorldPlace {
  /// Where `process` and `processes` come from.
  enum class Source : std::uint8_t { OneProcess, Options, Variables, Torchrun, Pmix, Slurm, Mpi };

  Source source = Source::OneProcess;
  std::uint16_t process = 0;  ///< number of this process, from 0
  std::uint16_t processes = 1;
  /// Number of this process among those on this host, from 0, and their count. Not known if neither the launcher nor
  /// the options say them, unless all processes are on this host.
  std::optional<std::uint16_t> local_process{};
  std::optional<std::uint16_t> local_processes{};
  std::string run{};          ///< name of the run, at most 128 bytes; may be empty
  std::uint32_t restart = 0;  ///< how often the run has been restarted
  std::string host{};         ///< name of this host
  Rendezvous rendezvous{};
  detail::WorldToken token{};  ///< all zeros: none
  std::chrono::nanoseconds timeout{};
  std::shared_ptr<detail::PmixSession> pmix{};  ///< open if PMIx has been asked; keeps its connection

  /// Opens the store in which the processes find each other, as `rendezvous` says; a null pointer for a world of one
  /// process, which opens no socket and no file, and where the leader's address is known. Blocks until the store is
  /// reached, or the deadline. Throws StoreError.
  [[nodiscard]] std::unique_ptr<Store> open_store(Store::Deadline deadline) const;
};

}  // namespace cox
