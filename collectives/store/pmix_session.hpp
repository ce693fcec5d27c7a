#pragma once

#include <coxswain/collectives/store/store.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cox::detail {

/// What the launcher knows of the job of this process.
struct PmixJob {
  std::string name;  ///< of the job, which no other job of this launcher has: the PMIx namespace
  std::uint32_t process = 0;
  std::uint32_t processes = 1;
  std::optional<std::uint32_t> local_process;  ///< number among the processes of the job on this host
  std::optional<std::uint32_t> local_processes;
};

/// The connection of this process to the PMIx server of its launcher (mpirun, srun --mpi=pmix). libpmix.so.2 is opened
/// at run time; no header of it is needed. Any thread.
class PmixSession {
 public:
  /// Opens the library (setting world.pmix) and connects, or returns the session that is open. Throws StoreError
  /// Unreachable. Blocks for as long as the launcher's server takes to accept the process.
  [[nodiscard]] static std::shared_ptr<PmixSession> open();

  PmixSession(const PmixSession&) = delete;
  PmixSession& operator=(const PmixSession&) = delete;
  /// Ends the connection: a process that ends without it is taken for one that has failed.
  ~PmixSession();

  [[nodiscard]] const PmixJob& job() const noexcept { return job_; }

  /// Publishes the value to all processes of the job.
  void put(const std::string& key, std::span<const std::byte> value) const;
  /// The value that process `process` of the job has published; waits for it. std::nullopt if the deadline has passed.
  [[nodiscard]] std::optional<std::vector<std::byte>> get(std::uint32_t process, const std::string& key,
                                                          Store::Deadline deadline) const;

 private:
  struct Library;
  struct Pending;

  explicit PmixSession(const Library& library);

  [[nodiscard]] static const Library& library();
  [[nodiscard]] std::shared_ptr<Pending> begin_get(std::uint32_t process, const std::string& key,
                                                   Store::Deadline deadline) const;
  [[nodiscard]] std::optional<std::uint32_t> number_of(std::uint32_t process, const char* key) const;
  [[noreturn]] void fail(const char* call, int status) const;

  const Library& library_;
  PmixJob job_;
};

}  // namespace cox::detail
