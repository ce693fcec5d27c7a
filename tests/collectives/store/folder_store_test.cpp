#include <coxswain/collectives/store/folder_store.hpp>
#include <coxswain/tests/collectives/store/store_contract.hpp>
#include <coxswain/tests/support/temporary_folder.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <memory>

using cox::Store;
using cox::StoreError;
using cox::detail::FolderStore;
using cox::detail::FolderStoreOptions;
using cox::test::bytes_of;
using cox::test::far;
using cox::test::get_text;
using cox::test::kind_of;
using cox::test::mentions;
using cox::test::message_of;
using cox::test::soon;
using cox::test::TemporaryFolder;

namespace {

namespace fs = std::filesystem;

FolderStoreOptions folder_options(const fs::path& folder, std::uint16_t process, const std::string& run = "run",
                                  std::uint32_t restart = 0) {
  return {.folder = folder, .process = process, .processes = 2, .run = run, .restart = restart};
}

std::size_t files_in(const fs::path& folder) {
  std::size_t count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) count += entry.is_regular_file() ? 1U : 0U;
  return count;
}

}  // namespace

TEST_CASE("A store in a folder does what a store does, and leaves nothing there") {
  const TemporaryFolder folder;
  cox::test::check_store_contract([&](std::uint16_t process) {
    return std::make_unique<FolderStore>(folder_options(folder.path() / "new" / "folder", process));
  });
  CHECK(fs::is_empty(folder.path() / "new" / "folder"));
}

TEST_CASE("What another run or restart has left in the folder is never read") {
  const TemporaryFolder folder;
  for (const char* const run : {"run2", "run/0", "run%2F0", "", "run/"})
    FolderStore(folder_options(folder.path(), 1, run)).set("leader", bytes_of("old"), far());
  FolderStore(folder_options(folder.path(), 1, "run", 1)).set("leader", bytes_of("old"), far());
  FolderStore(folder_options(folder.path(), 1, "run", 3)).set("leader", bytes_of("old"), far());
  FolderStore store(folder_options(folder.path(), 1, "run", 2));
  CHECK(kind_of<StoreError>([&] { (void)store.get("leader", soon()); }) == StoreError::Kind::Timeout);
  store.set("leader", bytes_of("new"), far());
  CHECK(get_text(store, "leader") == "new");
}

TEST_CASE("Process 0 removes what earlier restarts of the run have left behind, and nothing else") {
  const TemporaryFolder folder;
  for (const std::uint32_t restart : {0U, 1U, 3U})
    FolderStore(folder_options(folder.path(), 1, "run", restart)).set("leader", bytes_of("token"), far());
  FolderStore(folder_options(folder.path(), 1, "other", 0)).set("leader", bytes_of("token"), far());
  const std::size_t before = files_in(folder.path());
  const FolderStore store(folder_options(folder.path(), 0, "run", 2));
  CHECK(files_in(folder.path()) == before / 2);
  FolderStore later(folder_options(folder.path(), 1, "run", 3));
  CHECK(get_text(later, "leader") == "token");
  FolderStore other(folder_options(folder.path(), 1, "other", 0));
  CHECK(get_text(other, "leader") == "token");
}

TEST_CASE("A half-written value is not seen") {
  const TemporaryFolder folder;
  FolderStore store(folder_options(folder.path(), 1));
  const fs::path own = folder.path() / "run=run" / "0";
  REQUIRE(fs::is_directory(own));
  std::ofstream(own / "draft=0.1.0") << "half";
  CHECK(kind_of<StoreError>([&] { (void)store.get("leader", soon()); }) == StoreError::Kind::Timeout);
}

TEST_CASE("A process that holds the lock delays the others until their deadline, and a dead one does not") {
  const TemporaryFolder folder;
  FolderStore store(folder_options(folder.path(), 1));
  store.set("k", bytes_of("v"), far());
  const fs::path lock = folder.path() / "run=run" / "0" / "lock";
  {
    const cox::FileDescriptor held(open(lock.c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(flock(held.get(), LOCK_EX) == 0);
    const auto set = [&] { store.set("the key", {}, soon()); };
    CHECK(kind_of<StoreError>(set) == StoreError::Kind::Timeout);
    CHECK(mentions(message_of(set), {"the key", "lock"}));
    CHECK(get_text(store, "k") == "v");  // reading needs no lock
  }
  const pid_t child = fork();
  if (child == 0) {
    const int held = open(lock.c_str(), O_RDWR);
    _exit(flock(held, LOCK_EX) == 0 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  store.set("the key", bytes_of("v"), far());
  CHECK(get_text(store, "the key") == "v");
}

TEST_CASE("Process 0 names the process that has not closed the store, and removes its files nevertheless") {
  const TemporaryFolder folder;
  FolderStore zero(folder_options(folder.path(), 0));
  FolderStore one(folder_options(folder.path(), 1));
  zero.set("k", bytes_of("v"), far());
  const std::string text = message_of([&] { zero.close(soon()); });
  CHECK(mentions(text, {"process 1"}));
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("A folder that cannot be used is named") {
  const TemporaryFolder folder;
  const fs::path file = folder.make_file("file", "text");
  const auto open_it = [&] { FolderStore(folder_options(file, 0)); };
  CHECK(kind_of<StoreError>(open_it) == StoreError::Kind::Unreachable);
  CHECK(mentions(message_of(open_it), {file.string()}));
}

TEST_CASE("Files of the store are for this user alone") {
  const TemporaryFolder folder;
  FolderStore store(folder_options(folder.path(), 1));
  store.set("k", bytes_of("secret"), far());
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (!entry.is_regular_file()) continue;
    struct stat facts{};
    REQUIRE(stat(entry.path().c_str(), &facts) == 0);
    CHECK((facts.st_mode & (S_IRWXG | S_IRWXO)) == 0);
  }
}
