#pragma once

#include <coxswain/runtime/bytes/bytes.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace train {

/// A number that depends on every byte and on their order. Not cryptographic.
[[nodiscard]] std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed = 0);

/// The state of a training run after a step: all that the next step depends on, and the losses so far.
///
/// File: "COXTRAIN", the version of the format, then the members in the order below, and the checksum of all that
/// precedes it. Numbers have 64 bits in the byte order of the machine; texts and data follow their length in bytes.
struct Checkpoint {
  static constexpr std::uint64_t version = 1;

  std::string fingerprint;    ///< see fingerprint() in options.hpp
  std::uint64_t step = 0;     ///< number of completed steps
  std::vector<float> losses;  ///< of each step so far
  std::map<std::string, cox::Bytes> tensors;
};

/// The ranks whose state a file has: consecutive ones of all. A checkpoint is complete when its files have all ranks.
/// The processes of a world write one file each, and the ranks may be shared out in another way when it is read.
struct CheckpointRanks {
  std::size_t first = 0;
  std::size_t count = 1;
  std::size_t of = 1;
};

/// Writes the file so that it appears with its complete contents or not at all, also if the machine fails: into a
/// temporary file, which is flushed to the disk and renamed. Then removes the files of the folder that are older than
/// the newest two complete checkpoints. Blocks for the disk. Throws std::runtime_error or std::system_error; an older
/// checkpoint is then untouched.
void write_checkpoint(const std::filesystem::path& folder, const Checkpoint& checkpoint, CheckpointRanks ranks = {});

/// Whether the folder has checkpoints, complete or not.
[[nodiscard]] bool has_checkpoints(const std::filesystem::path& folder);

/// The newest checkpoint of the folder that is complete, or none; with the tensors of all its files. One with a file
/// that has a wrong checksum is reported on the standard error stream and passed over. Throws std::runtime_error if a
/// complete file has another version or fingerprint: it belongs to another program or run.
[[nodiscard]] std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& folder,
                                                          const std::string& fingerprint);

}  // namespace train
