#pragma once

#include <engine/backends.hpp>
#include <engine/kept_layout.hpp>
#include <engine/optimizer.hpp>

#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/runtime/kept/kept_set.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace train {

/// The state of one rank that outlives the process: parameters, moments, and the losses of all steps so far.
///
/// In the mode InPlace the tensors are kept memory: they may be written between begin_update() and commit() alone. In
/// the mode Double they are memory of this process, and store() copies them into the kept copy that is not current; so
/// the handles are the same in each step, and a captured step needs one graph for its update. All calls but losses()
/// queue work and return.
template <class Backend>
class KeptTensors {
 public:
  /// The memory of the set must be open: see KeptRun. Call load() to continue from its contents; else the tensors are
  /// undefined until clear().
  KeptTensors(cox::KeptSet& set, const Device<Backend>& device, KeptLayout layout);

  [[nodiscard]] std::vector<cox::Handle> parameters() const { return tensors(KeptLayout::Parameters); }
  [[nodiscard]] Moments moments() const {
    return {tensors(KeptLayout::FirstMoments), tensors(KeptLayout::SecondMoments)};
  }

  /// Makes the tensors those of the last commit.
  void load();
  /// The losses of the first `count` steps. Blocks.
  [[nodiscard]] std::vector<float> losses(std::size_t count) const;

  /// Not in a capture, as commit().
  void begin_update();
  /// Fills all tensors with zeros. Torn memory can be used from then on.
  void clear();
  void set_losses(const std::vector<float>& losses);
  /// `loss`: of step number `step`, counted from 1; one float.
  void set_loss(std::size_t step, const cox::Handle& loss);
  /// Mode Double: copies the tensors into kept memory.
  void store();
  /// The state is that after `step`: see KeptRun::step().
  void commit(std::uint64_t step);

 private:
  [[nodiscard]] std::vector<cox::Handle> tensors(KeptLayout::Kind kind) const {
    return layout_.tensors(kind, memory_[kind]);
  }
  [[nodiscard]] bool has_copies() const { return set_.mode() == cox::KeptMode::Double; }
  void copy(const cox::Handle& to, const cox::Handle& from) const;

  cox::KeptSet& set_;
  Device<Backend> device_;
  KeptLayout layout_;
  std::array<cox::Handle, KeptLayout::names.size()> memory_;  // by kind
};

}  // namespace train
