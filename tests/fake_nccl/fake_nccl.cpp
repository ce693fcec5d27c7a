// A library that stands in for NCCL where there is no GPU, and where NCCL must fail.
#include <coxswain/tests/fake_nccl/fake_nccl.hpp>

#include <chrono>
#include <set>
#include <thread>

using cox::test::FakeNccl;

struct ncclComm {
  int rank;
};

namespace {

constexpr int success = 0;
constexpr int internal_error = 3;
constexpr int invalid_argument = 4;

FakeNccl& state() {
  static auto& state = *new FakeNccl;
  return state;
}

// Under the lock.
std::set<const ncclComm*>& open_comms() {
  static auto& comms = *new std::set<const ncclComm*>;
  return comms;
}

thread_local int open_groups = 0;

// Under the lock. Whether this call is the one that fails.
bool fails() {
  FakeNccl& fake = state();
  return fake.calls_until_failure >= 0 && fake.calls_until_failure-- == 0;
}

// Under the lock.
bool is_open(const ncclComm* comm, const char* function) {
  if (open_comms().contains(comm)) return true;
  state().misuse.push_back(std::string(function) + " of a communicator that is not there");
  return false;
}

int enqueue(const ncclComm* comm, const char* function) {
  const std::lock_guard lock(state().mutex);
  if (!is_open(comm, function)) return invalid_argument;
  state().calls.push_back({FakeNccl::Kind::Enqueue, comm->rank});
  return fails() ? internal_error : success;
}

int end(ncclComm* comm, FakeNccl::Kind kind, const char* function) {
  const std::lock_guard lock(state().mutex);
  if (!is_open(comm, function)) return invalid_argument;
  state().calls.push_back({kind, comm->rank});
  open_comms().erase(comm);
  --state().live;
  delete comm;
  return fails() ? internal_error : success;
}

}  // namespace

extern "C" {

FakeNccl* cox_fake_nccl() { return &state(); }

int ncclGetVersion(int* version) {
  *version = 22809;
  return success;
}
const char* ncclGetErrorString(int) { return "the error that the test asked for"; }
const char* ncclGetLastError(ncclComm*) { return "nothing more"; }

int ncclCommInitAll(ncclComm** comms, int ranks, const int*) {
  const auto held = [] {
    const std::lock_guard lock(state().mutex);
    return state().hold_creation;
  };
  while (held()) std::this_thread::yield();
  const std::lock_guard lock(state().mutex);
  state().calls.push_back({FakeNccl::Kind::Create, -1});
  if (fails()) return internal_error;
  for (int rank = 0; rank < ranks; ++rank) {
    comms[rank] = new ncclComm{rank};
    open_comms().insert(comms[rank]);
    ++state().live;
  }
  return success;
}
int ncclCommDestroy(ncclComm* comm) { return end(comm, FakeNccl::Kind::Destroy, "ncclCommDestroy"); }
int ncclCommAbort(ncclComm* comm) { return end(comm, FakeNccl::Kind::Abort, "ncclCommAbort"); }
int ncclCommRevoke(ncclComm* comm, int) {
  const std::lock_guard lock(state().mutex);
  if (!is_open(comm, "ncclCommRevoke")) return invalid_argument;
  state().calls.push_back({FakeNccl::Kind::Revoke, comm->rank});
  return fails() ? internal_error : success;
}
int ncclCommGetAsyncError(ncclComm* comm, int* error) {
  const std::lock_guard lock(state().mutex);
  if (!is_open(comm, "ncclCommGetAsyncError")) return invalid_argument;
  *error = state().async_error;
  return success;
}

int ncclGroupStart() {
  ++open_groups;
  const std::lock_guard lock(state().mutex);
  state().calls.push_back({FakeNccl::Kind::GroupStart, -1});
  if (!fails()) return success;
  --open_groups;
  return internal_error;
}
int ncclGroupEnd() {
  const std::lock_guard lock(state().mutex);
  if (--open_groups < 0) state().misuse.push_back("ncclGroupEnd without a group");
  state().calls.push_back({FakeNccl::Kind::GroupEnd, -1});
  return fails() ? internal_error : success;
}

int ncclAllReduce(const void*, void*, std::size_t, int, int, ncclComm* comm, void*) {
  return enqueue(comm, "ncclAllReduce");
}
int ncclReduce(const void*, void*, std::size_t, int, int, int, ncclComm* comm, void*) {
  return enqueue(comm, "ncclReduce");
}
int ncclBroadcast(const void*, void*, std::size_t, int, int, ncclComm* comm, void*) {
  return enqueue(comm, "ncclBroadcast");
}
int ncclAllGather(const void*, void*, std::size_t, int, ncclComm* comm, void*) {
  return enqueue(comm, "ncclAllGather");
}
int ncclReduceScatter(const void*, void*, std::size_t, int, int, ncclComm* comm, void*) {
  return enqueue(comm, "ncclReduceScatter");
}
int ncclSend(const void*, std::size_t, int, int, ncclComm* comm, void*) { return enqueue(comm, "ncclSend"); }
int ncclRecv(void*, std::size_t, int, int, ncclComm* comm, void*) { return enqueue(comm, "ncclRecv"); }

}  // extern "C"
