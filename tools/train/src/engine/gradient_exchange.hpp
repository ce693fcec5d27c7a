#pragma once

#include <engine/backends.hpp>
#include <engine/optimizer.hpp>
#include <engine/options.hpp>
#include <model/model.hpp>

#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace train {

/// Brings the gradients of all devices together while the backward pass goes on. One object for each device and
/// training run; used by one thread. No call waits for the device.
class GradientExchange {
 public:
  GradientExchange() = default;
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;
  virtual ~GradientExchange() = default;

  /// The last kernel that computes gradient `index` in this step has been queued.
  virtual void add(std::size_t index) = 0;
  /// All gradients have been added. The future is ready when they have been exchanged, and throws the first failure.
  /// None if there is nothing to wait for, or if `capturing`: a captured operation has no future.
  virtual std::optional<cox::Future<void>> finish(bool capturing) = 0;
  /// The parameters have been updated.
  virtual void updated() = 0;
  /// What this device updates. The gradients are valid after finish(), in stream order.
  [[nodiscard]] virtual std::vector<Slice> slices() const = 0;
  /// The memory of the gradients of slices() if several share an allocation, else nothing.
  [[nodiscard]] virtual std::vector<GradientBlock> blocks() const { return {}; }
};

/// `Replicated`: by GradientBuckets, or for a captured step by all_reduce operations of the same buckets. `Sharded`: by
/// reduce_scatter before the update and all_gather after it. `Pipeline`: nothing to exchange. Sets the memory of the
/// model's gradients.
template <class Backend>
[[nodiscard]] std::unique_ptr<GradientExchange> make_gradient_exchange(const Device<Backend>& device,
                                                                       Model<Backend>& model,
                                                                       const cox::CommunicationId& ranks,
                                                                       const Options& options);

}  // namespace train
