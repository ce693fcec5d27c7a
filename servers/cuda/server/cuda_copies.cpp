#include <coxswain/runtime/buffer/operation_memory.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/stream_errors.hpp>
#include <coxswain/runtime/handle/recycled_memory.hpp>
#include <coxswain/runtime/tensor/copy_plan.hpp>
#include <coxswain/servers/cuda/copy/device_copy.hpp>
#include <coxswain/servers/cuda/copy/logged_read.hpp>
#include <coxswain/servers/cuda/copy/small_read.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/server/cuda_work.hpp>
#include <coxswain/servers/cuda/stream/sync_point.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>

namespace cox::detail {
namespace {

// Bytes. Up to this size the device thread copies an upload to page-locked memory itself: about six microseconds.
constexpr std::size_t small_upload = std::size_t{64} << 10U;
// Bytes. Up to this size a read ends in page-locked memory, without a copy on the host.
constexpr std::size_t direct_download = std::size_t{4} << 20U;

/// A copy of `source` in page-locked memory. Throws IoError.
Bytes pinned_copy(CudaDevice& device, const Bytes& source, const Caller& caller) {
  Bytes pinned = device.allocate_pinned(source.size(), caller);
  source.copy_to(pinned.span());
  return pinned;
}
/// As pinned_copy(), but returns nothing if there is not enough page-locked memory.
std::optional<Bytes> to_pinned(CudaDevice& device, const Bytes& source, const Caller& caller) {
  try {
    return pinned_copy(device, source, caller);
  } catch (const IoError&) {
    return std::nullopt;
  }
}

void upload_from_pinned(CudaDevice& device, CudaStream& stream, const BufferUses& uses, CUdeviceptr address,
                        const CopyPlan& rows, Bytes source, const Caller& caller) {
  device.submit(stream, uses, {"write", nullptr, caller.site},
                [address, rows, source = std::move(source), site = caller.site](const IssueTarget& target) mutable {
                  if (gpu_faulted()) throw_gpu_fault(site);
                  const std::byte* const host = std::as_const(source).data();
                  target.hold(std::move(source));  // first: without memory to hold it, nothing is copied
                  copy_rows_to_device(address, host, rows.rows, rows.row_bytes, rows.pitch, target.stream());
                });
  if (!stream.capture.capturing()) device.streams().mark(stream);  // readers on other streams wait for this alone
}

void upload_by_threads(CudaDevice& device, CudaStream& stream, const BufferUses& uses, CUdeviceptr address,
                       const CopyPlan& rows, Bytes source, const Caller& caller) {
  CopyTask task;
  task.parts.push_back({address, rows, std::move(source)});
  task.memory = OperationMemory(uses, caller.site);
  task.location = stream.location();
  task.on_completed = [stream = stream.shared_from_this(), sequence = stream.next_sequence()](
                          CopyTask&, const std::exception_ptr& error, const std::shared_ptr<CudaEvent>&) {
    if (error != nullptr) stream->fail_at(sequence, error);
  };
  device.transfer(stream, uses, std::move(task));
}

struct Download {
  std::vector<CopyTask::Part> parts;
  BufferUses uses;
  SmallReadSlots::Slot slot = nullptr;  ///< for a small read; null: each part has its own memory

  [[nodiscard]] bool is_small() const noexcept {
    return parts.size() == 1 && parts.front().plan.is_linear() &&
           SmallRead::can_read(parts.front().device, parts.front().plan.size());
  }
  [[nodiscard]] std::size_t size() const noexcept {
    std::size_t bytes = 0;
    for (const CopyTask::Part& part : parts) bytes += part.plan.size();
    return bytes;
  }
};

/// Allocates page-locked memory for the results of a read. Returns false if there is not enough.
bool take_pinned(CudaDevice& device, Download& download, const Caller& caller) {
  try {
    if (download.is_small()) {
      download.slot = device.small_reads().acquire([&] { return device.allocate_pinned(SmallRead::max_size, caller); });
      return true;
    }
    for (CopyTask::Part& part : download.parts) part.host = device.allocate_pinned(part.plan.size(), caller);
    return true;
  } catch (const IoError&) {
    return false;
  }
}

/// Precondition: `bytes` has capacity for all parts.
void move_contents(std::vector<CopyTask::Part>& parts, std::vector<Bytes>& bytes) noexcept {
  for (CopyTask::Part& part : parts) bytes.push_back(std::move(part.host));
}

/// Completes a read, on any thread. Throws, as TakenError, the failures of earlier work in its stream together with
/// those known when it was issued; else the error that it has read poisoned memory.
struct ReadEnd {
  SyncPoint point;
  std::shared_ptr<LoggedRead> logged = nullptr;  ///< null: it depends on no work that may still fail
  /// Failures known when the read was issued. The future holds them, and returns them if it is dropped before that.
  std::exception_ptr earlier = nullptr;
  std::weak_ptr<ErrorReceipt> receipt = {};

  void complete() {
    // First: failures of earlier work are recorded before this refusal, so point.complete() finds all of them.
    auto refusal = logged == nullptr ? nullptr : logged->take_refusal();
    point.complete({earlier, receipt.lock()});
    if (refusal != nullptr)
      throw StreamErrors::of_operation(point.stream->errors(), point.sequence, std::move(refusal));
  }
};

/// In-flight copies may write to the host memory of `parts`: keeps it until they have completed. If there is no memory
/// to record that, the device thread waits for the stream.
void keep(const IssueTarget& target, std::vector<CopyTask::Part>& parts) noexcept {
  try {
    for (CopyTask::Part& part : parts) target.hold(std::move(part.host));
  } catch (...) {
    COX_CUDA_CHECK(stream_synchronize(target.stream()));
  }
}

void issue_small_read(CudaDevice& device, const IssueTarget& target, CopyTask::Part& part, SmallReadSlots::Slot slot,
                      ReadEnd end, Promise<std::vector<Bytes>>& promise) {
  const auto read = make_recycled<SmallRead>(std::move(slot), part.plan.size());
  try {
    read->begin(part.device, target.stream());
    std::vector<Bytes> bytes;  // allocated while the copy runs, so that the waiter need not do it
    bytes.push_back(Bytes::uninitialized(part.plan.size()));
    read->set_end_event(target.queue->mark(device.events()));
    promise.settle_at(read, [read, bytes = std::move(bytes), end = std::move(end)]() mutable {
      end.complete();
      read->copy_to(bytes.front().span());
      return std::move(bytes);
    });
  } catch (...) {
    part.host = read->abandon();
    throw;
  }
}

void issue_read(CudaDevice& device, const IssueTarget& target, std::vector<CopyTask::Part>& parts, ReadEnd end,
                Promise<std::vector<Bytes>>& promise) {
  const auto bytes = make_recycled<std::vector<Bytes>>();  // as above
  bytes->reserve(parts.size());
  for (CopyTask::Part& part : parts)
    if (part.plan.size() != 0)
      copy_rows_to_host(part.host.data(), part.device, part.plan.rows, part.plan.row_bytes, part.plan.pitch,
                        target.stream());
  auto event = target.queue->mark(device.events());
  device.watch().begin(event);
  move_contents(parts, *bytes);
  try {
    promise.settle_at(std::move(event), [bytes, end = std::move(end)]() mutable {
      end.complete();
      return std::move(*bytes);
    });
  } catch (...) {
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i].host = std::move((*bytes)[i]);
    throw;
  }
}

/// Issues a read into page-locked memory when its turn comes.
class DirectRead {
 public:
  DirectRead(CudaDevice& device, CudaStream& stream, Download download, const Caller& caller,
             Promise<std::vector<Bytes>> promise)
      : device_(device),
        stream_(stream.shared_from_this()),
        sequence_(stream.next_sequence()),
        memory_(download.uses, caller.site),
        parts_(std::move(download.parts)),
        slot_(std::move(download.slot)),
        promise_(std::move(promise)) {}
  DirectRead(DirectRead&&) noexcept = default;
  DirectRead& operator=(DirectRead&&) = delete;
  // If the driver refuses what precedes a read that is issued later, the read is destroyed while that is handled.
  ~DirectRead() {
    if (promise_.pending() && std::current_exception() != nullptr) fail(std::current_exception());
  }

  /// The read is not issued. Precondition: pending().
  void fail(const std::exception_ptr& error) noexcept {
    promise_.set_error(StreamErrors::of_operation(stream_->errors(), sequence_, error));
  }
  [[nodiscard]] bool pending() const noexcept { return promise_.pending(); }

  // Takes the failures known now. Failures of earlier work that become known later are taken when the read completes.
  void operator()(const IssueTarget& target) {
    target.flush_launches();
    const std::source_location site = memory_.site();
    TakenError earlier = stream_->take_errors_before(sequence_, site);
    try {
      ReadEnd end{{stream_, sequence_, site, nullptr, stream_->begin_turn(sequence_)}};
      if (!earlier && !stream_->poison_log().is_quiet()) [[unlikely]] {
        end.logged = log();
        // The failure that poisoned the memory may be new, and other earlier work may have failed with it.
        if (end.logged->is_refused()) earlier = stream_->take_errors_before(sequence_, site);
      }
      if (earlier || (end.logged != nullptr && end.logged->is_refused()))
        return fail(target, std::move(end), std::move(earlier));
      end.point.held = target.queue->held();
      if (slot_ != nullptr) {
        issue_small_read(device_, target, parts_.front(), std::move(slot_), std::move(end), promise_);
      } else {
        issue_read(device_, target, parts_, std::move(end), promise_);
      }
    } catch (...) {
      keep(target, parts_);
      promise_.set_error(earlier ? earlier : TakenError{std::current_exception()});
    }
  }

 private:
  [[nodiscard]] std::shared_ptr<LoggedRead> log() {
    auto read = make_recycled<LoggedRead>(stream_, sequence_);
    read->memory = std::move(memory_);
    PoisonLog& log = stream_->poison_log();
    log.trim(device_.streams());
    if (const auto refusal = log.admit(read, stream_->location().stream)) read->refuse(refusal);
    return read;
  }
  // Reads nothing. While collectives are in flight, earlier work may still fail. So the promise is settled only after
  // that work, and reports the same failures whenever they become known.
  void fail(const IssueTarget& target, ReadEnd end, TakenError earlier) {
    if (earlier && end.logged != nullptr) {
      static_cast<void>(end.logged->take_refusal());  // the earlier failures are reported instead
      end.logged = nullptr;
    }
    end.earlier = earlier.error;
    end.receipt = earlier.receipt;
    if (!stream_->poison_log().is_empty()) {
      auto event = target.queue->mark(device_.events());
      device_.watch().begin(event);
      return promise_.settle_at(
          std::move(event),
          [end = std::move(end)]() mutable {
            end.complete();
            return std::vector<Bytes>();
          },
          std::move(earlier));
    }
    if (earlier) return promise_.set_error(std::move(earlier));
    promise_.set_error(StreamErrors::of_operation(stream_->errors(), sequence_, end.logged->take_refusal()));
  }

  CudaDevice& device_;
  std::shared_ptr<CudaStream> stream_;
  std::uint64_t sequence_;
  OperationMemory memory_;
  std::vector<CopyTask::Part> parts_;
  SmallReadSlots::Slot slot_;
  Promise<std::vector<Bytes>> promise_;
};

void download_to_pinned(CudaDevice& device, CudaStream& stream, Download download, const Caller& caller,
                        Promise<std::vector<Bytes>> promise) {
  const BufferUses uses = download.uses;
  DirectRead read(device, stream, std::move(download), caller, std::move(promise));
  try {
    device.submit_after_all(stream, uses, {"read", nullptr, caller.site}, std::move(read));
  } catch (...) {
    if (!read.pending()) throw;  // it has been queued, or was destroyed
    read.fail(std::current_exception());
  }
}

/// A read by the copy threads, and its turn among the reads and syncs of its stream, each of which takes the failures
/// before it. The promise is settled when both have arrived.
class ReadInTurn {
 public:
  ReadInTurn(CudaStream& stream, std::source_location site, Promise<std::vector<Bytes>> promise)
      : stream_(stream.shared_from_this()),
        sequence_(stream.next_sequence()),
        site_(site),
        promise_(std::move(promise)),
        turn_(std::make_unique<StreamErrors::Turn>(stream_->errors(), sequence_)) {}

  /// All earlier work of the stream has been issued.
  void come_to_turn() noexcept { arrive(); }
  /// The copy has ended: `bytes` are the result, or `error` is the reason why there is none. Any thread. The first call
  /// counts: a copy may go on although the call that has begun it fails.
  void end(std::vector<Bytes> bytes, std::exception_ptr error) noexcept {
    if (has_ended_.test_and_set()) return;
    bytes_ = std::move(bytes);
    error_ = std::move(error);
    arrive();
  }

 private:
  void arrive() noexcept {
    // Acquire and release: pairs with the same fetch_sub of the other arrival, so that the last one sees its writes.
    if (awaited_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    TakenError earlier;
    try {
      earlier = stream_->take_errors_before(sequence_, site_);
    } catch (...) {
      error_ = std::current_exception();
    }
    turn_ = nullptr;
    if (earlier) return promise_.set_error(std::move(earlier));
    if (error_ != nullptr)
      return promise_.set_error(StreamErrors::of_operation(stream_->errors(), sequence_, std::move(error_)));
    promise_.set_value(std::move(bytes_));
  }

  const std::shared_ptr<CudaStream> stream_;
  const std::uint64_t sequence_;  // among the stream's errors
  const std::source_location site_;
  Promise<std::vector<Bytes>> promise_;
  std::vector<Bytes> bytes_;
  std::exception_ptr error_;
  std::unique_ptr<StreamErrors::Turn> turn_;
  std::atomic_flag has_ended_;
  std::atomic<int> awaited_{2};
};

/// Calls `then` when no earlier work in the stream can fail any more.
template <class Then>
void when_decided(CudaDevice& device, const IssueTarget& target, Then then) {
  if (device.streams().poison_log()->is_empty()) return then();
  const std::shared_ptr<CudaEvent> event = target.queue->mark(device.events());
  device.watch().begin(event);
  event->notify(std::move(then));
}

void download_by_threads(CudaDevice& device, CudaStream& stream, Download download, const Caller& caller,
                         Promise<std::vector<Bytes>> promise) {
  std::vector<Bytes> results;
  results.reserve(download.parts.size());
  const auto read = std::make_shared<ReadInTurn>(stream, caller.site, std::move(promise));
  CopyTask task;
  task.direction = CopyTask::Direction::ToHost;
  task.parts = std::move(download.parts);
  task.memory = OperationMemory(download.uses, caller.site);
  task.location = stream.location();
  // Page-locked memory that is reused costs nothing. Heap memory of that size is new to the process each time, and
  // obtaining it takes longer than the copy.
  task.make_direct = [memory = device.results(), label = MemoryLabel{caller.site.file_name(), caller.site.line()}](
                         std::vector<CopyTask::Part>& parts) {
    for (CopyTask::Part& part : parts) {
      auto bytes = memory->allocate(part.plan.size(), label);
      if (!bytes) {
        for (CopyTask::Part& heap : parts) heap.host = Bytes::uninitialized(heap.plan.size());
        return false;
      }
      part.host = std::move(*bytes);
    }
    return true;
  };
  task.on_completed = [read, results = std::move(results)](CopyTask& done, std::exception_ptr error,
                                                           const std::shared_ptr<CudaEvent>&) mutable {
    move_contents(done.parts, results);
    read->end(std::move(results), std::move(error));
  };
  device.in_turn(stream, caller.site, [&device, read](const IssueTarget& target) {
    when_decided(device, target, [read] { read->come_to_turn(); });
  });
  try {
    device.transfer(stream, download.uses, std::move(task));
  } catch (...) {
    read->end({}, std::current_exception());
  }
}

}  // namespace

void queue_upload(CudaDevice& device, CudaStream& stream, Upload& upload, const Caller& caller) {
  const CopyPlan rows = plan_copy(upload.destination, device.location(caller), caller.site, upload.source.size());
  BufferUses uses;
  const CudaRange range = device.resolve(upload.destination.binding, Access::Overwrite, caller, uses);
  uses.front().whole = uses.front().whole && covers_allocation(rows, upload.destination, uses.front().buffer->size());
  if (rows.size() == 0) {  // an empty write may heal memory without bytes (L14)
    if (uses.front().whole) device.submit(stream, uses, {nullptr, nullptr, caller.site}, [](const IssueTarget&) {});
    return;
  }
  Bytes source = std::move(upload.source);
  if (source.property() == AllocationProperty::Pinned)
    return upload_from_pinned(device, stream, uses, range.address, rows, std::move(source), caller);
  // A graph copies the same bytes at each replay, so it keeps them.
  if (stream.capture.capturing())
    return upload_from_pinned(device, stream, uses, range.address, rows, pinned_copy(device, source, caller), caller);
  if (source.size() <= small_upload && source.is_resident())
    if (auto pinned = to_pinned(device, source, caller))
      return upload_from_pinned(device, stream, uses, range.address, rows, std::move(*pinned), caller);
  upload_by_threads(device, stream, uses, range.address, rows, std::move(source), caller);
}

void queue_download(CudaDevice& device, CudaStream& stream, Downloads downloads, const Caller& caller,
                    Promise<std::vector<Bytes>> promise) {
  Download download;
  bool direct = false;
  try {
    if (gpu_faulted()) throw_gpu_fault(caller.site);
    stream.capture.require_none("a read", caller.site);
    for (const CopyDescriptor& tensor : downloads)
      download.parts.push_back({device.resolve(tensor.binding, Access::Read, caller, download.uses).address,
                                plan_copy(tensor, device.location(caller), caller.site), Bytes()});
    direct = download.size() <= direct_download && take_pinned(device, download, caller);
  } catch (...) {
    if (stream.capture.capturing()) return promise.set_error(std::current_exception());
    // Earlier failures come first. The error is delivered in the read's turn, because earlier work that fails until
    // then belongs to the first read or sync after it.
    const std::uint64_t sequence = stream.next_sequence();
    auto fail = [stream = stream.shared_from_this(), sequence, site = caller.site, error = std::current_exception(),
                 turn = std::make_unique<StreamErrors::Turn>(stream.errors(), sequence),
                 promise = std::move(promise)]() mutable {
      auto earlier = stream->take_errors_before(sequence, site);
      turn = nullptr;
      if (earlier) return promise.set_error(std::move(earlier));
      promise.set_error(StreamErrors::of_operation(stream->errors(), sequence, std::move(error)));
    };
    return device.in_turn(stream, caller.site, [&device, fail = std::move(fail)](const IssueTarget& target) mutable {
      when_decided(device, target, std::move(fail));
    });
  }
  if (direct) return download_to_pinned(device, stream, std::move(download), caller, std::move(promise));
  download_by_threads(device, stream, std::move(download), caller, std::move(promise));
}

}  // namespace cox::detail
