#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace cox::test {

/// What a test and the library that stands in for NCCL (fake_nccl.cpp) both know: the test finds it with dlsym, by the
/// name of the function cox_fake_nccl. Nothing is moved or computed; what is called is noted, misuse too.
struct FakeNccl {
  enum class Kind { Create, Destroy, Abort, Revoke, Enqueue, AsyncError, GroupStart, GroupEnd };
  struct Call {
    Kind kind;
    int rank;  ///< -1: of none
  };

  std::mutex mutex;  // of all below
  std::vector<Call> calls;
  std::vector<std::string> misuse;  ///< Of NCCL's rules: a communicator used after its end, a group that stays open.
  int live = 0;                     ///< Communicators that have been made and neither destroyed nor aborted.
  int calls_until_failure = -1;     ///< Of those that can fail: so many succeed, then one fails; -1: none does.
  int async_error = 0;              ///< What communicators tell when they are asked: an ncclResult_t.
  bool hold_creation = false;       ///< ncclCommInitAll does not return as long as this is so.

  [[nodiscard]] std::size_t count(Kind kind) const {
    std::size_t found = 0;
    for (const Call& call : calls) found += call.kind == kind ? 1 : 0;
    return found;
  }
};

}  // namespace cox::test
