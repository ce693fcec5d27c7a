#pragma once

#include <engine/job.hpp>
#include <engine/processes.hpp>

#include <coxswain/runtime/kept/kept_agreement.hpp>
#include <coxswain/runtime/kept/kept_set.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace train {

/// The kept memory of all ranks of this process, and how far its contents go. The processes of a world continue at the
/// newest epoch that all of them hold, or none uses the contents. It must outlive the ranks, and its devices must have
/// been shut down before the memory is opened again in this process.
class KeptRun {
 public:
  /// `schema`: only the memory of a run with the same one is taken. Throws cox::KeptError.
  KeptRun(const Job& job, const std::string& schema);

  /// Opens the memory on all devices of this process, or makes it, and agrees with the other processes. Blocks. Throws
  /// cox::KeptError, and as Processes::gather.
  template <class Client>
  void open(const Processes& processes);

  [[nodiscard]] cox::KeptSet& set() { return set_; }

  // After open()

  /// Number of the steps that have led to the contents, after which training continues. std::nullopt: the contents
  /// cannot be used.
  [[nodiscard]] std::optional<std::uint64_t> step() const { return step_; }
  /// Whether an earlier process, or an earlier attempt of this one, has begun to train with this memory.
  [[nodiscard]] bool is_used() const { return state_.last_epoch != 0; }
  /// For a line of the output: "torn: host:0 in update 13, ...". The first word is empty, whole, torn, suspect, partial
  /// or unsupervised.
  [[nodiscard]] std::string to_string() const;

 private:
  template <class Client>
  void open_memory();
  template <class Client>
  void agree(const Processes& processes);
  // The steps that have led to the contents of this process; std::nullopt: they cannot be used.
  [[nodiscard]] std::optional<std::uint64_t> own_step() const;
  /// What the devices have committed, if it is the same on all of them.
  [[nodiscard]] std::optional<std::uint64_t> common_step() const;

  const Job& job_;
  cox::KeptSet set_;
  cox::KeptState state_;
  bool is_restored_ = true;             ///< all memory is that of an earlier process
  std::vector<cox::KeptOffer> offers_;  ///< of all processes of a world
  std::optional<std::uint64_t> step_;
};

}  // namespace train
