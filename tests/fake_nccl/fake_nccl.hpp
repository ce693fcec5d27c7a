#pragma once

#include <coxswain/tests/fake_nccl/fake_nccl_world.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace cox::test {

/// What a test and the library that stands in for NCCL (fake_nccl.cpp) both know: the test finds it with dlsym, by the
/// name of the function cox_fake_nccl. What is called is noted, misuse too. Nothing is moved or computed, unless the
/// test says how.
struct FakeNccl {
  enum class Kind {
    Create,
    Destroy,
    Abort,
    Revoke,
    Enqueue,
    AsyncError,
    GroupStart,
    GroupEnd,
    UniqueId,
    InitRank,
    Split
  };
  struct Call {
    Kind kind;
    int rank;  ///< -1: of none
  };

  /// What a rank was asked for.
  struct Operation {
    enum class Kind { AllReduce, Reduce, Broadcast, AllGather, ReduceScatter, Send, Receive };
    Kind kind;
    const void* source;
    void* destination;
    std::size_t count;
    int type;       ///< an ncclDataType_t
    int reduction;  ///< an ncclRedOp_t
    int peer;       ///< or the root
    void* stream;
    std::uint64_t communicator = 0;  ///< one number for all its ranks
    int rank = 0;
    int ranks = 0;
    std::shared_ptr<const std::atomic<bool>> given_up{};  ///< the rank need not go on
    std::shared_ptr<FakeNcclShared> shared{};             ///< of a communicator of several processes
  };

  std::mutex mutex;  // of all below
  /// Launches what a rank was asked for, by itself or in one group, on its stream. Called without the lock. Returns an
  /// ncclResult_t.
  std::function<int(std::vector<Operation>)> launch;
  std::vector<Call> calls;
  std::vector<std::string> misuse;  ///< Of NCCL's rules: a communicator used after its end, a group that stays open.
  int live = 0;                     ///< Communicators that have been made and neither destroyed nor aborted.
  int calls_until_failure = -1;     ///< Of those that can fail: so many succeed, then one fails; -1: none does.
  int async_error = 0;              ///< What communicators tell when they are asked: an ncclResult_t.
  bool hold_creation = false;       ///< ncclCommInitAll does not return as long as this is so.
  bool hold_abort = false;          ///< ncclCommAbort does not return as long as this is so.
  /// Called when ncclCommDestroy or ncclCommAbort begins. Without the lock.
  std::function<void(Kind)> at_end;
  std::vector<std::string> names;  ///< commName of the communicators that were initialised by rank
  struct Ctas {
    int min;
    int max;
    bool operator==(const Ctas&) const = default;
  };
  std::vector<Ctas> ctas;  ///< Of the communicators that were initialised by rank or split, in the order of the calls.

  [[nodiscard]] std::size_t count(Kind kind) const {
    std::size_t found = 0;
    for (const Call& call : calls) found += call.kind == kind ? 1 : 0;
    return found;
  }
};

}  // namespace cox::test
