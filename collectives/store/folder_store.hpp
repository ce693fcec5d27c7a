#pragma once

#include <coxswain/collectives/store/store.hpp>
#include <coxswain/collectives/store/store_error.hpp>
#include <coxswain/runtime/socket/file_descriptor.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cox::detail {

struct FolderStoreOptions {
  std::filesystem::path folder{};  ///< created if it does not exist
  std::uint16_t process = 0;       ///< of the caller
  std::uint16_t processes = 1;
  std::string run;  ///< a name that no earlier run with this folder has had
  std::uint32_t restart = 0;
};

/// A store in a folder that all processes share. Each run and restart has a sub-folder of its own, so that a file of
/// another run is never read, and a file for each key. A value appears as a whole, by rename; writers hold a lock
/// (flock). close() of process 0 removes the sub-folder. Process 0 also removes those of earlier restarts of the run.
class FolderStore final : public Store {
 public:
  /// Throws StoreError Unreachable if the folder cannot be made or used.
  explicit FolderStore(FolderStoreOptions options);

 private:
  void do_set(const std::string& key, std::span<const std::byte> value, Deadline deadline) override;
  std::vector<std::byte> do_get(const std::string& key, Deadline deadline) override;
  std::int64_t do_add(const std::string& key, std::int64_t amount, Deadline deadline) override;
  std::vector<std::byte> do_compare_set(const std::string& key, std::span<const std::byte> expected,
                                        std::span<const std::byte> desired, Deadline deadline) override;
  void do_close(Deadline deadline) override;

  [[nodiscard]] std::filesystem::path file_of(const std::string& key) const;
  [[nodiscard]] FileDescriptor lock(const std::string& key, Deadline deadline) const;
  void write(const std::string& key, std::span<const std::byte> value);
  [[nodiscard]] std::optional<std::vector<std::byte>> read(const std::string& key) const;
  void remove_files() const noexcept;
  [[nodiscard]] StoreError timeout(const std::string& key, const char* what) const;

  FolderStoreOptions options_;
  std::filesystem::path folder_;  // of this run and restart
};

}  // namespace cox::detail
