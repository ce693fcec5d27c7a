#include <coxswain/runtime/base/shared_library.hpp>
#include <coxswain/runtime/kept/kept_error.hpp>
#include <coxswain/runtime/kept/kept_record.hpp>
#include <coxswain/runtime/kept/kept_set.hpp>
#include <coxswain/servers/cuda/device/row_remapping.hpp>
#include <coxswain/servers/cuda/driver/cuda_error.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/memory/cuda_kept_storage.hpp>
#include <coxswain/servers/cuda/memory/kept_mark.hpp>
#include <coxswain/servers/cuda/server/open_context.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>
#include <coxswain/tests/stand_ins/kept_kernels.hpp>
#include <coxswain/tests/stand_ins/kernel_functions.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/open_descriptors.hpp>
#include <coxswain/tests/support/settings_scope.hpp>

#include <cuda.h>
#include <fcntl.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;
using cox::detail::CudaKeptStorage;

namespace {

constexpr std::source_location here = std::source_location::current();
constexpr std::size_t granule = std::size_t{2} << 20U;

std::shared_ptr<detail::CudaContext> context() { return detail::open_context(FakeGpus::device(0), here); }

// All pieces, as a supervisor holds them.
KeptPieces pieces_of(CudaKeptStorage& memory) {
  KeptPieces all;
  for (all.are_last = false; !all.are_last;) {
    KeptPieces next = memory.next_pieces(here);
    for (std::size_t i = 0; i < next.sizes.size(); ++i) {
      all.descriptors.push_back(std::move(next.descriptors[i]));
      all.sizes.push_back(next.sizes[i]);
    }
    all.are_last = next.are_last;
  }
  return all;
}

// Copies of the pieces, a few at a time.
KeptPieceSource source_of(const KeptPieces& pieces) {
  return [&pieces, taken = std::size_t{0}]() mutable {
    KeptPieces next;
    for (; taken < pieces.sizes.size() && next.sizes.size() < 7; ++taken) {
      next.descriptors.emplace_back(fcntl(pieces.descriptors[taken].get(), F_DUPFD_CLOEXEC, 0));
      next.sizes.push_back(pieces.sizes[taken]);
    }
    next.are_last = taken == pieces.sizes.size();
    return next;
  };
}

}  // namespace

TEST_CASE("Kept memory of a GPU in many pieces is exported and imported a few pieces at a time") {
  FakeGpus fake;
  const CudaClient client = FakeGpus::client();  // opens the device
  fake.fake.largest_piece = granule;
  constexpr std::size_t count = 150;
  const auto memory = CudaKeptStorage::create(context(), count * granule - 5, here);
  CHECK(memory->bytes() == count * granule);
  const std::size_t before = open_descriptors();
  KeptPieces first = memory->next_pieces(here);
  CHECK(first.sizes == std::vector<std::uint64_t>(KeeperMessage::pieces_at_a_time, granule));
  CHECK_FALSE(first.are_last);
  CHECK(open_descriptors() == before + KeeperMessage::pieces_at_a_time);
  first.descriptors.clear();
  CHECK(memory->next_pieces(here).sizes.size() == KeeperMessage::pieces_at_a_time);
  const KeptPieces last = memory->next_pieces(here);
  CHECK((last.sizes.size() == count - 2 * KeeperMessage::pieces_at_a_time && last.are_last));
}

TEST_CASE("Kept memory of a GPU has in the next process what it had in the one before, piece by piece") {
  FakeGpus fake;
  const CudaClient client = FakeGpus::client();  // opens the device
  fake.fake.largest_piece = granule;
  constexpr std::size_t count = 20;
  const auto memory = CudaKeptStorage::create(context(), count * granule, here);
  const auto words = [](const KeptStorage& of) { return static_cast<std::uint64_t*>(of.address()); };
  constexpr std::size_t words_of_granule = granule / sizeof(std::uint64_t);
  for (std::size_t i = 0; i < count; ++i) words(*memory)[i * words_of_granule] = i + 1;
  const KeptPieces pieces = pieces_of(*memory);
  const std::size_t before = open_descriptors();
  const auto other = CudaKeptStorage::adopt(context(), count * granule, source_of(pieces), here);
  CHECK(open_descriptors() == before + count);  // those of the stand-in itself
  for (std::size_t i = 0; i < count; ++i) CHECK(words(*other)[i * words_of_granule] == i + 1);
  for (const std::size_t wrong : {(count - 1) * granule, (count + 1) * granule})
    CHECK_THROWS_AS(CudaKeptStorage::adopt(context(), wrong, source_of(pieces), here), KeptError);
}

TEST_CASE("Kept memory of a GPU stays as it is if the next process has no memory to map it, at whatever call") {
  FakeGpus fake;
  const CudaClient client = FakeGpus::client();  // opens the device
  fake.fake.largest_piece = granule;
  constexpr std::size_t count = 3;
  KeptPieces pieces;
  {
    const auto memory = CudaKeptStorage::create(context(), count * granule, here);
    for (std::size_t i = 0; i < count; ++i)
      static_cast<std::uint64_t*>(memory->address())[i * granule / sizeof(std::uint64_t)] = i + 1;
    pieces = pieces_of(*memory);
  }
  const int live = fake.live();
  const std::size_t descriptors = open_descriptors();
  std::shared_ptr<CudaKeptStorage> adopted;
  int failures = 0;
  for (; adopted == nullptr; ++failures) {
    REQUIRE(failures < 100);
    fake.fake.calls_until_failure = failures;
    try {
      adopted = CudaKeptStorage::adopt(context(), count * granule, source_of(pieces), here);
    } catch (const KeptError& error) {
      CHECK(error.kind() != KeptError::Kind::Lost);
    } catch (const CudaError& error) {
      CHECK(error.code() == CUDA_ERROR_OUT_OF_MEMORY);
    }
    fake.fake.calls_until_failure = -1;
    if (adopted != nullptr) break;
    CHECK(fake.live() == live);
    CHECK(open_descriptors() == descriptors);
  }
  CHECK(failures == static_cast<int>(1 + 2 * count + 1));  // addresses; import and map of each piece; access
  for (std::size_t i = 0; i < count; ++i)
    CHECK(static_cast<std::uint64_t*>(adopted->address())[i * granule / sizeof(std::uint64_t)] == i + 1);
}

// All of it waits on the host: for a kernel of another stream, by way of an upload by the copy threads. Then one call
// of the driver fails, and the ones after it succeed.
TEST_CASE("An update of kept memory whose begin could not be launched writes nothing and is not committed") {
  constexpr std::size_t large = std::size_t{1} << 20U;
  const bool is_used_elsewhere = GENERATE(false, true);  // then the begin also waits for an event of another stream
  bool has_failed_begin = false;
  for (int calls = 0;; ++calls) {
    INFO("after " << calls << " calls");
    std::vector<KeptMarkChange::Kind> marks;
    FakeGpus gpus;
    {
      const std::lock_guard lock(gpus.fake.mutex);
      prepare_kept_kernels(gpus.fake);
      FakeCuda::KernelType& type = gpus.fake.kernels.at(detail::kept_mark_name);
      type.make = [make = type.make, &marks] {
        return [mark = make(), &marks](const FakeCuda::Run& run) {
          marks.push_back(static_cast<KeptMarkChange::Kind>(argument<std::uint32_t>(run, 1)));
          return mark(run);
        };
      };
    }
    const CudaClient client = FakeGpus::client();
    const CudaClient holding = FakeGpus::client();
    const CudaClient other = FakeGpus::client();
    KeptSet set("state", {client.device_id()});
    const Handle values = client.kept(set, "values", 64).handle;
    const Handle uploaded = client.create(Bytes::zeroed(large));
    client.sync().get();
    marks.clear();
    FakeGpus::hold(holding, uploaded);
    client.write(uploaded, Bytes::zeroed(large));
    FakeGpus::append(client, uploaded, 1);
    if (is_used_elsewhere) {
      FakeGpus::append(other, uploaded, 3);
      other.begin_update(set);
      FakeGpus::append(other, values, 3);
      other.commit(set);
    }
    client.begin_update(set);
    FakeGpus::append(client, values, 2);
    client.commit(set);
    FakeGpus::pass(0);
    gpus.fail_after(calls);
    gpus.release();
    try {
      client.sync().get();
    } catch (const ServerError&) {
    }
    const char* const failed = gpus.stop_failing();
    const std::vector<std::uint32_t> written = gpus.appended();
    const std::lock_guard lock(gpus.fake.mutex);
    using enum KeptMarkChange::Kind;
    INFO((failed != nullptr ? failed : "nothing") << " has failed");
    const std::ptrdiff_t updates = is_used_elsewhere ? 2 : 1;
    const bool begins = std::ranges::count(marks, Begin) == updates;
    const bool commits = std::ranges::count(marks, Commit) == updates;
    // Else the record says that the memory is whole.
    CHECK((begins || std::ranges::find(written, 2U) == written.end()));
    CHECK((begins || !commits));
    has_failed_begin = has_failed_begin || detail::gpu_faulted();
    if (detail::gpu_faulted()) gpus.fake.faulted = true;  // what the driver has made is not given back
    if (failed != nullptr) continue;
    CHECK((begins && commits));
    break;
  }
  CHECK(has_failed_begin);
}

TEST_CASE("Kept memory of a GPU is lost while rows of its memory wait to be remapped") {
  FakeGpus fake;
  const SettingsScope settings{{"cuda.nvml", std::string(COX_FAKE_NVML)}};
  const auto library = detail::SharedLibrary::open({COX_FAKE_NVML});
  auto& pending = *static_cast<unsigned*>(library.find("cox_fake_nvml_pending"));
  const auto is_lost = [](std::uint16_t device) {
    try {
      CudaServer::require_sound_memory(FakeGpus::device(device), here);
    } catch (const KeptError& error) {
      return error.kind() == KeptError::Kind::Lost;
    }
    return false;
  };
  CHECK_FALSE(is_lost(0));
  pending = 1;
  CHECK(is_lost(0));
  CHECK_FALSE(is_lost(1));  // NVML does not know it
  CHECK_FALSE(detail::RowRemapping("/nowhere/libnvidia-ml.so.1").is_pending("0000:01:00.0"));
  const int users = *static_cast<int*>(library.find("cox_fake_nvml_users"));
  {
    detail::RowRemapping prepared{COX_FAKE_NVML};
    prepared.prepare("0000:01:00.0");
    CHECK(prepared.is_pending("0000:01:00.0") == true);
    pending = 0;
    CHECK(prepared.is_pending("0000:01:00.0") == false);  // as it is now, not as it was when it was prepared
    CHECK(*static_cast<int*>(library.find("cox_fake_nvml_users")) == users + 1);
  }
  CHECK(*static_cast<int*>(library.find("cox_fake_nvml_users")) == users);
}

TEST_CASE("Kept memory of a GPU is lost if its descriptors stand for nothing, and not if the import fails") {
  FakeGpus fake;
  const CudaClient client = FakeGpus::client();  // opens the device
  const auto memory = CudaKeptStorage::create(context(), granule, here);
  KeptPieces pieces = pieces_of(*memory);
  constexpr std::string_view import = "cuMemImportFromShareableHandle";
  const auto is_lost = [&] {
    try {
      static_cast<void>(CudaKeptStorage::adopt(context(), granule, source_of(pieces), here));
    } catch (const KeptError& error) {
      return error.kind() == KeptError::Kind::Lost;
    } catch (const Error&) {
      return false;
    }
    FAIL("it was imported");
    return false;
  };
  fake.fake.failed = nullptr;
  for (int calls = 0; fake.fake.failed == nullptr || std::string_view(fake.fake.failed) != import; ++calls) {
    REQUIRE(calls < 100);
    fake.fake.calls_until_failure = calls;
    CHECK_FALSE(is_lost());
  }
  fake.fake.calls_until_failure = -1;
  pieces.descriptors.front() = FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));  // as after a reset
  CHECK(is_lost());
  // The driver cannot export, or import, what this process has made either: the memory may well exist.
  fake.fake.export_error = CUDA_ERROR_INVALID_VALUE;
  CHECK_FALSE(is_lost());
  fake.fake.export_error = 0;
  fake.fake.import_error = CUDA_ERROR_INVALID_VALUE;
  CHECK_FALSE(is_lost());
}
