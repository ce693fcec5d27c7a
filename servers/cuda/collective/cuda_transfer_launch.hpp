#pragma once

#include <coxswain/servers/cuda/collective/cuda_rank_launch.hpp>
#include <coxswain/servers/cuda/copy/peer_copy.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cox::detail {

/// A rank's launch of a transfer, which is a copy from one GPU to the other.
class CudaTransferLaunch final : public CudaRankLaunch {
 public:
  using CudaRankLaunch::CudaRankLaunch;

  /// Checks the source for poison (L14) if everything that the launch waits for has been issued. Call it when the
  /// launch has been queued for submission to the sequencer.
  void check_ready() noexcept;

  /// Whether another copy may be issued: the driver's own queue must not fill up (T3).
  [[nodiscard]] static bool has_room(CudaTimeline& timeline) noexcept;

  std::size_t place = 0;          ///< 0 sends, 1 receives
  std::vector<PeerRange> ranges;  ///< memory of each request
  /// `waits` as events, if all of that work has been issued and there is room for another copy.
  std::optional<std::vector<std::shared_ptr<CudaEvent>>> ready;

 private:
  void on_release(std::shared_ptr<void> operation) override;
  void on_posted() noexcept override;
  void issue(const IssueTarget& target) override;
  void abort(const std::exception_ptr& error) noexcept override;
  [[nodiscard]] std::string name() const override { return "a transfer"; }
  void check_source();
  void record_completion() const noexcept;
  void finish() noexcept;
  void note_received(bool may_fail);
  [[nodiscard]] std::shared_ptr<CudaEvent> room() const;
  void arrive(std::vector<std::shared_ptr<CudaEvent>> behind, std::exception_ptr failure);

  std::shared_ptr<PeerCopy> peer_copy_;
  std::optional<PeerCopy::End> end_;   // set when the copy has ended
  std::exception_ptr source_refusal_;  // why neither side copies; the communicator stays usable
  bool may_fail_ = false;              // the source depends on a collective in flight
  bool has_arrived_ = false;
};

}  // namespace cox::detail
