#pragma once

#include <engine/job.hpp>

#include <coxswain/runtime/kept/kept_set.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace train {

/// The kept memory of all ranks, and how far its contents go. It must outlive the ranks, and its devices must have been
/// shut down before the memory is opened again in this process.
class KeptRun {
 public:
  /// `schema`: only the memory of a run with the same one is taken. Throws cox::KeptError.
  KeptRun(const Job& job, const std::string& schema);

  /// Opens the memory on all devices, or makes it. Blocks. Throws cox::KeptError.
  template <class Client>
  void open();

  [[nodiscard]] cox::KeptSet& set() { return set_; }

  // After open()

  /// Number of the steps that have led to the contents, after which training continues. std::nullopt: the contents
  /// cannot be used.
  [[nodiscard]] std::optional<std::uint64_t> step() const;
  /// Whether an earlier process, or an earlier attempt of this one, has begun to train with this memory.
  [[nodiscard]] bool is_used() const { return state_.kind != cox::KeptState::Kind::Empty; }
  /// For a line of the output: "torn: host:0 in update 13, ...". The first word is empty, whole, torn, suspect, partial
  /// or unsupervised.
  [[nodiscard]] std::string to_string() const;

 private:
  /// What the devices have committed, if it is the same on all of them.
  [[nodiscard]] std::optional<std::uint64_t> common_step() const;

  const Job& job_;
  cox::KeptSet set_;
  cox::KeptState state_;
  bool is_restored_ = true;  ///< all memory is that of an earlier process
};

}  // namespace train
