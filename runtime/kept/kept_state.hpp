#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/kept/kept_record.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cox {

/// The contents of the memory of a set when a process opens it.
struct KeptState {
  enum class Kind : std::uint8_t {
    Empty,  ///< No update was ever begun: the contents are undefined.
    Whole,  ///< All devices hold the contents that the update `epoch` has committed.
    /// There is no such epoch: an update was begun and not committed, devices are at different epochs, or memory is
    /// lost.
    Torn,
    /// All devices show that epoch, but memory differs from the checksum that its commit has made: something has
    /// written it since, or the memory of the device has failed. Device::corrupt has its names; it is poisoned.
    Corrupt,
  };

  /// One device of the set.
  struct Device {
    DeviceId device;
    bool updating = false;         ///< an update was begun and not committed
    std::uint64_t last_epoch = 0;  ///< of the update that was begun last; 0: none
    std::uint64_t epoch = 0;       ///< of the contents of its memory; 0: they are not whole
    /// Whole: what the commit of KeptState::epoch was given on this device; std::nullopt if the supervisor has it no
    /// longer (it has that of the last 256 commits).
    std::optional<std::vector<std::byte>> values;
    /// Memory whose contents differ from their checksum, by name.
    std::vector<std::string> corrupt{};
    /// KeptOptions::checksum_every: restored memory that was not compared, by name, because the commit of its epoch has
    /// made no checksum of it.
    std::vector<std::string> not_checked{};
    /// What was held for this device after its last commit is gone, because of an uncorrectable error of its memory or
    /// a reset: what it has now is new memory.
    bool lost = false;
  };

  Kind kind = Kind::Empty;
  bool supervised = false;  ///< `cox run` holds the memory; otherwise it ends with this process
  /// At least KeptOptions::suspect_after runs in a row have ended without a commit. The contents may be the reason:
  /// then it is safer to begin from a checkpoint.
  bool suspect = false;
  std::uint64_t runs_without_commit = 0;
  std::uint64_t epoch = 0;  ///< Whole, Corrupt: of the contents
  /// The epochs whose contents all devices hold, the newest first: in the mode Double up to two. With checksums without
  /// those of which memory differs. The processes of a world may have to continue at the older one: KeptAgreement.
  std::vector<std::uint64_t> epochs;
  std::uint64_t last_epoch = 0;  ///< the greatest of any device; that of the next update must be greater
  std::vector<Device> devices;

  /// "whole at epoch 12", "whole at epoch 12, not checked", "torn: cuda:0 in update 13, cuda:1 at epoch 12", "torn:
  /// cuda:0 is lost, cuda:1 at epoch 12", "corrupt at epoch 12: 'weights' on cuda:0".
  [[nodiscard]] std::string to_string() const;
};

[[nodiscard]] const char* to_string(KeptState::Kind kind) noexcept;

/// The copy that holds the contents of that epoch; std::nullopt if none does. Memory that an open update writes has no
/// contents: all of it in the mode InPlace, the copy that is not current in the mode Double.
[[nodiscard]] std::optional<unsigned> copy_of_epoch(const KeptRecord& record, std::uint64_t epoch, bool two_copies);
/// The epochs that all records hold, the newest first: at most two.
[[nodiscard]] std::vector<std::uint64_t> common_epochs(const std::vector<KeptRecord>& records, bool two_copies);
/// The newest of them; std::nullopt if there is none.
[[nodiscard]] std::optional<std::uint64_t> common_epoch(const std::vector<KeptRecord>& records, bool two_copies);

}  // namespace cox
