#pragma once

#include <checkpoint/checkpoint.hpp>

#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace train {

/// Writes the checkpoints of the ranks of this process on a thread of its own while training goes on. Each rank adds
/// its part; a checkpoint whose parts are complete is written.
class CheckpointWriter {
 public:
  struct Part {
    std::vector<std::string> names;
    cox::Future<std::vector<cox::Bytes>> contents;  ///< of the tensors of these names
  };

  /// `ranks`: those that add a part to each checkpoint; the losses are added with rank 0.
  CheckpointWriter(std::filesystem::path folder, std::string fingerprint, CheckpointRanks ranks);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  /// Writes what is complete, then ends the thread. Blocks for the downloads and the disk.
  ~CheckpointWriter();

  /// Adds a rank's part of the checkpoint after `step`. Does not wait for the download. Blocks while two complete
  /// checkpoints wait to be written: the disk is slower than the training.
  void add(std::uint64_t step, Part part);
  /// The losses up to the step; once for each checkpoint, before or after the parts.
  void add_losses(std::uint64_t step, std::vector<float> losses);

  // Numbers of checkpoints. Call finish() first.

  [[nodiscard]] std::size_t written() const { return written_; }
  /// Refused by the disk.
  [[nodiscard]] std::size_t not_written() const { return not_written_; }
  /// A device failed before its part was downloaded. To be expected if a rank has failed.
  [[nodiscard]] std::size_t not_downloaded() const { return not_downloaded_; }
  /// As the destructor; nothing can be added afterwards.
  void finish();

 private:
  struct Pending {
    std::vector<Part> parts;
    std::vector<float> losses;
    bool has_losses = false;
  };

  [[nodiscard]] bool complete(const Pending& pending) const {
    return pending.has_losses == (ranks_.first == 0) && pending.parts.size() == ranks_.count;
  }
  [[nodiscard]] std::size_t complete_count() const;
  void run();
  void write(std::uint64_t step, Pending pending);

  const std::filesystem::path folder_;
  const std::string fingerprint_;
  const CheckpointRanks ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Pending> pending_;  // by step; guarded by mutex_, as stopping_
  bool stopping_ = false;
  std::size_t written_ = 0;  // used by the thread, and after its end by others
  std::size_t not_written_ = 0;
  std::size_t not_downloaded_ = 0;
  std::thread thread_;
};

}  // namespace train
