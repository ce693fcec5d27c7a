#pragma once

#include <coxswain/collectives/leader/follower.hpp>
#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/collectives/link/data_link.hpp>
#include <coxswain/collectives/world/rank_exchange.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace cox::detail::world {

/// The exchange of a world: one link to each other process. `process` in its functions is a number, from 0.
///
/// Each process expects the operations of a sequence in order. So the inputs of an operation later than the last one
/// that was expected wait, and those of an earlier one, which has ended here, are discarded.
class DataExchange final : public RankExchange {
 public:
  using NameOf = std::function<std::string(std::uint16_t process)>;
  using Ended = std::function<void(std::uint16_t process, const std::string& why)>;

  /// `name_of` names a process in errors. `ended` is called when the link to a process has ended by itself.
  DataExchange(std::size_t processes, NameOf name_of, Ended ended)
      : name_of_(std::move(name_of)), ended_(std::move(ended)), links_(processes), gone_(processes) {}

  void expect(const SharedOperation& name, const std::vector<std::uint16_t>& from,
              const std::shared_ptr<Operation>& operation) override;
  void send(const SharedOperation& name, std::vector<Parcel> parcels) noexcept override;
  void abort(const SharedOperation& name, const std::exception_ptr& why) noexcept override;

  // The thread of the links:

  void add(std::uint16_t process, std::shared_ptr<DataLink> link);
  [[nodiscard]] bool has(std::uint16_t process) const;
  /// The link to a process; nullptr if there is none.
  [[nodiscard]] std::shared_ptr<DataLink> link(std::uint16_t process) const;
  /// By process: whether an operation waits for its inputs.
  [[nodiscard]] std::vector<bool> awaited() const;
  /// The link to the successor of a process. Operations of `ended` and of earlier epochs, which its predecessor has not
  /// completed, fail as before.
  void replace(std::uint16_t process, std::shared_ptr<DataLink> link, const std::vector<SharedCommunicator>& ended);
  /// The process is gone: operations that need it fail with this error, also later ones. Closes its link.
  void lose(std::uint16_t process, const std::exception_ptr& why) noexcept;
  /// Every process is gone.
  void lose_all(const std::exception_ptr& why) noexcept;

 private:
  struct Active {
    std::shared_ptr<Operation> operation;
    std::uint64_t key;
    std::shared_ptr<std::atomic<bool>> is_withdrawn;  // see SendQueue::Item
    std::vector<std::uint16_t> processes;             // of the other ranks
    std::vector<std::uint16_t> awaited;               // whose inputs have not arrived
    std::vector<std::uint16_t> unsent;                // which have not got all of ours
    bool has_sent = false;                            // send() was called
    std::vector<std::uint16_t> refused = {};          // whose connections were broken then
  };
  struct ByName {
    bool operator()(const OperationOfAll& a, const OperationOfAll& b) const noexcept;
  };
  /// Which operations of a sequence were expected here.
  struct Progress {
    std::uint64_t epoch = 0;
    std::uint64_t last = 0;
  };
  using SequenceName = std::pair<std::vector<DeviceId>, Direction>;

  [[nodiscard]] DataLink::Place place(std::uint16_t process, const Inputs& inputs);
  [[nodiscard]] bool received(std::uint16_t process, const Inputs& inputs);
  [[nodiscard]] bool aborted(std::uint16_t process, const AbortedOperation& message);
  void note_sent(const OperationOfAll& name, std::uint16_t process) noexcept;
  void fail(const OperationOfAll& name, const std::exception_ptr& why) noexcept;
  [[nodiscard]] bool is_over(const OperationOfAll& name) const;
  void note_expected(const OperationOfAll& name);
  void forget_aborted(const SequenceName& sequence, std::uint64_t epoch);
  void erase_if_done(std::map<OperationOfAll, Active, ByName>::iterator at, std::shared_ptr<Operation>& erased);

  const NameOf name_of_;
  const Ended ended_;
  mutable std::mutex mutex_;  // not held while links or operations are called
  std::vector<std::shared_ptr<DataLink>> links_;
  std::vector<std::exception_ptr> gone_;
  /// The last epoch of a communicator that ended because a process was gone.
  struct LastEpoch {
    std::uint64_t epoch = 0;
    std::exception_ptr why = nullptr;
  };
  std::map<std::vector<DeviceId>, LastEpoch> ended_epochs_;
  std::map<OperationOfAll, Active, ByName> active_;
  std::map<SequenceName, Progress> expected_;
  std::map<OperationOfAll, std::pair<AbortedOperation, std::uint16_t>, ByName>
      aborted_;  // by others, before they were expected here
  std::uint64_t last_key_ = 0;
};

/// The name that messages use.
[[nodiscard]] OperationOfAll name_of(const SharedOperation& operation);

}  // namespace cox::detail::world
