#pragma once

#include <coxswain/servers/cuda/collective/rank_operation.hpp>
#include <coxswain/servers/cuda/copy/peer_copy.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cox::detail {

/// A rank's part in a transfer, which is a copy from one GPU to the other.
class TransferRankOperation final : public RankOperation, public std::enable_shared_from_this<TransferRankOperation> {
 public:
  using RankOperation::RankOperation;

  /// Checks the source for poison (L14) if everything that the part waits for has been issued.
  void on_submitted() noexcept override;
  void on_release(std::shared_ptr<void> shared) override;

  /// Whether another copy may be issued: the driver's own queue must not fill up (T3).
  [[nodiscard]] static bool has_room(CudaTimeline& timeline) noexcept;

  std::size_t place = 0;          ///< 0 sends, 1 receives
  std::vector<PeerRange> ranges;  ///< memory of each request
  /// `waits` as events, if all of that work has been issued and there is room for another copy.
  std::optional<std::vector<std::shared_ptr<CudaEvent>>> ready;

 private:
  friend class LaunchGuard<TransferRankOperation>;

  [[nodiscard]] std::string name() const override { return "a transfer"; }
  [[nodiscard]] std::shared_ptr<LoggedOperation> shared_self() override { return shared_from_this(); }
  void check_source();
  void finish(const PeerCopy::End& end) noexcept;
  void note_received(const PeerCopy::End& end);
  void wait_for_issue();
  void issue(const std::shared_ptr<TransferRankOperation>& self, const IssueTarget& target);
  void abort(const std::exception_ptr& error) noexcept;
  [[nodiscard]] std::shared_ptr<CudaEvent> room() const;
  void arrive(std::vector<std::shared_ptr<CudaEvent>> behind, std::exception_ptr failure);

  std::shared_ptr<PeerCopy> peer_copy_;
  std::exception_ptr refusal_;  // why neither side copies; the communicator stays usable
  bool may_fail_ = false;       // the source depends on a collective in flight
  bool has_arrived_ = false;
};

}  // namespace cox::detail
