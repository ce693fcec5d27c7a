#include <coxswain/tools/cox/stress/kept_book.hpp>

#include <coxswain/runtime/socket/file_descriptor.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cerrno>
#include <new>
#include <system_error>

namespace cox::stress {

void KeptBook::add_wrong(const std::string& why) noexcept {
  wrong.fetch_add(1);
  if (!has_wrong.exchange(true)) why.copy(first_wrong.data(), first_wrong.size() - 1);
}

MappedKeptBook::MappedKeptBook(const std::string& path, Open how) {
  static_assert(KeptBook::Count::is_always_lock_free);  // so that processes can share them
  const bool is_new = how == Open::New;
  const FileDescriptor file(
      open(path.c_str(), O_RDWR | O_CLOEXEC | (is_new ? O_CREAT | O_EXCL : 0), S_IRUSR | S_IWUSR));
  if (!file.is_open()) throw std::system_error(errno, std::generic_category(), path);
  // Reserves the space: without it, writing to the mapped file on a full disk ends the process with SIGBUS.
  if (const int error = is_new ? posix_fallocate(file.get(), 0, sizeof(KeptBook)) : 0; error != 0)
    throw std::system_error(error, std::generic_category(), path);
  void* const memory = mmap(nullptr, sizeof(KeptBook), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), path);
  book_ = is_new ? new (memory) KeptBook() : static_cast<KeptBook*>(memory);
}

MappedKeptBook::~MappedKeptBook() { munmap(book_, sizeof(KeptBook)); }

}  // namespace cox::stress
